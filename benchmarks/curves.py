"""Curves of a real model over its layers, for docs/results/curves.md. Needs $PROBESCALE_REAL (data, gte-small).

python benchmarks/curves.py     about 15 minutes on two cores; writes docs/results/curves.md and docs/results/figures/
"""

from __future__ import annotations

import shutil
from typing import Any

from probescale.pipeline.prepare import prepare
from probescale.pipeline.validate import check
from probescale.probing.probe import probe
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

# name -> title, the task's train data, probes, rows
STUDIES: dict[str, tuple[str, dict[str, Any], list[dict[str, Any]], int]] = {
    "sst2": ("SST-2, 5,000 training phrases", SST2, [{"name": "sst2", "pooling": "mean"}], 5000),
    "qnli": ("QNLI, 5,000 training pairs", QNLI, [{"name": "qnli", "pooling": "mean"}], 5000),
    "pos": ("Parts of speech, 20,000 words of the WSJ sample", SST2, [{"name": "pos"} | WSJ], 20_000),
    "ner": ("Named entities, 10,000 words of CoNLL-2003", SST2, [{"name": "ner"} | NER], 10_000),
}


def study(name: str) -> str:
    """One section of the page."""
    title, train, probes, rows = STUDIES[name]
    config = check(
        {
            "model": {"source": str(weights("gte-small"))},
            "task": {
                "name": name,
                "train": train,
                "probes": probes,
            },
            "probing": {"max_examples": rows, "random_weights": True},
            "selection": {"k": 4},
        }
    )
    bench = prepare(config)
    made = bench.provenance | {"model": "gte-small", "command": "python benchmarks/curves.py"}
    scores = probe(bench.loaded, bench.task, config, made)
    scores.save(FIGURES / f"{name}.json")
    svg, png = write_figure(scores, FIGURES / name)
    png.unlink()
    parts = [f"## {title}", f"![{title}](figures/{svg.name})"]
    for (label, found), note in zip(scores.probes.items(), probe_notes(scores), strict=True):
        parts += [probe_table(label, found).markdown(), note]
    return "\n\n".join(parts)


def main() -> None:
    shutil.rmtree(FIGURES, ignore_errors=True)
    head = [
        "<!-- Written by benchmarks/curves.py; run it to write this page again. -->",
        "# What the layers of a real model know",
        "gte-small (BERT, 12 layers, hidden size 384), linear probes, one seed. "
        "[Probing](../concepts/probing.md#what-the-curves-show) says what the curves show; `figures/*.json` has all "
        "numbers.",
    ]
    sections = []
    for name in STUDIES:
        sections.append(study(name))
        print(name, "done", flush=True)
        write_text(PAGE, "\n\n".join(head + sections) + "\n")


if __name__ == "__main__":
    main()
