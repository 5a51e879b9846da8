"""Generative models: what taking out layers costs, and what healing brings back. Writes docs/results/generative.md.

usage: python benchmarks/generative.py order MODEL          (the order of removals, by text of WikiText-2 train)
       python benchmarks/generative.py cut MODEL K          (perplexity of K layers without training)
       python benchmarks/generative.py heal MODEL K TOKENS  (the same after learning from so many tokens)
       python benchmarks/generative.py plain MODEL K TOKENS (the same from the text alone; K may be all layers)
       python benchmarks/generative.py lora MODEL K TOKENS  (as heal, with adapters instead of the weights)
       python benchmarks/generative.py page

Every finished step is a row of generative.jsonl and is not repeated. An interrupted step resumes with the same command.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import time
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from models import TOKENS, WINDOW, perplexity, wikitext
from probescale.models.fast_float32 import fast_float32
from probescale.models.loading import LoadedModel, load_classifier
from probescale.models.subsets import format_layers
from probescale.models.surgery import keep_layers
from probescale.probing.removals import CalibrationBatch, measure_removals
from probescale.probing.scores import Removals
from probescale.recovery.automatic import RATE_OF_ADAPTERS
from probescale.recovery.fine_tuning import fine_tune
from probescale.recovery.recipe import Recipe
from probescale.recovery.teacher import record_teacher_tokens
from probescale.report.table import Table
from probescale.tasks.documents import Documents, split_passages
from real import DATA, ROOT, weights

ROWS, PAGE, WORK = (
    ROOT / "benchmarks" / "generative.jsonl",
    ROOT / "docs/results/generative.md",
    ROOT / ".cache/generative",
)
WIKITEXT_TRAIN = DATA / "wikitext2_raw" / "wiki.train.raw.gz"
EWT = DATA / "ud_english_ewt" / "en_ewt-ud-test.conllu.gz"
BLOCK, BLOCKS, PER_BATCH = 256, 8, 2  # of the calibration text
EWT_TOKENS = 8192
FEWEST = 20  # layers at which the order ends
RECIPE = Recipe(epochs=1, learning_rate=4e-4, batch_size=4, dropout=0.0, soft=0.5, temperature=1.0)
LEARNED_FROM = {  # by step
    "cut": "nothing",
    "heal": "the text and the original",
    "plain": "the text",
    "lora": "the text and the original, by adapters",
}
BEGIN = "<!-- from here on written by benchmarks/generative.py -->"


def main() -> None:
    step, *arguments = sys.argv[1:] or ["help"]
    steps = {
        "order": measure_order,
        "cut": measure_cut,
        "heal": measure_healed,
        "plain": measure_plain,
        "lora": measure_adapters,
        "page": write_page,
    }
    if step not in steps:
        sys.exit(__doc__)
    with fast_float32():
        steps[step](*arguments)


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def add(**row: object) -> None:
    with ROWS.open("a") as file:
        file.write(json.dumps(row) + "\n")


def load(model: str) -> LoadedModel:
    return load_classifier(str(weights(model)), None, (), 0, head="lm", keep_head=True)


def train_text(characters: int) -> str:
    with gzip.open(WIKITEXT_TRAIN, "rt", encoding="utf-8") as file:
        return file.read(characters)


def measure_order(model: str) -> None:
    """Take layers out one after another, by the loss on blocks from the beginning of WikiText-2 train."""
    path, started = WORK / f"{model}.order.json", time.time()
    WORK.mkdir(parents=True, exist_ok=True)
    loaded = load(model)
    ids = loaded.tokenizer(train_text(8 * BLOCK * BLOCKS))["input_ids"]
    apart = len(ids) // BLOCKS
    blocks = torch.tensor([ids[number * apart : number * apart + BLOCK + 1] for number in range(BLOCKS)])
    found = measure_removals(
        loaded,
        [_calibration(part) for part in blocks.split(PER_BATCH)],
        enough=lambda kept: len(kept) <= FEWEST,
        so_far=Removals.load(path) if path.exists() else None,
        save=lambda removals: removals.save(path),
    )
    add(step="order", model=model, seconds=round(time.time() - started), **found.model_dump(mode="json"))


def _calibration(blocks: Tensor) -> CalibrationBatch:
    places = torch.arange(1, BLOCK, 2)
    fields = {"input_ids": blocks[:, :-1], "attention_mask": torch.ones_like(blocks[:, :-1]), "logits_to_keep": places}
    return CalibrationBatch(fields, partial(_sum_losses, blocks[:, 1:][:, places]))


def _sum_losses(targets: Tensor, logits: Tensor) -> tuple[float, int]:
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
    return loss.item(), targets.numel()


def find_kept(model: str, k: str) -> tuple[int, ...]:
    order = next(row for row in rows() if row["step"] == "order" and row["model"] == model)
    layers = load(model).layers
    return tuple(layer for layer in range(1, layers + 1) if layer not in order["order"][: layers - int(k)])


def evaluate(loaded: LoadedModel) -> dict[str, float]:
    """Perplexity on WikiText-2 test, and on text that has nothing to do with it."""
    with gzip.open(EWT, "rt", encoding="utf-8") as file:
        sentences = "\n".join(re.findall(r"^# text = (.*)$", file.read(), re.MULTILINE))
    other = loaded.tokenizer(sentences)["input_ids"][:EWT_TOKENS]
    loaded.model.eval()
    return {"wikitext": perplexity(loaded.model, wikitext(loaded)), "ewt": perplexity(loaded.model, other)}


def measure_cut(model: str, k: str) -> None:
    kept = find_kept(model, k)
    add(step="cut", model=model, kept=kept, **evaluate(keep_layers(load(model), kept)))


def measure_healed(model: str, k: str, tokens: str) -> None:
    """Learn from the text and from the original's likeliest tokens."""
    _heal("heal", model, k, tokens)


