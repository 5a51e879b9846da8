"""A proof finds faults: each is put into a saved folder and must be reported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel

from helpers.models import LAYERS
from probescale.errors import ProofFailed, UserError
from probescale.models import saving, surgery
from probescale.models.families import FAMILIES
from probescale.models.loading import load_as_saved
from probescale.models.proof.comparison import Proof, compare_in_memory, prepare_proof, prove_folders
from probescale.models.proof.reference import compute_layer_reference
from probescale.models.proof.twin import build_twin, build_twin_tokenizer
from probescale.models.saving import save_model, write_model
from probescale.models.surgery import keep_layers
from probescale.pipeline.cut import cut_to_folder


def change_json(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def change_weights(folder, change):
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def one_layer_more(folder):
    change_json(folder / "config.json", num_hidden_layers=3)


def one_layer_less(folder):
    change_json(folder / "config.json", num_hidden_layers=1)


def another_order(folder):
    def swap(weights):
        for name in [name for name in weights if ".layer.0." in name]:
            other = name.replace(".layer.0.", ".layer.1.")
            weights[name], weights[other] = weights[other], weights[name]

    change_weights(folder, swap)


def a_little_noise(folder):
    def add(weights):
        weights["encoder.layer.1.output.dense.weight"][0, 0] += 0.01

    change_weights(folder, add)


def a_weight_lost(folder):
    change_weights(folder, lambda weights: weights.pop("encoder.layer.1.output.dense.bias"))


def a_weight_too_many(folder):
    change_weights(folder, lambda weights: weights.update({"encoder.layer.7.output.dense.bias": torch.zeros(32)}))


def another_setting(folder):
    change_json(folder / "config.json", layer_norm_eps=1e-3)


def no_weights(folder):
    (folder / "model.safetensors").write_bytes(b"not safetensors")


def nothing(folder):
    pass


FAULTS = {
    one_layer_more: "missing keys",
    one_layer_less: "unexpected keys|layers instead of",
    another_order: "differ by",
    a_little_noise: "differ by",
    a_weight_lost: "missing keys",
    a_weight_too_many: "unexpected keys",
    another_setting: "eps 0.001 instead of|differ by",
    no_weights: "does not load or run in a fresh process",
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Outcomes for a cut of a bare BERT with each fault, from one fresh process."""
    scratch = tmp_path_factory.mktemp("faults")
    model = build_twin(AutoConfig.for_model("bert"), FAMILIES["bert"])
    assert model is not None
    model.save_pretrained(scratch / "parent")
    build_twin_tokenizer().save_pretrained(scratch / "parent")
    parent = load_as_saved(str(scratch / "parent"))
    child = keep_layers(parent, (2, 4))
    reference = compute_layer_reference(parent.model, parent.family, (2, 4))
    jobs = []
    for fault in (*FAULTS, nothing):
        folder = scratch / fault.__name__
        write_model(child, folder)
        fault(folder)
        parameters = sum(p.numel() for p in child.model.parameters())
        jobs.append(prepare_proof(child, reference, parameters, folder))
    return dict(zip((*FAULTS, nothing), prove_folders(jobs), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_faults_are_found(outcomes, fault):
    assert isinstance(outcomes[fault], ProofFailed)
    with pytest.raises(ProofFailed, match=FAULTS[fault]):
        raise outcomes[fault]


@pytest.mark.slow
def test_a_good_cut_passes(outcomes):
    proof = outcomes[nothing]
    assert isinstance(proof, Proof)
    assert proof.route == "the parent with blocks bypassed"
    assert {"last_hidden_state", "pooler_output", "encoder.layer"} == set(proof.compared)


@pytest.mark.slow
def test_wrong_attention_windows_are_found_though_inputs_are_short(tmp_path):
    """ModernBERT's window is longer than the proof's inputs: outdated layer types would change no output."""
    config = AutoConfig.for_model("modernbert", local_attention=128)
    model = build_twin(config, FAMILIES["modernbert"])
    assert model is not None
    model.config.local_attention = 128  # the twin's is short
    model.save_pretrained(tmp_path / "parent")
    build_twin_tokenizer().save_pretrained(tmp_path / "parent")
    parent = load_as_saved(str(tmp_path / "parent"))
    kept = (1, 3, 4)  # full, full, sliding
    child = keep_layers(parent, kept)
    reference = compute_layer_reference(parent.model, parent.family, kept)
    parameters = sum(p.numel() for p in child.model.parameters())
    write_model(child, tmp_path / "good")
    write_model(child, tmp_path / "stale")
    stale = ["full_attention", "sliding_attention", "full_attention"]
    change_json(tmp_path / "stale" / "config.json", layer_types=stale)
    folders = [tmp_path / "good", tmp_path / "stale"]
    good, bad = prove_folders([prepare_proof(child, reference, parameters, f) for f in folders])
    assert isinstance(good, Proof)
    with pytest.raises(ProofFailed, match=r"layer 2 .* has \.attention_type 'sliding_attention' instead of"):
        raise bad  # type: ignore[misc]


@pytest.mark.slow
def test_a_cut_that_cannot_be_proved_is_not_written(model_folder, tmp_path, monkeypatch):
    correct = surgery._renumber

    def off_by_one(weights, stack, first_block_only, kept):
        return correct(weights, stack, first_block_only, [layer - 1 for layer in kept])

    monkeypatch.setattr(surgery, "_renumber", off_by_one)
    with pytest.raises(ProofFailed, match="differ by"):
        cut_to_folder(str(model_folder("bert")), (2, 4), tmp_path / "cut")
    assert list(tmp_path.iterdir()) == []
    parent = load_as_saved(str(model_folder("bert")))
    reference = compute_layer_reference(parent.model, parent.family, (2, 4))
    with pytest.raises(ProofFailed, match="differ by"):
        compare_in_memory(keep_layers(parent, (2, 4)).model, parent.family, reference)


@pytest.mark.slow
def test_what_a_cut_records(model_folder, tmp_path):
    record = cut_to_folder(str(model_folder("roberta")), (4, 1, 1), tmp_path / "cut")
    assert record == json.loads((tmp_path / "cut" / "probescale.json").read_text())
    assert record["kept"] == [4, 1, 1]
    assert record["dropped"] == [2, 3]
    assert record["parent"] == str(model_folder("roberta"))
    assert record["parent_sha256"] == load_as_saved(str(model_folder("roberta"))).fingerprint
    assert record["proof"]["route"] == "the parent's blocks called by hand"
    assert record["proof"]["params_on_disk"] == record["params"] < record["params_original"]
    assert record["provenance"]["versions"]["transformers"]
    assert record["class"] == "RobertaForSequenceClassification"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16])
