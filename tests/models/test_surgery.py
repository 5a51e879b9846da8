"""A cut model equals its parent with the dropped layers skipped, in a fresh process with stock transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors import safe_open
from transformers import BertConfig, BertModel, MPNetModel, PreTrainedModel, T5Config, T5ForConditionalGeneration

from helpers.models import FAMILIES, LAYERS, layers_skipped, tiny_model, tiny_tokenizer
from probescale.errors import UserError
from probescale.models.counting import count_parameters
from probescale.models.families import FAMILIES as DESCRIPTIONS
from probescale.models.family import Family, backbone
from probescale.models.loading import load_as_saved, load_classifier
from probescale.models.saving import save_model, write_model
from probescale.models.surgery import keep_layers
from probescale.pipeline.cut import cut_to_folder

KEPT = {"head": (1, 2), "middle": (2, 3), "tail": (4,), "gaps": (1, 4), "all": (1, 2, 3, 4), "reordered": (3, 1, 1)}
TEXTS = ["the film was good and the plot dull", "a warm story", "unbelievably tedious !"]

FRESH = """
import json, sys
import numpy as np, torch
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer
job = json.load(open(sys.argv[1]))
out = {}
for name, folder in job["folders"].items():
    auto = AutoModelForTokenClassification if name.startswith("t5") else AutoModelForSequenceClassification
    model, info = auto.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], (name, info)
    batch = AutoTokenizer.from_pretrained(folder)(job["texts"], padding=True, return_tensors="pt")
    with torch.no_grad():
        out[name] = model.eval()(**batch).logits.numpy()