def measure_plain(model: str, k: str, tokens: str) -> None:
    """Learn as much from the text alone: what the original's answers bring, and what the text brings the full model."""
    _heal("plain", model, k, tokens)


def measure_adapters(model: str, k: str, tokens: str) -> None:
    """Learn as with `heal`, but small matrices beside the weights, at five times the rate."""
    _heal("lora", model, k, tokens)


def _heal(step: str, model: str, k: str, tokens: str) -> None:
    started, loaded, kept = time.time(), load(model), find_kept(model, k)
    train = Documents(tuple(split_passages(train_text(8 * int(tokens)))), whole=False)
    work, blocks = WORK / f"{model}.{k}.{tokens}", int(tokens) // BLOCK
    teacher = None
    if step != "plain":
        teacher = record_teacher_tokens(
            loaded, train, work / "answers", growing=work / "growing", texts=blocks, max_length=BLOCK
        )
    cut = keep_layers(loaded, kept)
    recipe = replace(RECIPE, texts=blocks)
    if step == "lora":
        recipe = replace(recipe, adapters="lora", learning_rate=RATE_OF_ADAPTERS * recipe.learning_rate)
    checkpoints = work / f"checkpoints of {step}"
    fine_tune(cut, train, recipe, teacher=teacher, max_length=BLOCK, title="healing", checkpoints=checkpoints)
    minutes = round((time.time() - started) / 60)
    add(step=step, model=model, kept=kept, tokens=blocks * BLOCK, minutes=minutes, **evaluate(cut))


def write_page() -> None:
    introduction = PAGE.read_text(encoding="utf-8").partition(BEGIN)[0] if PAGE.exists() else ""
    PAGE.write_text(f"{introduction}{BEGIN}\n\n{_orders()}\n\n{_perplexities()}".rstrip() + "\n", encoding="utf-8")


def _orders() -> str:
    parts = []
    for row in rows():
        if row["step"] == "order":
            lines = [("none", f"{row['before']:.3f}")]
            lines += [(str(layer), f"{loss:.3f}") for layer, loss in zip(row["order"], row["losses"], strict=True)]
            table = Table("", ("taken out, one after another", "loss on the calibration text, nats"), tuple(lines))
            parts += [
                f"## The order in which drop_loss takes layers out: {row['model']}",
                f"{BLOCKS * BLOCK:,} tokens of WikiText-2 train in blocks of {BLOCK}, half of them predicted: "
                f"{row['passes']:.0f} passes of this text through the model.",
                table.markdown(),
            ]
    return "\n\n".join(parts)


def _perplexities() -> str:
    found = [row for row in rows() if row["step"] in LEARNED_FROM]
    if not found:
        return ""
    lines = [
        (
            row["model"],
            format_layers(row["kept"]),
            LEARNED_FROM[row["step"]],
            f"{row.get('tokens', 0):,}",
            f"{row['wikitext']:.1f}",
            f"{row['ewt']:.1f}",
        )
        for row in found
    ]
    header = ("model", "layers kept", "learned from", "tokens of healing", "WikiText-2", "UD EWT")
    about = (
        f"Perplexity on the first {TOKENS:,} tokens of WikiText-2 test in windows of {WINDOW:,}, and on the first "
        f"{EWT_TOKENS:,} tokens of the test part of UD English EWT, on which nothing was trained."
    )
    return "\n\n".join(["## Perplexity", about, Table("", header, tuple(lines)).markdown()])


if __name__ == "__main__":
    main()
