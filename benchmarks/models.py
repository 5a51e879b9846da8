"""Which models can be cut: run every proof and write docs/reference/models.md.

usage: python benchmarks/models.py                 (tiny models of every family; a few minutes)
       python benchmarks/models.py --real          (also real weights; `make real-weights` fetches them first)

Without --real the section on real weights stays as the last run wrote it.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, cast

import torch
from rich.console import Console
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from probescale.models.families import FAMILIES, find_family
from probescale.models.family import Family
from probescale.models.loading import LoadedModel, load_as_saved, quiet_transformers
from probescale.models.proof.comparison import Proof
from probescale.models.rehearsal import RehearsedCut, rehearse
from probescale.models.subsets import format_layers
from probescale.pipeline.cut import cut_to_folder
from probescale.pipeline.provenance import versions
from probescale.probing.flow import measure_flow_of_batches
from probescale.report.table import Table
from probescale.selection.budget import parse_budget
from probescale.selection.constraints import Constraints
from probescale.selection.evidence import Evidence
from probescale.selection.select import select
from real import DATA, ROOT, weights

PAGE = ROOT / "docs" / "reference" / "models.md"
DETECTED = ("bloom", "deberta", "ernie", "eurobert", "falcon", "gpt_neo", "gptj", "mbart", "nomic_bert", "olmo2",
            "pegasus", "phi", "smollm3", "umt5")  # fmt: skip
REAL = {"minilm": "all-MiniLM-L6-v2", "gte-small": "gte-small", "granite": "granite-embedding-30m-english",
        "mpnet": "all-mpnet-base-v2", "t5": "T5 encoder (of a fine-tuned flan-t5-small)",
        "smollm2": "SmolLM2-135M-Instruct, GGUF Q4_1"}  # fmt: skip
WIKITEXT = DATA / "wikitext2_raw" / "wiki.test.raw.gz"
WINDOW, TOKENS = 1024, 32_768
PROMPT = "The city of Paris is known for"
BEGIN = "<!-- from here on written by benchmarks/models.py -->"
MARK = "<!-- real weights: written by benchmarks/models.py --real -->"
console = Console(stderr=True)


def main() -> None:
    introduction, _, old = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    real = real_section() if "--real" in sys.argv else old.partition(MARK)[2].strip()
    text = f"{introduction}{BEGIN}\n\n{families_section()}\n\n{MARK}\n\n{real}\n"
    PAGE.write_text(text, encoding="utf-8")


def families_section() -> str:
    configs = {name: AutoConfig.for_model(name) for name in (*_described(), *DETECTED)}
    rehearsed = rehearse([(config, find_family(config)) for config in configs.values()])
    rows = {name: _row(name, configs[name], cuts) for (name, cuts) in zip(configs, rehearsed, strict=True)}
    header = ("model type", "heads", "cuts proved", "all layers kept", "half precision, shards", "cache", "layer 1")
    described = Table("", header, tuple(rows[name] for name in _described()), words=7)
    detected = Table("", header, tuple(rows[name] for name in DETECTED), words=7)
    failures = [f"- {name}, {cut.head}, {cut.cut}: {cut.outcome}" for name, cuts in zip(configs, rehearsed, strict=True)
                for cut in cuts if not cut.passed]  # fmt: skip
    return "\n\n".join(
        [
            "## Families",
            "Tested with tiny random models, built from each type's config, with every head that transformers has: "
            f"{', '.join(f'`{head}`' for head in ('none', 'sentence', 'token', 'regression', 'lm'))} (regression is "
            "the sentence head with one output; `lm` is a causal, masked or seq2seq language model). Cuts: all "
            "layers, the first, with gaps, the last, reordered, repeated; for an encoder-decoder both stacks.",
            described.markdown(),
            "### Detected families",
            "Model types without a description here. Their layers are detected: the only stack of modules of one class "
            "that is as long as the config says. A notice is printed. These types were tested; others are likely to "
            "work too, and `doctor --prove` tests them.",
            detected.markdown(),
            "Refused: ALBERT and others that share one set of weights between all layers, because there is nothing to "
            "drop; models of images and texts; GPT-2 variants whose attention depends on the layer's number.",
            *(["Not proved:\n\n" + "\n".join(failures)] if failures else []),
            f"Versions: {', '.join(f'{name} {number}' for name, number in versions().items())}.",
        ]
    )


def _described() -> list[str]:
    return [model_type for family in FAMILIES.values() for model_type in family.model_types]


def _row(name: str, config: Any, cuts: list[RehearsedCut]) -> tuple[str, ...]:  # noqa: ANN401 - any config
    family: Family = find_family(config)
    passed = [cut for cut in cuts if isinstance(cut.outcome, Proof)]
    proofs = {(cut.head, cut.cut): cast("Proof", cut.outcome) for cut in passed}
    whole = [proof.to_the_bit for (_, cut), proof in proofs.items() if cut == "all"]
    stored = [cut for _, cut in proofs if "," in cut]
    gaps = [proof.cache_difference for proof in proofs.values() if proof.cache_difference is not None]
    return (
        name,
        ", ".join(dict.fromkeys(cut.head for cut in cuts)),
        f"{len(passed)} of {len(cuts)}",
        "to the bit" if whole and all(whole) else "differs",
        "proved" if len(stored) == 3 else f"{len(stored)} of 3",
        f"within {max(gaps):.0e}" if gaps else "no generation",
        "has to stay" if family.layer_1_stays(config) else "free",
    )


def real_section() -> str:
    rows = [real_row(name) for name in REAL]
    header = ("model", "layers kept", "parameters", "were", "largest difference", "peak memory, cut / load alone")
    return "\n\n".join(
        [
            "## Real weights",
            "Every other layer kept; memory in MB, of the process that cuts and of one that only loads the parent.",
            Table("", header, tuple(rows), words=2).markdown(),
            language_section(),
        ]
    )


def real_row(name: str) -> tuple[str, ...]:
    source = str(weights(name))
    console.print(f"cutting {name}")
    load, _ = in_process("load", source)
    with tempfile.TemporaryDirectory() as scratch:
        cut, record = in_process("cut", source, scratch)
    proof = record["proof"]
    difference = "0 (to the bit)" if proof["to_the_bit"] else f"{proof['largest_difference']:.0e}"
    kept = format_layers(record["kept"])
    return (REAL[name], kept, f"{record['params']:,}", f"{record['params_original']:,}", difference,
            f"{cut:,.0f} / {load:,.0f}")  # fmt: skip


def in_process(what: str, *words: str) -> tuple[float, dict[str, Any]]:
    done = subprocess.run([sys.executable, __file__, what, *words], capture_output=True, text=True, check=True)
    said = json.loads(done.stdout.splitlines()[-1])
    return said["peak"], said["record"]


def work(what: str, source: str, scratch: str = "") -> None:
    """The part that runs in a process of its own, so that its memory can be measured."""
    record = {}
    if what == "load":
        load_as_saved(source, dtype="auto")
    else:
        layers = load_layers(source)
        record = cut_to_folder(source, tuple(range(2, layers + 1, 2)), Path(scratch) / "cut")
    print(json.dumps({"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, "record": record}))


def load_layers(source: str) -> int:
    from probescale.models.architecture import read_architecture

    return read_architecture(source).layers


def language_section() -> str:
    """SmolLM2 from 30 to 20 layers: perplexity before and after, and a text written with the cache."""
    source = str(weights("smollm2"))
    parent = load_as_saved(source)
    tokens = wikitext(parent)
    choices = {
        "all": tuple(range(1, 31)),
        "first 20": tuple(range(1, 21)),
        "every third dropped": tuple(layer for layer in range(1, 31) if layer % 3 != 2),
        "without the 10 of least influence": kept_by("block_influence", parent, tokens, k=20),
        "without the block that turns the state least": kept_by("angular", parent, tokens, k=20),
    }
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, kept in choices.items():
            console.print(f"smollm2: {name}")
            record = cut_to_folder(source, kept, Path(scratch) / name.replace(" ", "-"))
            model, tokenizer = reload(Path(scratch) / name.replace(" ", "-"))
            text = written(model, tokenizer)
            rows.append((name, format_layers(kept), f"{record['params']:,}", f"{perplexity(model, tokens):,.1f}", text))
    header = ("SmolLM2-135M-Instruct", "layers kept", "parameters", "perplexity, WikiText-2", "writes with the cache")
    return "\n\n".join(
        [
            "### A decoder from 30 to 20 layers",
            f"WikiText-2 test (raw), its first {len(tokens):,} tokens in windows of {WINDOW:,}, weights from a 4-bit "
            "GGUF file, no training after the cut: this is where recovery starts. Influence is 1 - cosine of a layer's "
            "input and output (ShortGPT); the block is the 10 neighbouring layers whose input and output have the "
            f'smallest angle. The text goes on from "{PROMPT}".',
            Table("", header, tuple(rows), words=5).markdown(),
        ]
    )


def wikitext(parent: LoadedModel) -> list[int]:
    with gzip.open(WIKITEXT, "rt", encoding="utf-8") as file:
        text = file.read(8 * TOKENS)
    return parent.tokenizer(text)["input_ids"][:TOKENS]


@torch.inference_mode()
def perplexity(model: Any, tokens: list[int]) -> float:  # noqa: ANN401
    total = count = 0
    for start in range(0, len(tokens) - 1, WINDOW):
        window = torch.tensor([tokens[start : start + WINDOW + 1]])
        logits = model(window[:, :-1], use_cache=False).logits[0]
        total += torch.nn.functional.cross_entropy(logits, window[0, 1:], reduction="sum").item()
        count += window.shape[1] - 1
    return math.exp(total / count)


def kept_by(strategy: str, parent: LoadedModel, tokens: list[int], k: int) -> tuple[int, ...]:
    """What a strategy that needs no labels keeps, from the first tokens."""
    ids = torch.tensor([tokens[:WINDOW]])
    turned = measure_flow_of_batches(parent, [{"input_ids": ids, "attention_mask": torch.ones_like(ids)}])
    evidence = Evidence([0.0] * parent.layers, influence=turned.influence, angles=turned.angles)
    return select(evidence, Constraints(parse_budget(k=k)), strategy).kept


def reload(folder: Path) -> tuple[Any, Any]:
    with quiet_transformers():
        return AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def written(model: Any, tokenizer: Any) -> str:  # noqa: ANN401
    batch = tokenizer(PROMPT, return_tensors="pt")
    made = model.generate(**batch, max_new_tokens=20, do_sample=False, use_cache=True)
    text = tokenizer.decode(made[0, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    return re.sub(r"\s+", " ", text).replace("|", "/").strip()


if __name__ == "__main__":
    if sys.argv[1:2] in (["load"], ["cut"]):
        work(*sys.argv[1:])
    else:
        main()
