"""report.html in a real browser: the slider, the sort, the theme; no error, no request."""

from __future__ import annotations

import json
import shutil
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from probescale.models.subsets import all_contiguous_blocks
from probescale.probing.score_files import load_scores
from probescale.probing.scores import ProbeResult, ProbeScores, SubnetworkScores
from probescale.recovery.regressions import Example, Regressions, Slice
from probescale.recovery.result import Alternative, EvaluatedModel, RunResult
from probescale.report.findings import RunFindings
from probescale.report.page import Card, Page, explorer_entry, render
from probescale.report.run_page import run_page
from probescale.selection.budget import parse_budget
from probescale.selection.constraints import Constraints
from probescale.selection.evidence import Evidence
from probescale.selection.result import Selection
from probescale.selection.select import select

EVIL = "</script><script>window.evil=1</script><img src=x onerror='window.evil=1'>"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> tuple[Path, ProbeScores, Selection, RunResult]:
    """A run's figures, made up but for the layers, which the program chose."""
    folder = tmp_path_factory.mktemp("page")
    probe = {"scores": [0.6, 0.8, 0.7, 0.75, 0.65, 0.5], "weight": 1.0}
    sizes = {"embeddings": 1000, "layers": [100] * 6, "rest": 10}
    raw = {"task": f"sst2 {EVIL}", "layers": 6, "probes": {"task": probe}, "parameters": sizes}
    (folder / "scores.json").write_text(json.dumps(raw))
    scores = load_scores(folder / "scores.json")
    chosen = select(Evidence.from_scores(scores), Constraints(parse_budget(k=3), scores.parameters), "contiguous")
    chosen.save(folder / "selection.json")

    def measured(kept: tuple[int, ...], value: float) -> EvaluatedModel:
        return EvaluatedModel(
            kept=kept,
            params=1010 + 100 * len(kept),
            ratio_total=(1010 + 100 * len(kept)) / 1610,
            ratio_layers=len(kept) / 6,
            value=value,
            interval=(value - 0.02, value + 0.02),
            retention=value / 0.9,
            losses=(0.6, 0.4),
            milliseconds=2.5,
            speedup=2.0,
            seconds=1.0,
        )

    made = {"command": EVIL, "model": EVIL, "model_sha256": "0" * 64, "data_sha256": {}, "seed": 0, "versions": {}}
    result = RunResult(
        task=scores.task,
        metric="accuracy",
        split="dev",
        examples=100,
        recipe="made up",
        strategy="contiguous",
        original=measured((1, 2, 3, 4, 5, 6), 0.9),
        subnetwork=measured(chosen.kept, 0.8),
        compared={"top_k": measured((4, 5, 6), 0.85)},
        alternatives=(
            Alternative(
                name=f"bag of words {EVIL}",
                value=0.7,
                interval=(0.66, 0.74),
                retention=0.7 / 0.9,
                params=120,
                milliseconds=0.1,
                speedup=1234.5,
            ),
        ),
        retention=0.8 / 0.9,
        provenance=made,
    )
    one = Slice(name=EVIL, rows=1, original=1, small=0, newly_wrong=1, newly_right=0)
    example = Example(row=1, text=EVIL, right=EVIL, original=EVIL, small=EVIL)
    changed = Regressions(agreement=0, newly_wrong=1, newly_right=0, slices=(one,), examples=(example,))
    (folder / "report.html").write_text(run_page(RunFindings(scores, chosen, result, scores.parameters, changed)))
    return folder, scores, chosen, result


def probed_scores(subsets: list[tuple[int, ...]]) -> ProbeScores:
    """Scores of four layers with probes of these subnetworks; later layers are worth more."""
    values = tuple(sum(subset) / 20 for subset in subsets)
    probed = SubnetworkScores(
        subsets=tuple(subsets), values=values, accuracy=values, metric="accuracy", examples=9, passes=1
    )
    probe = ProbeResult(scores=(0.8, 0.7, 0.6, 0.5), weight=1)
    return ProbeScores(task="t", layers=4, probes={"task": probe}, subnetworks=probed)


def choices_of(entry: dict[str, Any]) -> dict[str, dict[int, tuple[int, ...]]]:
    return {method["name"]: {one["k"]: one["kept"] for one in method["choices"]} for method in entry["methods"]}


