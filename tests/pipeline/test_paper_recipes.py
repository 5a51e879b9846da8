"""Recipes of the paper's experiments: they match the paper, fit the real models and run on tiny ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoConfig

from helpers.data import labelled_rows
from probescale.config import RunConfig
from probescale.models.counting import count_from_config
from probescale.models.families import FAMILIES
from probescale.pipeline.run import run
from probescale.pipeline.validate import check
from probescale.tasks.builtin import fill_in
from probescale.utils.yaml_files import parse_section, read_yaml

RECIPES = sorted((Path(__file__).parents[2] / "configs" / "paper").glob("*.yaml"))
LARGE = {"vocab_size": 50265, "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16}
SHAPES = {
    "roberta": AutoConfig.for_model(
        "roberta", **LARGE, num_hidden_layers=24, max_position_embeddings=514, type_vocab_size=1
    ),
    "t5": AutoConfig.for_model("t5", d_model=768, d_ff=3072, num_layers=12, num_heads=12),
}


def test_every_experiment_of_the_tables_has_a_recipe():
    assert [path.stem for path in RECIPES] == [
        f"{model}_{task}" for model in ("roberta_large", "t5_base") for task in ("qnli", "sst2")
    ]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipes_use_the_papers_method_and_the_real_models_counts(path):
    config = parse_section(fill_in(read_yaml(path)), RunConfig)
    assert config.selection.strategy == "contiguous"
    assert not config.recovery.distil
    assert not config.shrink.asked
    assert (config.recovery.epochs, config.compare) == (3, ("top_k", "uniform_k"))
    assert "Expected: about" in path.read_text()
    family = path.stem.partition("_")[0]
    parameters = count_from_config(SHAPES[family], FAMILIES[family])
    share = parameters.ratios(range(1, (config.selection.k or 0) + 1))[0]
    assert round(100 * share) == {"roberta": 36, "t5": 61}[family]
    assert f"{round(100 * share)}%" in path.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.long] if "qnli" in path.stem else []) for path in RECIPES],
)
def test_a_small_twin_runs(path, model_folder, tmp_path):
    raw = fill_in(read_yaml(path))
    family = path.stem.partition("_")[0]
    raw["model"] = {"source": str(model_folder(family)), "max_length": 48}
    raw["selection"]["k"] = 2
    raw["recovery"] |= {"epochs": 1, "learning_rate": 1e-3}
    raw["probing"] = {"penalties": [0.01], "code_length": False}
    raw["task"] |= _data(tmp_path, paired="qnli" in path.stem)
    for probe in raw["task"].get("probes", []):
        if "data" in probe:
            probe["data"] = {"source": str(_tags(tmp_path / "tags.conll")), "text": 1, "label": 2}
    result = run(check(raw), tmp_path / "out")
    assert len(result.subnetwork.kept) == 2
    assert result.subnetwork.kept[1] == result.subnetwork.kept[0] + 1
    assert set(result.compared) == {"top_k", "uniform_k"}
    assert "distilled" not in result.recipe


def _data(folder: Path, *, paired: bool) -> dict[str, object]:
    rows = labelled_rows(240)
    names = {"label": "label", "text": "text", **({"pair": "pair"} if paired else {})}
    for part, some in (("train", rows[:200]), ("dev", rows[200:])):
        lines = ["\t".join(names.values())]
        labels = ("entailment", "not_entailment") if paired else ("negative", "positive")
        for number, (text, label) in enumerate(some):
            right = (label == "positive") ^ (number * number % 7 < 3)  # too hard: scores of layers differ
            cells = [labels[right], text, *([f"it was {label}"] if paired else [])]
            lines.append("\t".join(cells))
        (folder / f"{part}.tsv").write_text("\n".join(lines) + "\n")
    return {part: {"source": str(folder / f"{part}.tsv"), **names} for part in ("train", "dev")}


def _tags(path: Path) -> Path:
    """Tags that depend on the word two places before, so that layers differ."""
    words = [text.split() for text, _ in labelled_rows(60, seed=3)]
    sentences = []
    for sentence in words:
        tags = ["A" if n > 1 and len(sentence[n - 2]) % 2 else "B" for n in range(len(sentence))]
        sentences.append("\n".join(f"{word}\t{tag}" for word, tag in zip(sentence, tags, strict=True)))
    path.write_text("\n\n".join(sentences) + "\n")
    return path