def test_half_precision_is_kept_and_shards_are_read(dtype, tmp_path):
    model = build_twin(AutoConfig.for_model("llama"), FAMILIES["llama"], "lm")
    assert model is not None
    model.to(dtype).save_pretrained(tmp_path / "parent", max_shard_size="20KB")  # type: ignore[arg-type]
    build_twin_tokenizer().save_pretrained(tmp_path / "parent")
    assert len(list((tmp_path / "parent").glob("model-*.safetensors"))) > 2
    record = cut_to_folder(str(tmp_path / "parent"), (2, 4), tmp_path / "cut")
    weights = load_file(tmp_path / "cut" / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {dtype}
    assert record["dtype"] == str(dtype).removeprefix("torch.")
    original = load_as_saved(str(tmp_path / "parent"), dtype="auto").model.state_dict()
    for name, weight in weights.items():
        old = name.replace("layers.1.", "layers.3.").replace("layers.0.", "layers.1.")
        assert torch.equal(weight, original[old])


@pytest.mark.slow
def test_a_saved_model_is_proved_before_its_folder_appears(model_folder, tmp_path, monkeypatch):
    loaded = load_as_saved(str(model_folder("bert")))
    write = saving.write_model

    def write_badly(model, folder: Path):
        write(model, folder)
        change_json(folder / "config.json", num_hidden_layers=LAYERS - 1)

    monkeypatch.setattr(saving, "write_model", write_badly)
    with pytest.raises(UserError, match="unexpected keys"):
        save_model(loaded, {}, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_the_stored_dtype_is_kept_whatever_the_config_says(model_folder, tmp_path):
    """float32 weights under a config that says float16 would be rounded by transformers' own dtype="auto"."""
    shutil.copytree(model_folder("bert"), tmp_path / "model")
    change_json(tmp_path / "model" / "config.json", dtype="float16")
    parent = load_as_saved(str(tmp_path / "model"), dtype="auto")
    write_model(keep_layers(parent, (1, 3), share=True), tmp_path / "cut")
    old, new = (load_file(tmp_path / name / "model.safetensors") for name in ("model", "cut"))
    name = "bert.encoder.layer.{}.output.dense.weight"
    assert torch.equal(new[name.format(1)], old[name.format(2)])
    assert json.loads((tmp_path / "cut" / "config.json").read_text())["dtype"] == "float32"


def test_generation_settings_are_kept(tmp_path):
    model = build_twin(AutoConfig.for_model("llama"), FAMILIES["llama"], "lm")
    assert model is not None
    model.generation_config.update(eos_token_id=[4, 7, 9], max_new_tokens=11)
    model.save_pretrained(tmp_path / "parent")
    build_twin_tokenizer().save_pretrained(tmp_path / "parent")
    change_json(tmp_path / "parent" / "generation_config.json", temperature=0.6)  # without sampling, as in old models
    write_model(keep_layers(load_as_saved(str(tmp_path / "parent")), (1, 3)), tmp_path / "cut")
    kept = json.loads((tmp_path / "cut" / "generation_config.json").read_text())
    assert kept["eos_token_id"] == [4, 7, 9]
    assert kept["max_new_tokens"] == 11
    assert kept["temperature"] == 0.6


def test_layers_of_different_kinds_are_refused_and_nothing_is_written(cli, tmp_path):
    """DeepSeek's first layer is dense, the others have experts."""
    small = {"hidden_size": 32, "intermediate_size": 64, "moe_intermediate_size": 16, "num_attention_heads": 4,
             "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "v_head_dim": 8,
             "qk_nope_head_dim": 8, "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2,
             "first_k_dense_replace": 1, "num_hidden_layers": 3, "vocab_size": 64}  # fmt: skip
    model = AutoModel.from_config(AutoConfig.for_model("deepseek_v3", **small))
    model.save_pretrained(tmp_path / "model")
    build_twin_tokenizer().save_pretrained(tmp_path / "model")
    found = cli("extract", tmp_path / "model", "--keep", "2-3", "--out", tmp_path / "out")
    assert found.code == 2
    assert "do not fit together" in found.err
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