assert "probescale" not in sys.modules
np.savez(sys.argv[2], **out)
"""


def logits_with_layers_skipped(model: PreTrainedModel, family: Family, batch: dict, kept: tuple[int, ...]):
    with torch.no_grad(), layers_skipped(model, family, kept):
        return model(**batch).logits.numpy()


@pytest.fixture(scope="module")
def fresh_logits(model_folder, tmp_path_factory):
    """Cuts of four families, loaded in one fresh process by a program that shares no code with our own proof."""
    folder = tmp_path_factory.mktemp("cuts")
    folders = {}
    for family in FAMILIES:
        parent = load_as_saved(str(model_folder(family)))
        for name, kept in KEPT.items():
            folders[f"{family}/{name}"] = str(folder / f"{family}-{name}")
            write_model(keep_layers(parent, kept), Path(folders[f"{family}/{name}"]))
    (folder / "job.json").write_text(json.dumps({"folders": folders, "texts": TEXTS}))
    (folder / "fresh.py").write_text(FRESH)
    command = [sys.executable, str(folder / "fresh.py"), str(folder / "job.json"), str(folder / "out.npz")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(np.load(folder / "out.npz")), folders


@pytest.mark.slow
@pytest.mark.parametrize("cut", [name for name in KEPT if name != "reordered"])
@pytest.mark.parametrize("family", FAMILIES)
def test_fresh_process_gives_the_parents_logits_with_layers_skipped(fresh_logits, model_folder, family, cut):
    parent = load_as_saved(str(model_folder(family)))
    model = parent.model
    batch = dict(parent.tokenizer(TEXTS, padding=True, return_tensors="pt"))
    expected = logits_with_layers_skipped(model, DESCRIPTIONS[family], batch, KEPT[cut])
    logits = fresh_logits[0][f"{family}/{cut}"]
    if cut == "all":
        np.testing.assert_array_equal(logits, expected)
    else:
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
        full = logits_with_layers_skipped(model, DESCRIPTIONS[family], batch, KEPT["all"])
        assert np.abs(logits - full).max() > 1e-3, "the cut changed nothing: the test would prove nothing"


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_config_and_weights_on_disk_agree(fresh_logits, family):
    for name, kept in KEPT.items():
        folder = Path(fresh_logits[1][f"{family}/{name}"])
        config = json.loads((folder / "config.json").read_text())
        assert config.get("num_hidden_layers", config.get("num_layers")) == len(kept)
        with safe_open(folder / "model.safetensors", "np") as weights:
            on_disk = sum(weights.get_tensor(key).size for key in weights.keys())  # noqa: SIM118 - not a dict
        parent = load_as_saved(str(folder))
        assert count_parameters(parent.model, parent.family).total == on_disk


def test_t5_position_bias_moves_to_the_new_first_block(model_folder):
    parent = load_as_saved(str(model_folder("t5")))
    child = keep_layers(parent, (3, 4))
    name = DESCRIPTIONS["t5"].stack.first_block_only[0]
    old, new = (dict(m.family.layers(m.model)[0].named_parameters())[name] for m in (parent, child))
    assert torch.equal(old, new)
    assert old.abs().sum() > 0


def test_a_bert_without_pooler_stays_without(tmp_path):
    model, tokenizer = tiny_model("bert")
    bare = BertModel(model.config, add_pooling_layer=False)  # type: ignore[arg-type]
    bare.save_pretrained(tmp_path / "bare")
    tokenizer.save_pretrained(tmp_path / "bare")
    child = keep_layers(load_as_saved(str(tmp_path / "bare")), (2, 4))
    assert not [name for name, _ in child.model.named_parameters() if "pooler" in name]


def test_a_config_that_names_a_head_the_checkpoint_lacks(tmp_path):
    """all-mpnet-base-v2 says MPNetForMaskedLM and has no language modelling head."""
    model, tokenizer = tiny_model("mpnet")
    bare = MPNetModel(model.config)  # type: ignore[arg-type]
    bare.save_pretrained(tmp_path / "mpnet")
    tokenizer.save_pretrained(tmp_path / "mpnet")
    config = json.loads((tmp_path / "mpnet" / "config.json").read_text())
    (tmp_path / "mpnet" / "config.json").write_text(json.dumps(config | {"architectures": ["MPNetForMaskedLM"]}))
    loaded = load_as_saved(str(tmp_path / "mpnet"))
    assert type(loaded.model) is MPNetModel
    assert keep_layers(loaded, (1,)).layers == 1


@pytest.fixture(scope="module")
def full_t5(tmp_path_factory):
    """An encoder-decoder whose language modelling head is not tied to its embeddings, as in FLAN-T5."""
    folder = tmp_path_factory.mktemp("t5")
    tokenizer = tiny_tokenizer("t5")
    config = T5Config(
        vocab_size=len(tokenizer), d_model=32, d_ff=64, d_kv=8, num_heads=4, num_layers=LAYERS, num_decoder_layers=3,
    )  # fmt: skip
    config.decoder_start_token_id = 0
    full = T5ForConditionalGeneration(config).eval()
    full.lm_head.weight = torch.nn.Parameter(torch.randn_like(full.lm_head.weight))
    full.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, full


def test_the_encoder_of_a_t5_is_loaded_alone(full_t5):
    folder, full = full_t5
    batch = tiny_tokenizer("t5")(TEXTS, padding=True, return_tensors="pt")
    as_saved = load_as_saved(str(folder), encoder_only=True)
    classifier = load_classifier(str(folder), None, ("no", "yes"), seed=0)
    with torch.no_grad():
        expected = full.encoder(**batch).last_hidden_state
        assert torch.equal(as_saved.model(**batch).last_hidden_state, expected)
        assert torch.equal(backbone(classifier.model)(**batch).last_hidden_state, expected)
    assert not [name for name, _ in keep_layers(as_saved, (2,)).model.named_parameters() if "decoder" in name]


@pytest.mark.slow
def test_encoder_and_decoder_are_cut_separately(cli, full_t5, tmp_path):
    folder, full = full_t5
    found = cli("extract", folder, "--keep", "1,4", "--keep-decoder", "1-3", "--out", tmp_path / "cut")
    assert found.code == 0, found.err
    assert "decoder: kept 1-3, dropped none" in found.out
    record = json.loads((tmp_path / "cut" / "probescale.json").read_text())
    assert (record["kept"], record["kept_decoder"]) == ([1, 4], [1, 2, 3])
    assert record["proof"]["cache_difference"] < 1e-4  # more decoder than encoder layers, with the cache
    again = T5ForConditionalGeneration.from_pretrained(tmp_path / "cut")
    assert torch.equal(again.lm_head.weight, full.lm_head.weight)
    assert not torch.equal(again.lm_head.weight, again.shared.weight)


def test_decoder_layers_that_do_not_exist(cli, model_folder, full_t5, tmp_path):
    bert = cli("extract", model_folder("bert"), "--keep", "1", "--keep-decoder", "1", "--out", tmp_path / "a")
    both = cli("extract", full_t5[0], "--keep", "1", "--keep-decoder", "1", "--encoder-only", "--out", tmp_path / "a")
    many = cli("extract", full_t5[0], "--keep", "1", "--keep-decoder", "4", "--out", tmp_path / "a")
    assert [found.code for found in (bert, both, many)] == [2, 2, 2]
    assert "no separate decoder" in bert.err
    assert "--keep-decoder: layer 4 does not exist" in many.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "c")], ids=["as many labels", "more labels"])
def test_the_checkpoints_head_is_replaced_and_the_seed_decides_the_new_one(model_folder, names):
    first, again, other = (
        load_classifier(str(model_folder("roberta")), None, names, seed=seed).model.state_dict() for seed in (0, 0, 1)
    )
    head = "classifier.out_proj.weight"
    assert first[head].shape[0] == len(names)
    saved = load_as_saved(str(model_folder("roberta"))).model.state_dict()
    assert not torch.equal(first["classifier.dense.weight"], saved["classifier.dense.weight"])
    assert torch.equal(first[head], again[head])
    assert not torch.equal(first[head], other[head])
    body = "roberta.encoder.layer.0.output.dense.weight"
    assert torch.equal(first[body], other[body])


def test_the_parent_is_not_changed(model_folder):
    parent = load_as_saved(str(model_folder("bert")))
    before = {name: weight.clone() for name, weight in parent.model.state_dict().items()}
    child = keep_layers(parent, (1, 2))
    with torch.no_grad():
        for parameter in child.model.parameters():
            parameter.add_(1)
    assert all(torch.equal(before[name], weight) for name, weight in parent.model.state_dict().items())
    assert parent.layers == LAYERS


@pytest.mark.parametrize(("kept", "says"), [((), "no layer is kept"), ((0,), "layer 0"), ((2, 9), "layer 9")])
def test_layers_that_do_not_exist_are_refused(model_folder, kept, says):
    with pytest.raises(UserError, match=says):
        keep_layers(load_as_saved(str(model_folder("bert"))), kept)


def test_saving_does_not_replace_a_foreign_folder(model_folder, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("mine")
    loaded = load_as_saved(str(model_folder("bert")))
    for overwrite in (False, True):
        with pytest.raises(UserError, match=r"already exists|left alone"):
            save_model(loaded, {}, tmp_path / "precious", overwrite=overwrite)
    assert [p.name for p in (tmp_path / "precious").iterdir()] == ["thesis.tex"]


def test_the_saved_tokenizer_does_not_remember_the_training_length(model_folder, tmp_path):
    loaded = load_as_saved(str(model_folder("bert")))
    loaded.tokenizer(["good film"] * 2, truncation=True, max_length=8, padding=True)
    write_model(keep_layers(loaded, (1,)), tmp_path / "cut")
    saved = json.loads((tmp_path / "cut" / "tokenizer.json").read_text())
    assert saved["truncation"] is None
    assert saved["padding"] is None


def heads_without_description() -> dict[str, PreTrainedModel]:
    """Models that are known by no description, each with a peculiarity of its own."""
    size: dict[str, Any] = {"vocab_size": 80, "pad_token_id": 0}
    marian = transformers.MarianConfig(
        **size, d_model=32, encoder_layers=4, decoder_layers=2, encoder_ffn_dim=64, decoder_ffn_dim=64, eos_token_id=3,
        encoder_attention_heads=4, decoder_attention_heads=4, decoder_start_token_id=0, max_position_embeddings=64,
        forced_eos_token_id=3,
    )  # fmt: skip
    xlnet = transformers.XLNetConfig(**size, d_model=32, n_layer=4, n_head=4, d_inner=64)
    return {
        "positions that are computed, not saved": transformers.MarianMTModel(marian),
        "no longest input": transformers.XLNetForSequenceClassification(xlnet),
    }


@pytest.mark.parametrize("name", heads_without_description())
def test_heads_of_other_architectures_are_cut_without_a_tokenizer(name, tmp_path):
    model = heads_without_description()[name]
    model.save_pretrained(tmp_path / "whole")
    record = cut_to_folder(str(tmp_path / "whole"), (1, 3), tmp_path / "cut")
    assert record["class"] == type(model).__name__
    assert record["proof"]["to_the_bit"]
    assert record["provenance"]["tokenizer_sha256"] is None
    cut = type(model).from_pretrained(tmp_path / "cut")
    assert sum(weight.numel() for weight in cut.parameters()) == record["params"] < record["params_original"]


def test_a_model_without_a_tokenizer_reads_no_texts(cli, tmp_path):
    BertModel(
        BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    ).save_pretrained(tmp_path / "model")
    (tmp_path / "texts.txt").write_text("a text\n")
    done = cli("predict", tmp_path / "model", tmp_path / "texts.txt")
    assert done.code == 2
    assert "has no usable tokenizer" in done.err
    assert "save the model's own tokenizer" in done.err
