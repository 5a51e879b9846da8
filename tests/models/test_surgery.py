"""A cut model equals its parent with the other layers skipped, in a fresh process with stock transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from transformers import BertModel, MPNetModel, PreTrainedModel, T5Config, T5ForConditionalGeneration

from conftest import FAMILIES, LAYERS, layers_skipped, tiny_model, tiny_tokenizer
from probescale.errors import UserError
from probescale.models.counting import count_parameters
from probescale.models.families import FAMILIES as DESCRIPTIONS
from probescale.models.family import Family, backbone
from probescale.models.loading import load_as_saved, load_classifier
from probescale.models.surgery import extract, save_model

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
    """Every family cut in every way through the command line, then loaded in one fresh process."""
    from typer.testing import CliRunner

    from probescale.cli import app

    folder = tmp_path_factory.mktemp("cuts")
    folders = {}
    for family in FAMILIES:
        for name, kept in KEPT.items():
            folders[f"{family}/{name}"] = str(folder / f"{family}-{name}")
            keep = ",".join(map(str, kept))
            args = ["extract", str(model_folder(family)), "--keep", keep, "--out", folders[f"{family}/{name}"]]
            done = CliRunner().invoke(app, args)
            assert done.exit_code == 0, done.output
    (folder / "job.json").write_text(json.dumps({"folders": folders, "texts": TEXTS}))
    (folder / "fresh.py").write_text(FRESH)
    command = [sys.executable, str(folder / "fresh.py"), str(folder / "job.json"), str(folder / "out.npz")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(np.load(folder / "out.npz")), folders


@pytest.mark.parametrize("cut", [name for name in KEPT if name != "reordered"])
@pytest.mark.parametrize("family", FAMILIES)
def test_fresh_process_gives_the_parents_logits_with_layers_skipped(fresh_logits, model_folder, family, cut):
    parent = load_as_saved(str(model_folder(family)))
    model = parent.model
    batch = dict(parent.tokenizer(TEXTS, padding=True, return_tensors="pt"))
    expected = logits_with_layers_skipped(model, DESCRIPTIONS[family], batch, KEPT[cut])
    found = fresh_logits[0][f"{family}/{cut}"]
    if cut == "all":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        whole = logits_with_layers_skipped(model, DESCRIPTIONS[family], batch, KEPT["all"])
        assert np.abs(found - whole).max() > 1e-3, "the cut changed nothing: the test would prove nothing"


@pytest.mark.parametrize("family", FAMILIES)
def test_config_and_weights_on_disk_agree(fresh_logits, family):
    for name, kept in KEPT.items():
        folder = Path(fresh_logits[1][f"{family}/{name}"])
        config = json.loads((folder / "config.json").read_text())
        assert config[DESCRIPTIONS[family].layer_count] == len(kept)
        with safe_open(folder / "model.safetensors", "np") as weights:
            on_disk = sum(weights.get_tensor(key).size for key in weights.keys())  # noqa: SIM118 - not a dict
        parent = load_as_saved(str(folder))
        assert count_parameters(parent.model, parent.family).total == on_disk
        record = json.loads((folder / "probescale.json").read_text())
        assert record["kept"] == list(kept)
        assert record["dropped"] == [layer for layer in range(1, LAYERS + 1) if layer not in kept]


def test_t5_position_bias_moves_to_the_new_first_block(model_folder):
    parent = load_as_saved(str(model_folder("t5-encoder")))
    child = extract(parent, (3, 4))
    name = DESCRIPTIONS["t5-encoder"].first_block_only[0]
    old, new = (dict(m.family.layers(m.model)[0].named_parameters())[name] for m in (parent, child))
    assert torch.equal(old, new)
    assert old.abs().sum() > 0


def test_a_bert_without_pooler_is_not_given_one(tmp_path):
    model, tokenizer = tiny_model("bert")
    bare = BertModel(model.config, add_pooling_layer=False)  # type: ignore[arg-type]
    bare.save_pretrained(tmp_path / "bare")
    tokenizer.save_pretrained(tmp_path / "bare")
    child = extract(load_as_saved(str(tmp_path / "bare")), (2, 4))
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
    assert extract(loaded, (1,)).layers == 1


def test_the_encoder_is_taken_out_of_a_whole_t5(tmp_path):
    tokenizer = tiny_tokenizer("t5-encoder")
    config = T5Config(vocab_size=len(tokenizer), d_model=32, d_ff=64, d_kv=8, num_heads=4, num_layers=LAYERS)
    whole = T5ForConditionalGeneration(config).eval()
    whole.save_pretrained(tmp_path / "t5")
    tokenizer.save_pretrained(tmp_path / "t5")
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    as_saved = load_as_saved(str(tmp_path / "t5"))
    classifier = load_classifier(str(tmp_path / "t5"), None, ("no", "yes"), seed=0)
    with torch.no_grad():
        expected = whole.encoder(**batch).last_hidden_state
        assert torch.equal(as_saved.model(**batch).last_hidden_state, expected)
        assert torch.equal(backbone(classifier.model)(**batch).last_hidden_state, expected)
    assert not [name for name, _ in extract(as_saved, (2,)).model.named_parameters() if "decoder" in name]


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


def test_the_parent_stays_as_it_was(model_folder):
    parent = load_as_saved(str(model_folder("bert")))
    before = {name: weight.clone() for name, weight in parent.model.state_dict().items()}
    child = extract(parent, (1, 2))
    with torch.no_grad():
        for parameter in child.model.parameters():
            parameter.add_(1)
    assert all(torch.equal(before[name], weight) for name, weight in parent.model.state_dict().items())
    assert parent.layers == LAYERS


@pytest.mark.parametrize(("kept", "says"), [((), "no layer is kept"), ((0,), "layer 0"), ((2, 9), "layer 9")])
def test_layers_that_do_not_exist_are_refused(model_folder, kept, says):
    with pytest.raises(UserError, match=says):
        extract(load_as_saved(str(model_folder("bert"))), kept)


def test_saving_leaves_folders_of_others_alone(model_folder, tmp_path):
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
    save_model(extract(loaded, (1,)), {}, tmp_path / "cut")
    saved = json.loads((tmp_path / "cut" / "tokenizer.json").read_text())
    assert saved["truncation"] is None
    assert saved["padding"] is None
