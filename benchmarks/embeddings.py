"""How much of an embedding model is kept: sentences of WikiText-2 and SST-2 without labels, searched with QNLI.

    python benchmarks/embeddings.py                             every row that is not measured yet
    python benchmarks/embeddings.py gte-small --budget 5x 2x    some of them
    python benchmarks/embeddings.py --tables                    only the table of docs/results/embeddings.md

Per model and budget: the original, `compress` with nothing but texts, the same cut without training, evenly spaced
layers of the same size with the same training, and the int8 ONNX file. Beside them, published models as they are. All
are measured on texts that none has learned from: the rank correlation of 10,000 similarities with the original's, and
recall@10 of QNLI's dev questions among all of its dev sentences. Needs $PROBESCALE_REAL and `make real-weights`. It can
be stopped at any time: runs resume, and embeddings.jsonl has a line for every row that is measured.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from embedding_data import read_questions, write_corpus
from pages import write_tables
from probescale.config import RunConfig
from probescale.deploy.evaluation import predict_dataset
from probescale.deploy.export import export
from probescale.deploy.open_model import open_model
from probescale.models.counting import measure_megabytes
from probescale.models.loading import LoadedModel, load_encoder
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.pipeline.compress import Request, build_config
from probescale.pipeline.prepare import prepare
from probescale.pipeline.run import prepare_shared, run
from probescale.pipeline.training import Training
from probescale.pipeline.validate import check
from probescale.recovery.embedder import Embedder
from probescale.recovery.predict import predict
from probescale.recovery.result import RunResult
from probescale.tasks.metrics import METRICS
from probescale.tasks.passages import Passages
from probescale.utils.yaml_files import read_yaml
from real import ROOT, weights

MEASURED = Path(__file__).with_name("embeddings.jsonl")
BUDGETS = {"gte-small": ("5x", "2x"), "minilm": ("2x",), "mpnet": ("5x",)}
PUBLISHED = ("minilm", "mpnet")  # measured as they are, beside the first model
LENGTH = 128  # tokens
ORIGINAL, SMALL, UNTRAINED = "original", "ProbeScale", "the same cut, not trained"
UNIFORM, INT8 = "evenly spaced layers, trained", "ProbeScale, int8 ONNX"
KEY = ("model", "budget", "texts", "rows", "time", "settings", "name")

Answer = Callable[[Passages], np.ndarray]  # pairs -> (pairs,) similarities or ranks


class Unseen(NamedTuple):
    """What no model has learned from."""

    pairs: Passages  # to compare similarities with the original's
    questions: Passages


class Comparison:
    """All rows of one model and budget, each of them measured once."""

    def __init__(self, asked: argparse.Namespace, model: str, budget: str) -> None:
        self.model, self.budget, self.asked = model, budget, asked
        described = (Path(model).name, asked.texts, *([asked.time] if asked.time else []), *asked.set)
        self.folder = asked.out / "-".join(map(str, described))
        self.common = {"model": Path(model).name, "texts": asked.texts, "rows": asked.questions, "time": asked.time}
        self.common["settings"] = asked.set
        self.corpus, self.unseen = write_corpus(self.folder, asked.texts)
        self.source = model if Path(model).is_dir() else str(weights(model))

    def measure(self) -> None:
        """Measure what is missing, one row after the other, and write each of them down at once."""
        if all(self._find(name, budget) for name, budget in self._names()):
            return
        original = load_encoder(self.source, None)
        texts = tuple(self.unseen.read_text(encoding="utf-8").splitlines())
        unseen = Unseen(
            Passages(texts, embed=Embedder(original, LENGTH)).linked(0), read_questions(self.asked.questions)
        )
        for name, budget in self._names():
            if self._find(name, budget):
                continue
            answer, facts = self._open(name, original)
            row = {**self.common, "budget": budget, "name": name, **facts, **_score(answer, unseen)}
            with MEASURED.open("a", encoding="utf-8") as lines:
                print(json.dumps(row), file=lines)
            print(json.dumps(row), flush=True)

    def _names(self) -> Iterator[tuple[str, str | None]]:
        """The rows, with the budget of those that have one."""
        yield ORIGINAL, None
        yield from ((name, None) for name in self.asked.published if self.model == self.asked.models[0])
        yield from ((name, self.budget) for name in (SMALL, UNTRAINED, INT8, UNIFORM))

    def _find(self, name: str, budget: str | None) -> bool:
        wanted = {**self.common, "budget": budget, "name": name}
        return any(all(row[key] == wanted[key] for key in KEY) for row in known())

    def _open(self, name: str, original: LoadedModel) -> tuple[Answer, dict[str, Any]]:
        """The model of a row, ready to answer, and its size."""
        if name == ORIGINAL:
            return _use(original)
        if name in self.asked.published:
            return _use(load_encoder(str(weights(name)), None))
        small = self._run(SMALL, self.config())
        record = json.loads((small / "model" / "probescale.json").read_text(encoding="utf-8"))
        shrink = ShrinkPlan(**record.get("shrink", {}))
        result = RunResult.load(small / "metrics.json")
        if name == SMALL:
            return _use(load_encoder(str(small / "model"), None), result)
        settled = self._settle(small, shrink, len(result.subnetwork.kept))
        if name == UNTRAINED:
            return _use(Training(prepare(settled), small, shrink).cut(result.subnetwork.kept))
        if name == INT8:
            return self._quantize(small)
        uniform = self._run(UNIFORM, settled)
        return _use(load_encoder(str(uniform / "model"), None), RunResult.load(uniform / "metrics.json"))

    def config(self, budget: str | None = None) -> RunConfig:
        """What `probescale compress` makes of the model and the texts."""
        settings = {"time": self.asked.time, "model.max_length": LENGTH}
        request = Request(self.source, str(self.corpus), str(self.unseen), budget=budget or self.budget)
        return build_config(
            request, self.folder / "inputs", [*(f"{k}={v}" for k, v in settings.items() if v), *self.asked.set]
        )[0]

    def _settle(self, small: Path, shrink: ShrinkPlan, layers: int) -> RunConfig:
        """The finished run's recipe and sizes for evenly spaced layers."""
        raw = dict(read_yaml(small / "config.yaml"))
        raw["selection"] = {**raw["selection"], "strategy": "uniform_k", "k": layers}
        full = {"vocabulary": "all", "rank": "full", "units": "all"}
        raw["shrink"] = full | shrink.model_dump(exclude_none=True)
        return check(raw)

    def _run(self, name: str, config: RunConfig) -> Path:
        """The folder of a finished run; one that was begun resumes.

        Probes and the original's answers are shared, but not where a run has a time limit, which counts all of them.
        """
        out = self.folder / f"{self.budget}-{name.split()[0]}"
        shared = None if self.asked.time else self._prepare_shared()
        if not (out / "metrics.json").exists():
            run(config, out, shared=shared)
        return out

    def _prepare_shared(self) -> Path:
        shared = self.folder / "shared"
        if not (shared / "ready").exists():
            budgets = {*self.asked.budgets(self.model), self.budget}
            prepare_shared([self.config(budget) for budget in sorted(budgets)], shared)
            (shared / "ready").touch()
        return shared

    def _quantize(self, small: Path) -> tuple[Answer, dict[str, Any]]:
        out = self.folder / f"{self.budget}-int8"
        if not (out / "probescale.json").exists():
            export(str(small), out, int8=True, tolerance=1.0)
        model, size = open_model(str(out)), sum(file.stat().st_size for file in out.glob("*.onnx*"))
        return lambda pairs: predict_dataset(model, pairs, LENGTH), {"megabytes": round(size / 1e6, 1)}


