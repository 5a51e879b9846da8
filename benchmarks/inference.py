"""How much faster a smaller model is where it runs: cuts in PyTorch, ONNX with 8-bit weights, and `predict`.

    python benchmarks/inference.py cuts         one part: cuts, formats or predict
    python benchmarks/inference.py              everything; a quarter of an hour on two cores that do nothing else
    python benchmarks/inference.py --tables     only docs/results/inference.md's tables, from what is known

Needs $PROBESCALE_REAL (gte-small, SST-2), `make real-weights` (mpnet), and for the 5x model what
benchmarks/compression.py leaves in .cache/compress. All ratios are of one run, passes in turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from pages import write_tables
from real import DATA, ROOT, weights

MEASURED = Path(__file__).with_name("inference.json")
SMALL = ROOT / ".cache" / "compress" / "sst2-gte-small-5x-0-None" / "model"
PARENTS = {"gte-small": weights("gte-small"), "mpnet": weights("mpnet")}
KEPT, PASSES = (2, 4, 6), 12  # of the cuts: the large batches take seconds each
LINES = 1_000_000


def measure_cuts(scratch: Path) -> dict[str, Any]:
    """The first k layers of each: the layers alone decide how fast a cut is."""
    from probescale.deploy.bench import bench
    from probescale.pipeline.cut import cut_to_folder

    found = {}
    for name, parent in PARENTS.items():
        places = [str(parent)]
        for k in KEPT:
            cut_to_folder(str(parent), list(range(1, k + 1)), scratch / f"{name}-{k}")
            places.append(str(scratch / f"{name}-{k}"))
        rows = bench(places, passes=PASSES).rows
        found[name] = [
            {
                "k": KEPT[places.index(row.model) - 1],
                "batch_size": row.batch_size,
                "length": row.length,
                "speedup": round(row.speedup, 2),
            }
            for row in rows
            if row.model != str(parent)
        ]
    return found


def measure_formats(scratch: Path) -> dict[str, Any] | None:
    """The 5x model of benchmarks/compression.py against the original it comes from."""
    from probescale.config import RunConfig
    from probescale.deploy.bench import bench
    from probescale.deploy.evaluation import evaluate_metric
    from probescale.deploy.export import export
    from probescale.deploy.open_model import open_model
    from probescale.tasks.task import load_task

    if not SMALL.exists():
        return None
    places = {"original": str(PARENTS["gte-small"]), "5x": str(SMALL)}
    for name, int8 in (("5x, onnx", False), ("5x, onnx int8", True)):
        export(str(SMALL), scratch / name, int8=int8)
        places[name] = str(scratch / name)
    found = bench(list(places.values()))
    data = {"source": str(DATA / "sst2" / "train.tsv"), "text": "sentence"}
    raw = {"name": "sst2", "train": data, "dev": {**data, "source": str(DATA / "sst2" / "dev.tsv")}}
    model = {"source": places["original"]}
    config = RunConfig.model_validate({"model": model, "task": raw, "selection": {"k": 1}})
    task = load_task(config.task, 0)
    names = {place: name for name, place in places.items()}
    return {
        "rows": [row.model_dump() | {"model": names[row.model]} for row in found.rows],
        "size": {names[place]: size for place, size in found.size.items()},
        "memory": {names[place]: size for place, size in found.memory.items()},
        "accuracy": {
            name: evaluate_metric(open_model(place), task, 128) for name, place in places.items() if name != "original"
        },
    }


def measure_predict(scratch: Path) -> dict[str, Any]:
    """How near it comes to a bare loop, with the 5x model in 8 bits; and its memory over a million lines.

    Those go through a tiny model: what is kept of a line does not hang on the model's size.
    """
    from probescale.deploy.export import export

    export(str(SMALL if SMALL.exists() else PARENTS["gte-small"]), scratch / "int8", int8=True)
    _tiny(scratch / "tiny")
    source = scratch / "lines.txt"
    with source.open("w") as file:
        file.writelines(f"{line}\n" for line in islice(_endless(), LINES))
    words = [sys.executable, "-m", "probescale", "predict", str(scratch / "tiny"), str(source), "--out"]
    began = time.perf_counter()
    with subprocess.Popen([*words, str(scratch / "out.jsonl")]) as process:
        memory = _watched(process)
    assert process.returncode == 0
    seconds = time.perf_counter() - began
    return {"lines": LINES, "seconds": round(seconds, 1), "memory": memory, "share": _share_of_bare(scratch / "int8")}


def _tiny(folder: Path) -> None:
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    tokenizer = AutoTokenizer.from_pretrained(PARENTS["gte-small"])
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _endless() -> Iterator[str]:
    lines = (DATA / "sst2" / "dev.tsv").read_text().splitlines()[1:]
    while True:
        yield from (line.split("\t")[0] for line in lines)


def _watched(process: subprocess.Popen[bytes]) -> list[int]:
    """Megabytes every five seconds."""
    import psutil

    own, found = psutil.Process(process.pid), []
    while process.poll() is None:
        found.append(own.memory_info().rss // 2**20)
        time.sleep(5)
    return found


def _share_of_bare(folder: Path, count: int = 2048, rounds: int = 7) -> float:
    """Of the throughput of the plainest loop: batches of 32 as they come. In turn; the median round counts."""
    from probescale.deploy.open_model import open_model
    from probescale.deploy.predict import predict_lines
    from probescale.deploy.texts import Line

    ready = open_model(str(folder))
    texts = list(islice(_endless(), count))
    lines = [Line(number, text) for number, text in enumerate(texts, 1)]

    def bare() -> None:
        for first in range(0, count, 32):
            batch = ready.tokenizer(texts[first : first + 32], padding=True, truncation=True,
                                    max_length=ready.max_length, return_tensors="np")  # fmt: skip
            ready.run(dict(batch)).argmax(-1)

    def timed(work: Callable[[], object]) -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    ours = lambda: [one.record() for one in predict_lines(ready, lines)]  # noqa: E731
    return round(statistics.median(timed(bare) / timed(ours) for _ in range(rounds)), 3)


def tables() -> str:
    found = json.loads(MEASURED.read_text())
    layers = {"gte-small": 12, "mpnet": 12}
    parts = ["### Layers alone, PyTorch\n\n| model | k | batch | tokens | faster | L/k |\n|" + " --- |" * 6]
    for name, rows in found["cuts"].items():
        parts[-1] += "".join(
            f"\n| {name} | {row['k']} | {row['batch_size']} | {row['length']} | {row['speedup']:.2f}x | "
            f"{layers[name] / row['k']:.1f} |"
            for row in rows
        )
    if formats := found.get("formats"):
        lines = [f"| {row['model']} | {row['batch_size']} | {row['length']} | {row['median']:.2f} | {row['p95']:.2f} | "
                 f"{row['speedup']:.1f}x | {row['per_million']:,.0f} s |" for row in formats["rows"]]  # fmt: skip
        head = "| model | batch | tokens | median ms | p95 | faster | a million texts |\n|" + " --- |" * 7
        parts.append("### The 5x model and its formats\n\n" + head + "\n" + "\n".join(lines))
        sizes = [f"| {name} | {size / 1e6:.1f} MB | {formats['memory'][name] / 1e6:.0f} MB | "
                 f"{100 * formats['accuracy'][name]:.2f} |" if name in formats["accuracy"] else
                 f"| {name} | {size / 1e6:.1f} MB | {formats['memory'][name] / 1e6:.0f} MB | |"
                 for name, size in formats["size"].items()]  # fmt: skip
        parts.append("| model | on disk | memory | accuracy |\n|" + " --- |" * 4 + "\n" + "\n".join(sizes))
    if asked := found.get("predict"):
        settled, most = asked["memory"][2], max(asked["memory"])
        parts.append(
            f"### predict\n\n{asked['share']:.2f} of the throughput of a bare loop over batches of 32 (5x model, "
            f"8 bits). {asked['lines']:,} lines through a tiny model: {asked['lines'] / asked['seconds']:,.0f} a "
            f"second, {settled:,} MB of memory after 10 s, {most:,} MB at most."
        )
    return "\n\n".join(parts)


PARTS = {"cuts": measure_cuts, "formats": measure_formats, "predict": measure_predict}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--tables", action="store_true", help="measure nothing")
    asked = parser.parse_args()
    found = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    for part in [] if asked.tables else asked.parts or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            found[part] = PARTS[part](Path(folder))
        MEASURED.write_text(json.dumps(found, indent=1) + "\n")
    write_tables("results/inference.md", "inference.py", tables())


if __name__ == "__main__":
    main()
