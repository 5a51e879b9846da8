"""Pages of runs that end differently, each with the right verdict: in words, in the data, and in a browser."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from helpers import findings as cases
from probescale.report.findings import RunFindings
from probescale.report.run_page import run_page
from probescale.report.verdict import decide

WANTED = {
    "clear_success": ("ship", "Ship it"),
    "busy_machine": ("ship", "Ship it, but time it again"),
    "uncertain_choice": ("ship", "Ship it"),
    "searched": ("ship", "Ship it"),
    "few_examples": ("unsure", "Not sure yet"),
    "dead_model": ("no", "Do not ship it"),
}


def found(name: str) -> RunFindings:
    return getattr(cases, name)()


def page_data(name: str) -> dict:
    return json.loads(run_page(found(name)).split('id="data">')[1].split("</script>")[0])


@pytest.mark.parametrize("name", WANTED)
def test_the_verdict_of_each_is_right_and_the_page_has_it(name):
    verdict = decide(found(name))
    assert (verdict.decision, verdict.heading) == WANTED[name]
    data = page_data(name)
    assert tuple(data["verdict"][:2]) == WANTED[name]
    assert data["lead"][: len(verdict.details)] == list(verdict.details)


def test_a_clear_success_gives_its_reasons():
    assert decide(found("clear_success")).sentence == (
        "Ship it: 98.6 % of the accuracy is kept (97.4 to 99.7 %; 88.9 instead of 90.2), it is 2.0 times as fast (1.9 "
        "to 2.1) on this machine and takes 76.7 MB instead of 133.4 MB, with 19.2M parameters instead of 33.4M (1.7 "
        "times smaller); of 2,000 examples, 61 that were right are now wrong and 35 that were wrong are now right."
    )
    values = [card[0] for card in page_data("clear_success")["cards"]]
    assert values == ["98.6 %", "2.0 times", "76.7 MB", "61"]


def test_a_busy_machine_is_said():
    verdict = decide(found("busy_machine"))
    assert "about 1.3 times as fast (0.6 to 5.4: the machine was busy)" in verdict.reasons
    assert verdict.details[0].startswith("The machine was busy while speed was measured (the model waited for a")
    kept, speed, *_ = page_data("busy_machine")["cards"]
    assert (speed[0], speed[4]) == ("~1.3 times", True)
    assert not kept[4]


def test_an_uncertain_choice_names_the_other_layers():
    details = " ".join(decide(found("uncertain_choice")).details)
    assert "The layers of uniform_k are as good here" in details
    assert (
        "The choice of layers is uncertain. Within the noise: these layers are chosen in 41% of 100 resamples"
        in details
    )
    assert "uncertain" not in " ".join(decide(found("clear_success")).details)


@pytest.mark.parametrize(
    ("interval", "examples", "decision"),
    [
        ((0.951, 1.0), 2000, "ship"),
        ((0.949, 1.0), 2000, "unsure"),
        ((0.90, 0.949), 2000, "no"),
        ((1.0, 1.0), 61, "ship"),
        ((1.0, 1.0), 59, "unsure"),  # 59 examples without an error may come from a model with 5 % errors
        (None, 2000, "unsure"),
    ],
)
def test_how_sure_it_is_decides(interval, examples, decision):
    result = found("clear_success").result
    changed = result.model_copy(update={"retention_interval": interval, "examples": examples})
    assert decide(cases.change(found("clear_success"), result=changed)).decision == decision


def test_what_was_asked_counts():
    asked = found("searched")
    stricter = asked.result.model_copy(update={"wanted": 0.99})
    verdict = decide(cases.change(asked, result=stricter))
    assert verdict.decision == "unsure"
    assert "99 % was asked for, and 2,000 examples cannot tell" in verdict.reasons
    details = decide(asked).details
    assert details[0].startswith("Asked: the smallest model that keeps 97 %. Trained: 3x (too little), 2x (enough)")
    assert details[1] == "Expected and measured are far apart at 3x: 88.0 against 82.0."
    steps = page_data("searched")["search"]["steps"]
    assert [(one["size"], one["far"], one["answer"]) for one in steps] == [
        ("original", False, False), ("3x", True, False), ("2x", False, True),
    ]  # fmt: skip


def test_a_model_behind_its_own_probe_is_flagged():
    behind = cases.replace_model(found("clear_success"), value=0.79)
    said = " ".join(decide(behind).details)
    assert "a probe on these layers reached 83.0 before any training, the trained model 79.0" in said
    assert "far apart" not in " ".join(decide(found("clear_success")).details)


def test_every_number_of_the_cards_is_in_the_files_of_the_run():
    data, result = page_data("clear_success"), found("clear_success").result
    kept, speed, size, changed = data["cards"]
    assert kept[3] == result.retention
    assert speed[3] == 1 / result.subnetwork.speedup
    assert result.subnetwork.megabytes
    assert result.original.megabytes
    assert size[3] == result.subnetwork.megabytes / result.original.megabytes
    regressions = found("clear_success").regressions
    assert regressions
    assert changed[0] == str(regressions.newly_wrong)
    floors = data["places"][0]["probes"][0]["floors"]
    assert floors == {"majority": 0.557, "bag of words": 0.781}


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


@pytest.mark.slow
def test_a_browser_shows_the_verdict_round_ticks_floors_and_hints(browser, tmp_path: Path):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    for name, (decision, heading) in WANTED.items():
        path = tmp_path / f"{name}.html"
        path.write_text(run_page(found(name)), encoding="utf-8")
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(path.as_uri())
        assert page.locator("#heading").inner_text() == heading
        assert decision in page.locator("#verdict").get_attribute("class")
        assert page.get_by_role("alert").count() == (decision == "no")
        assert page.locator(".hint").count() == 0, "nothing is cut at 1280 pixels"
        ticks = [float(text) for text in page.locator("#chart .tick").all_text_contents()]
        assert all(tick % 5 == 0 for tick in ticks)
        assert page.locator("#chart .size").all_text_contents(), "sizes are named"
        assert page.locator("#curves .floor").count() == 2
        page.set_viewport_size({"width": 390, "height": 800})
        page.locator(".hint").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert len(page.locator("#chart .size").all_text_contents()) >= 2, "sizes are named on a phone"
        cut = page.evaluate(
            "[...document.querySelectorAll('.scroll')].filter((b) => b.scrollWidth > b.clientWidth + 1).length"
        )
        assert page.locator(".hint").count() == cut > 0, "what scrolls says so"
        assert page.locator(".scroll[tabindex='0']").count() == cut, "and can be scrolled by keyboard"
    page.close()
    assert faults == []