def _use(loaded: LoadedModel, result: RunResult | None = None) -> tuple[Answer, dict[str, Any]]:
    facts: dict[str, Any] = {"params": sum(parameter.numel() for parameter in loaded.model.parameters())}
    facts["megabytes"] = round(measure_megabytes(loaded.model), 1)
    if result:
        facts |= {"kept": result.subnetwork.kept, "recipe": result.recipe, "failure": result.failure}
        facts["training_seconds"] = round(result.subnetwork.seconds)
    return lambda pairs: predict(loaded, pairs, max_length=LENGTH), facts


def _score(answer: Answer, unseen: Unseen) -> dict[str, Any]:
    started, questions = time.perf_counter(), unseen.questions
    ranks = answer(questions)
    took = time.perf_counter() - started
    near = answer(unseen.pairs)
    return {
        "spearman": round(METRICS["spearman"](unseen.pairs.gold, near), 4),
        "recall_at_10": round(METRICS["recall_at_10"](questions.gold, ranks), 4),
        "ndcg_at_10": round(METRICS["ndcg_at_10"](questions.gold, ranks), 4),
        "pairs": len(near),
        "questions": len(ranks),
        "searched": len(questions.passages),
        "texts_per_second": round(len(questions) / took, 1),
    }


def known() -> list[dict[str, Any]]:
    return [json.loads(line) for line in MEASURED.read_text().splitlines()] if MEASURED.exists() else []


def table() -> str:
    """Every row, with the share of its original's recall."""
    originals = {(row["model"], row["texts"], row["rows"]): row for row in known() if row["name"] == ORIGINAL}
    heads = ("made small", "budget", "model", "parameters", "MB", "similarities", "recall@10", "of the original's")
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for row in known():
        original = originals[row["model"], row["texts"], row["rows"]]
        budget = " ".join(part for part in (row["budget"], row["time"] and f"--time {row['time']}") if part) or "-"
        params = f"{row['params'] / 1e6:.1f}M" if "params" in row else "-"
        kept = f"{row['recall_at_10'] / original['recall_at_10']:.1%}"
        cells = (row["model"], budget, row["name"], params, str(row["megabytes"]), f"{row['spearman']:.3f}",
                 f"{row['recall_at_10']:.3f}", kept)  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(BUDGETS), help="names of real weights, or folders")
    parser.add_argument("--budget", nargs="*", help="by default 5x and 2x of gte-small, and one of each other model")
    parser.add_argument("--texts", type=int, default=50_000)
    parser.add_argument("--questions", type=int, help="rows of QNLI; by default all")
    parser.add_argument("--time", help="how long a run may take, such as 60m")
    parser.add_argument("--set", nargs="*", default=[], help="settings of the runs, such as recovery.epochs=4")
    parser.add_argument("--published", nargs="*", default=list(PUBLISHED), help="models to measure as they are")
    parser.add_argument("--out", type=Path, default=ROOT / ".cache" / "embeddings", help="folder for the runs")
    parser.add_argument("--tables", action="store_true", help="train nothing")
    asked = parser.parse_args()
    asked.budgets = lambda model: asked.budget or BUDGETS.get(model, ("5x",))
    for model in asked.models if not asked.tables else ():
        for budget in asked.budgets(model):
            Comparison(asked, model, budget).measure()
    write_tables("results/embeddings.md", "embeddings.py", table())
    print(table())


if __name__ == "__main__":
    main()