def test_exhaustive_is_shown_with_what_it_chose():
    scores = probed_scores([subset for k in (1, 2) for subset in combinations(range(1, 5), k)])
    entry = explorer_entry("t", scores, "exhaustive", (3, 4), "accuracy", {(3, 4): 0.9})
    assert choices_of(entry)["exhaustive"] == {1: (4,), 2: (3, 4)}
    assert entry["kept"] == (3, 4)
    contiguous_only = probed_scores(all_contiguous_blocks(4, 4))
    entry = explorer_entry("t", contiguous_only, "stitched", (3, 4), "accuracy", {})
    assert "stitched" in choices_of(entry)
    assert "exhaustive" not in choices_of(entry), "most subsets of two layers were not probed"


@pytest.mark.parametrize("strategy", ["stitched", "tried", "contiguous"])
def test_the_choice_of_the_run_is_shown_whatever_the_scores_hold(strategy):
    """Its layers may come from a tournament, or from layers that always stay, which scores do not tell."""
    entry = explorer_entry("t", probed_scores([(1,), (4,)]), strategy, (1, 4), "accuracy", {(1, 4): 0.9})
    assert (entry["chosen"], entry["kept"]) == (strategy, (1, 4))
    assert choices_of(entry)[strategy][2] == (1, 4)


