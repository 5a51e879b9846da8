"""Real texts of the embedding benchmark: sentences of WikiText-2 and SST-2, and QNLI's questions."""

from __future__ import annotations

import csv
import gzip
import random
import re
from pathlib import Path

from probescale.tasks.passages import Passages
from real import DATA

UNSEEN = 2500  # texts, of which pairs are drawn


def write_corpus(folder: Path, count: int) -> tuple[Path, Path]:
    """A file of `count` sentences, half of each source, and a file of other sentences to measure with."""
    train, unseen = folder / "corpus.txt", folder / "unseen.txt"
    if train.exists() and unseen.exists():
        return train, unseen
    rng, texts = random.Random(0), list[str]()
    for source in (_read_wikitext(), _read_sst2()):
        texts += rng.sample(sorted(set(source)), (count + UNSEEN + 1) // 2)
    rng.shuffle(texts)
    folder.mkdir(parents=True, exist_ok=True)
    train.write_text("\n".join(texts[:count]) + "\n", encoding="utf-8")
    unseen.write_text("\n".join(texts[count:]) + "\n", encoding="utf-8")
    return train, unseen


def _read_wikitext() -> list[str]:
    with gzip.open(DATA / "wikitext2_raw" / "wiki.train.raw.gz", "rt", encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip() and not line.startswith(" =")]
    joined = [re.sub(r" @(.)@ ", r"\1", line) for line in lines]
    return [text for line in joined for text in re.split(r"(?<= [.!?]) ", line) if 5 <= len(text.split()) <= 60]


def _read_sst2() -> list[str]:
    with (DATA / "sst2" / "train.tsv").open(encoding="utf-8") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [row["sentence"].strip() for row in rows if len(row["sentence"].split()) > 3]


def read_questions(most: int | None) -> Passages:
    """QNLI's dev questions with the sentences that answer them; all other sentences are searched as well."""
    with (DATA / "qnli" / "dev.tsv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[:most]
    number: dict[str, int] = {}
    for row in rows:
        for text in (row["question"], row["sentence"]):
            number.setdefault(text, len(number))
    found = [(number[r["question"]], number[r["sentence"]]) for r in rows if r["label"] == "entailment"]
    unanswered = {number[r["question"]] for r in rows} - {one for one, _ in found}
    texts = tuple(number)
    kept = [n for n in range(len(texts)) if n not in unanswered]  # questions without an answer are not searched
    return Passages(texts, tuple(found), retrieval=True).take(kept)
