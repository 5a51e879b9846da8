"""The paper's tables at a small size, for docs/results/paper.md.

    python benchmarks/paper.py --prepare                 data and weights of configs/paper/scaled_*.yaml
    probescale study configs/paper/scaled_table1.yaml    each can be stopped and resumed at any time
    probescale study configs/paper/scaled_t5.yaml
    python benchmarks/paper.py runs/scaled_table1       what was found, also before it is complete
    python benchmarks/paper.py                           only the tables of docs/results/paper.md

Needs $PROBESCALE_REAL (data, gte-small) and `make real-weights`.
"""

from __future__ import annotations

import argparse
import csv
import random
from pathlib import Path

from pages import write_tables
from paper_known import write_known
from paper_page import collect, load, render
from probescale.study.cells import load_study
from probescale.study.folder import StudyFolder
from probescale.study.report import write_study_report
from probescale.study.results import read_results, write_results
from real import DATA, ROOT, weights

EVIDENCE = ROOT / "benchmarks" / "evidence" / "paper"
FIGURES = ROOT / "docs" / "results" / "paper"
STUDIES = {
    "scaled_table1": "Table 1, scaled: gte-small for RoBERTa-Large",
    "scaled_t5": "The T5 table, scaled: an encoder of 8 layers for T5-Base",
}
READY = ROOT / ".cache" / "paper"
MODELS = ("gte-small", "minilm", "t5")
TABLES = {  # table -> its file, columns, and the most rows that are taken of it
    "sst2-train": ("sst2/train.tsv", ("sentence", "label"), 3000),
    "sst2-dev": ("sst2/dev.tsv", ("sentence", "label"), 872),
    "qnli-train": ("qnli/train_subset.tsv", ("question", "sentence", "label"), 3000),
    "qnli-dev": ("qnli/dev.tsv", ("question", "sentence", "label"), 1000),
}

WORDS = 20_000  # lines of the Penn Treebank's sample, of which a probe reads 5,000


def prepare() -> None:
    """Write the tables of both tasks, and link the weights, under names that the studies know."""
    (READY / "data").mkdir(parents=True, exist_ok=True)
    (READY / "weights").mkdir(exist_ok=True)
    for name, (source, columns, most) in TABLES.items():
        with (DATA / source).open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        random.Random(0).shuffle(rows)
        with (READY / "data" / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows[:most])
    tagged = (DATA / "ptb_wsj_sample" / "wsj_sample.pos.conll").read_text(encoding="utf-8")
    (READY / "data" / "wsj.conll").write_text("\n".join(tagged.split("\n")[:WORDS]), encoding="utf-8")
    for name in MODELS:
        link: Path = READY / "weights" / name
        link.unlink(missing_ok=True)
        link.symlink_to(weights(name))


def write_page() -> None:
    """The tables of docs/results/paper.md, from the files that were collected."""
    sections = [render(title, load(EVIDENCE / name), f"paper/{name}")
                for name, title in STUDIES.items() if (EVIDENCE / name).exists()]  # fmt: skip
    write_tables("results/paper.md", "paper.py", "\n\n".join([write_known(), *sections]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepare", action="store_true", help="write .cache/paper")
    parser.add_argument("folders", nargs="*", type=Path, help="folders of the studies, named as their configurations")
    asked = parser.parse_args()
    if asked.prepare:
        prepare()
        return
    for path in asked.folders:
        study = load_study(ROOT / "configs" / "paper" / f"{path.name}.yaml")
        folder = StudyFolder(path)
        results = read_results(folder, study)  # those of the cells that are done
        write_results(path, results)
        write_study_report(folder, results)
        collect(folder, study, EVIDENCE / path.name, FIGURES / path.name)
    write_page()


if __name__ == "__main__":
    main()