def test_nothing_is_shaded_where_no_choice_is_known():
    entry = explorer_entry("t", probed_scores([]), "stitched", (), "accuracy", {})
    assert (entry["kept"], entry["k"]) == ((), 1)
    assert "stitched" not in choices_of(entry)
    assert choices_of(entry)["contiguous"][1] == (1,)


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium here")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser, run):
    """The page, which fails the test on any error in the console or request beyond the file itself."""
    opened = browser.new_page(viewport={"width": 1000, "height": 900}, color_scheme="light")
    faults: list[str] = []
    opened.on("console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("request", lambda request: faults.append(request.url) if request.url != address else None)
    address = (run[0] / "report.html").as_uri()
    opened.goto(address)
    yield opened
    opened.close()
    assert faults == []


@pytest.mark.slow
def test_the_slider_shows_what_would_be_kept(page, run):
    folder, scores, *_ = run
    shown = lambda: page.locator("#strip").get_attribute("data-kept")  # noqa: E731
    kept = json.loads((folder / "selection.json").read_text())["kept"]
    assert shown() == ",".join(map(str, kept))
    assert page.locator("#figures").inner_text().count("80.00") == 1  # measured
    assert "probe accuracy before training" in page.locator("#figures").inner_text()
    assert page.locator("#curves rect").count() == len(kept), "kept layers are shaded"
    page.locator("#budget").focus()
    page.keyboard.press("ArrowRight")
    wider = select(Evidence.from_scores(scores), Constraints(parse_budget(k=4), scores.parameters), "contiguous")
    assert shown() == ",".join(map(str, wider.kept))
    assert "not trained" in page.locator("#figures").inner_text()
    page.locator("#method").select_option(label="top_k")
    assert shown() == "3,4,5,6"
    assert "1,410" in page.locator("#figures").inner_text()


@pytest.mark.slow
def test_the_table_sorts_both_ways(page):
    values = lambda: [text.split()[0] for text in page.locator("#models td:nth-child(4)").all_inner_texts()]  # noqa: E731
    assert values() == ["90.00", "80.00", "85.00", "70.00"]
    heading = page.get_by_role("button", name="accuracy")
    heading.click()
    assert values() == ["90.00", "85.00", "80.00", "70.00"]
    heading.press("Enter")
    assert values() == ["70.00", "80.00", "85.00", "90.00"]
    assert page.locator("th[aria-sort=ascending]").count() == 1


@pytest.mark.slow
def test_a_simple_alternative_has_a_row_and_a_square(page):
    last = page.locator("#models tbody tr").last.locator("td").all_inner_texts()
    figures = [" ".join(text.split()) for text in last[1:]]
    assert last[0] == f"bag of words {EVIL}"
    assert figures == ["-", "120 7.5 % of all", "70.00 66.0 to 74.0", "77.8 %", "1,235x"]
    assert page.locator("#chart rect").get_attribute("aria-label").endswith("70.00 with 120 parameters")
    speeds = lambda: page.locator("#models tbody tr td:nth-child(6)").all_inner_texts()  # noqa: E731
    page.get_by_role("button", name="speed").click()
    assert speeds() == ["1,235x", "2.0x", "2.0x", "2.0x"], "sorted as numbers"
    layers = page.get_by_role("button", name="layers kept")
    for _ in range(2):
        layers.click()
        assert page.locator("#models tbody tr").last.locator("td").first.inner_text().startswith("bag of words")
    assert page.locator("#reasons").inner_text().endswith("has 1,310 parameters instead of 1,610 (1.2 times smaller); "
        "of 1 examples, 1 that were right are now wrong and 0 that were wrong are now right.")  # fmt: skip
    assert page.locator("#summary .lead").nth(1).inner_text().endswith("reaches accuracy 70.0: 10.0 points less.")
    assert page.get_by_role("alert").count() == 0, "nothing to warn of"


@pytest.mark.slow
def test_a_failure_is_seen_first_and_no_share_is_shown(browser, run, tmp_path):
    _, scores, chosen, result = run
    lost = lambda model: model.model_copy(update={"retention": None})  # noqa: E731
    update = {"failure": f"The original did not learn the task {EVIL}.", "retention": None, "compared": {}}
    update |= {name: lost(getattr(result, name)) for name in ("original", "subnetwork")}
    failed = result.model_copy(update=update | {"alternatives": tuple(map(lost, result.alternatives))})
    (tmp_path / "report.html").write_text(run_page(RunFindings(scores, chosen, failed, scores.parameters)))
    opened = browser.new_page(viewport={"width": 390, "height": 700})
    opened.goto((tmp_path / "report.html").as_uri())
    alert = opened.get_by_role("alert")
    assert alert.inner_text().strip().splitlines()[0] == "Do not ship it"
    assert EVIL in alert.inner_text()
    assert alert.bounding_box()["y"] < opened.locator("#summary").bounding_box()["y"], "first on the page"
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390
    assert "%" not in opened.locator("#summary").inner_text()
    assert "retention" not in opened.locator("#models").inner_text()
    assert opened.evaluate("window.evil") is None
    opened.close()


@pytest.mark.slow
def test_light_and_dark(page):
    colour = lambda: page.evaluate("getComputedStyle(document.body).backgroundColor")  # noqa: E731
    light = colour()
    page.locator("#theme").click()
    dark = colour()
    assert light != dark
    page.locator("#theme").press("Enter")
    assert colour() == light


@pytest.mark.slow
def test_a_phone_shows_all_of_it(page):
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.slow
def test_names_stay_text(page, run):
    assert page.evaluate("window.evil") is None
    assert EVIL in page.locator("#title").inner_text()
    assert page.locator("#slices tbody td").first.inner_text() == EVIL
    assert page.locator("#examples tbody td").all_text_contents() == ["1", EVIL, EVIL, EVIL, EVIL]
    assert page.locator("img").count() == 0
    assert (run[0] / "report.html").stat().st_size < 3e6


@pytest.mark.slow
def test_figures_are_told_where_they_stand(page):
    dot = page.locator("#chart circle.dot").nth(1)
    dot.hover()
    assert "80.00 with 1,310 parameters" in page.locator("#tip").inner_text()


def test_no_number_becomes_no_page():
    with pytest.raises(ValueError, match="JSON"):
        render(Page("t", [], [Card("nan", "x")], [{"value": float("nan")}], [], "", [], [], []))


@pytest.mark.slow
def test_no_other_script_would_run(browser, run, tmp_path):
    """Even markup that got into the page would stay without effect: its policy names the one script by its hash."""
    text = (run[0] / "report.html").read_text()
    (tmp_path / "report.html").write_text(text.replace("<main>", "<main><img src=x onerror='window.evil=1'>", 1))
    opened = browser.new_page()
    opened.goto((tmp_path / "report.html").as_uri())
    assert opened.locator("#title").inner_text()  # its own script ran
    assert opened.evaluate("window.evil") is None
    opened.close()
