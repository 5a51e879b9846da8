"""Curves of real models over their layers, for docs/results/curves.md. Needs $PROBESCALE_REAL and `make real-weights`.

python benchmarks/curves.py             what is not measured yet: docs/results/figures/NAME.json has the numbers
python benchmarks/curves.py smollm2     this one, again
python benchmarks/curves.py --tables    only the page
"""

from __future__ import annotations

import gzip
import sys
from typing import Any, NamedTuple

from probescale.pipeline.prepare import prepare
from probescale.pipeline.validate import check
from probescale.probing.probe import probe
from probescale.probing.scores import ProbeScores
from probescale.report.figure import write_figure
from probescale.report.probes import probe_notes, probe_table
from probescale.utils.files import write_text
from real import DATA, ROOT, weights

PAGE = ROOT / "docs" / "results" / "curves.md"
FIGURES = PAGE.parent / "figures"

SST2 = {"source": str(DATA / "sst2/train.tsv"), "text": "sentence"}
QNLI = {"source": str(DATA / "qnli/train_subset.tsv"), "text": "question", "pair": "sentence"}
WORDS = {"pooling": "token"}
WSJ = WORDS | {"data": {"source": str(DATA / "ptb_wsj_sample/wsj_sample.pos.conll"), "text": 1, "label": 2}}
NER = WORDS | {"data": {"source": str(DATA / "conll2003/train.txt"), "text": 1, "label": 4}}

TEXT = {"source": str(ROOT / ".cache" / "curves" / "wikitext.txt")}


class Study(NamedTuple):
    """One model and property."""

    title: str
    train: dict[str, Any]
    probe: dict[str, Any] = {}  # noqa: RUF012 - nothing changes it
    rows: int = 5000
    model: str = "gte-small"


STUDIES = {
    "sst2": Study("SST-2, 5,000 training phrases", SST2, {"pooling": "mean"}),
    "qnli": Study("QNLI, 5,000 training pairs", QNLI, {"pooling": "mean"}),
    "pos": Study("Parts of speech, 20,000 words of the WSJ sample", SST2, WSJ, 20_000),
    "ner": Study("Named entities, 10,000 words of CoNLL-2003", SST2, NER, 10_000),
    "smollm2": Study("The next token of WikiText-2, SmolLM2-135M", TEXT, model="smollm2"),
    "gemma": Study("The next token of WikiText-2, Gemma-3-270m", TEXT, model="gemma"),
}
CHARACTERS = 400_000  # of WikiText-2 train: more than the lens is fitted on


def measure(name: str) -> None:
    """Write the numbers and the figure of one study."""
    study = STUDIES[name]
    task = {"name": name, "train": study.train, "probes": [{"name": name} | study.probe]}
    if study.train is TEXT:
        write_wikitext()
        task |= {"kind": "text"}
    raw = {
        "model": {"source": str(weights(study.model))},
        "task": task,
        "probing": {"max_examples": study.rows, "random_weights": True},
        "selection": {"k": 4},
    }
    config = check(raw)
    bench = prepare(config)
    made = bench.provenance | {"model": study.model, "command": "python benchmarks/curves.py"}
    scores = probe(bench.loaded, bench.task, config, made)
    scores.save(FIGURES / f"{name}.json")
    _, png = write_figure(scores, FIGURES / name)
    png.unlink()


def describe(name: str) -> str:
    """One section of the page."""
    title, scores = STUDIES[name].title, ProbeScores.load(FIGURES / f"{name}.json")
    parts = [f"## {title}", f"![{title}](figures/{name}.svg)"]
    for (label, found), note in zip(scores.probes.items(), probe_notes(scores), strict=True):
        parts += [probe_table(label, found).markdown(), note]
    return "\n\n".join(parts)


def write_wikitext() -> None:
    path = ROOT / ".cache" / "curves" / "wikitext.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(DATA / "wikitext2_raw" / "wiki.train.raw.gz", "rt", encoding="utf-8") as file:
        path.write_text(file.read(CHARACTERS), encoding="utf-8")


def main() -> None:
    missing = [name for name in STUDIES if not (FIGURES / f"{name}.json").exists()]
    for name in [name for name in sys.argv[1:] or missing if name != "--tables"]:
        measure(name)
        print(name, "done", flush=True)
    measured = [name for name in STUDIES if (FIGURES / f"{name}.json").exists()]
    decoders = ", and decoders with the tuned lens" if any(STUDIES[name].train is TEXT for name in measured) else ""
    head = [
        "<!-- Written by benchmarks/curves.py; run it to write this page again. -->",
        "# What the layers of real models know",
        f"gte-small (BERT, 12 layers, hidden size 384) with linear probes{decoders}; one seed. "
        "[Probing](../concepts/probing.md#what-the-curves-show) says what the curves show; `figures/*.json` has all "
        "numbers.",
    ]
    write_text(PAGE, "\n\n".join([*head, *(describe(name) for name in measured)]) + "\n")


if __name__ == "__main__":
    main()
