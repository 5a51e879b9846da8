"""How much of an embedding model is kept: gte-small on sentences of WikiText-2 and SST-2, without labels.

`python benchmarks/embeddings.py --budget 5x` makes the corpus, runs `compress` with evenly spaced layers beside it, and
measures every model on texts that none has seen: the rank correlation of similarities with the original's, and
recall@10 of QNLI's dev questions among all of its sentences. Rows are appended to embeddings.jsonl; run it again to
resume.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import random
import re
from pathlib import Path

from probescale.api import compress
from probescale.models.loading import LoadedModel, load_encoder
from probescale.models.surgery import keep_layers
from probescale.recovery.embedder import Embedder
from probescale.tasks.metrics import METRICS
from probescale.tasks.passages import Passages
from real import DATA, weights

HERE = Path(__file__).parent
UNSEEN = 2500  # texts, of which pairs are drawn
LENGTH = 128


def write_corpus(folder: Path, count: int) -> tuple[Path, tuple[str, ...]]:
    """A file of `count` sentences, half of each source, and other sentences to measure with."""
    with gzip.open(DATA / "wikitext2_raw" / "wiki.train.raw.gz", "rt", encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip() and not line.startswith(" =")]
    joined = [re.sub(r" @(.)@ ", r"\1", line) for line in lines]
    wiki = [text for line in joined for text in re.split(r"(?<= [.!?]) ", line) if 5 <= len(text.split()) <= 60]
    with (DATA / "sst2" / "train.tsv").open(encoding="utf-8") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        sst2 = [row["sentence"].strip() for row in rows if len(row["sentence"].split()) > 3]
    rng, texts = random.Random(0), list[str]()
    for source in (wiki, sst2):
        texts += rng.sample(sorted(set(source)), (count + UNSEEN) // 2)
    rng.shuffle(texts)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "corpus.txt"
    path.write_text("\n".join(texts[:count]) + "\n", encoding="utf-8")
    return path, tuple(texts[count:])


def read_questions(most: int | None) -> Passages:
    """QNLI's dev questions with the sentences that answer them; all other sentences are searched as well."""
    with (DATA / "qnli" / "dev.tsv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[:most]
    number: dict[str, int] = {}
    for row in rows:
        for text in (row["question"], row["sentence"]):
            number.setdefault(text, len(number))
    found = [(number[r["question"]], number[r["sentence"]]) for r in rows if r["label"] == "entailment"]
    every = {number[r["question"]] for r in rows} - {one for one, _ in found}
    texts = tuple(number)
    kept = [n for n in range(len(texts)) if n not in every]  # questions without an answer are not searched
    return Passages(texts, tuple(found), retrieval=True).take(kept)


def measure(name: str, loaded: LoadedModel, unseen: Passages, questions: Passages) -> dict[str, object]:
    """Both figures of one model."""
    embed = Embedder(loaded, LENGTH)
    near = unseen.compare(embed(unseen.texts))
    ranks = questions.compare(embed(questions.texts))
    return {
        "name": name,
        "params": sum(parameter.numel() for parameter in loaded.model.parameters()),
        "spearman": round(METRICS["spearman"](unseen.gold, near), 4),
        "recall_at_10": round(METRICS["recall_at_10"](questions.gold, ranks), 4),
        "ndcg_at_10": round(METRICS["ndcg_at_10"](questions.gold, ranks), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="gte-small")
    parser.add_argument("--budget", default="5x")
    parser.add_argument("--texts", type=int, default=50_000)
    parser.add_argument("--questions", type=int, help="rows of QNLI; by default all")
    parser.add_argument("--time", help="how long the run may take, such as 60m")
    parser.add_argument("--others", nargs="*", default=[], help="published models to measure, such as minilm mpnet")
    parser.add_argument("--out", type=Path, default=Path("runs/embeddings"))
    chosen = parser.parse_args()
    folder = chosen.out / f"{chosen.model}-{chosen.budget}-{chosen.texts}"
    corpus, texts = write_corpus(folder, chosen.texts)
    original = load_encoder(str(weights(chosen.model)), None)
    unseen = Passages(texts, embed=Embedder(original, LENGTH)).linked(0)
    questions = read_questions(chosen.questions)
    small = compress(
        str(weights(chosen.model)),
        corpus,
        chosen.budget,
        time=chosen.time,
        settings={"compare": ["uniform_k"]},
        out=folder / "run",
    )
    small.report()
    kept = small.result.subnetwork.kept
    models = {
        "original": original,
        f"ProbeScale, {chosen.budget}": load_encoder(str(folder / "run" / "model"), None),
        "the same layers, not trained": keep_layers(original, kept),
        **{name: load_encoder(str(weights(name)), None) for name in chosen.others},
    }
    common = {"model": chosen.model, "budget": chosen.budget, "texts": chosen.texts, "time": chosen.time}
    common |= {"pairs": len(unseen.gold), "questions": len(questions.gold)}
    with (HERE / "embeddings.jsonl").open("a", encoding="utf-8") as file:
        for name, loaded in models.items():
            row = common | measure(name, loaded, unseen, questions)
            print(json.dumps(row))
            file.write(json.dumps(row) + "\n")
    for name, other in small.result.compared.items():
        print(
            f"{name}, trained: spearman {other.value:.4f} on dev of the run; ours {small.result.subnetwork.value:.4f}"
        )


if __name__ == "__main__":
    main()
