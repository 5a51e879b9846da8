"""Loading gives the checkpoint, in float32, with its own tokenizer, or an error."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, BertForSequenceClassification

from helpers.models import tiny_model, tiny_tokenizer
from probescale.errors import UserError
from probescale.models.config_reading import read_config
from probescale.models.families import FAMILIES
from probescale.models.loading import load_as_saved, load_classifier, read_trained_labels
from probescale.models.proof.twin import build_twin, build_twin_tokenizer
from probescale.models.surgery import keep_layers
from probescale.recovery.fine_tuning import fine_tune
from probescale.recovery.recipe import Recipe
from probescale.tasks.data import load_rows


@pytest.fixture
def folder(model_folder, tmp_path):
    """A copy of the tiny BERT, to be damaged."""
    shutil.copytree(model_folder("bert"), tmp_path / "bert")
    return tmp_path / "bert"


def change(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_float16_checkpoint_is_loaded_in_float32(tmp_path):
    model, tokenizer = tiny_model("roberta")
    model.half().save_pretrained(tmp_path / "half")
    tokenizer.save_pretrained(tmp_path / "half")
    for loaded in (load_as_saved(str(tmp_path / "half")), load_classifier(str(tmp_path / "half"), None, "ab", seed=0)):
        assert {parameter.dtype for parameter in loaded.model.parameters()} == {torch.float32}


def test_the_fingerprint_is_that_of_the_checkpoint(folder):
    as_saved = load_as_saved(str(folder)).fingerprint
    assert {load_classifier(str(folder), None, "abc", seed=seed).fingerprint for seed in (0, 1)} == {as_saved}
    weights = load_file(folder / "model.safetensors")
    weights["bert.encoder.layer.0.output.dense.bias"][0] += 1
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert load_as_saved(str(folder)).fingerprint != as_saved


@pytest.fixture
def classifier(folder):
    """The tiny BERT with a head that someone trained for three labels."""
    model = BertForSequenceClassification.from_pretrained(
        folder, num_labels=3, id2label={0: "Good", 1: "BAD", 2: "so-so"}, ignore_mismatched_sizes=True
    )
    torch.nn.init.normal_(model.classifier.weight)
    model.save_pretrained(folder)
    return folder, model


def test_a_trained_head_is_kept_on_request(classifier):
    folder, model = classifier
    labels = read_trained_labels(str(folder), None, "sentence", field="model.source")
    assert labels == ("Good", "BAD", "so-so")
    kept = load_classifier(str(folder), None, ("good", "bad", "so-so"), seed=0, keep_head=True)
    assert kept.head_is_trained
    assert all(value.equal(kept.model.state_dict()[name]) for name, value in model.state_dict().items())
    assert kept.model.config.id2label == {0: "good", 1: "bad", 2: "so-so"}, "named as in the data"
    new = load_classifier(str(folder), None, ("good", "bad", "so-so"), seed=0)
    assert not new.head_is_trained
    assert not new.model.state_dict()["classifier.weight"].equal(model.classifier.weight)
    assert new.fingerprint == kept.fingerprint, "that of the backbone"


def test_a_head_that_is_not_there_is_not_kept(classifier):
    folder, _ = classifier
    other = load_classifier(str(folder), None, ("a", "b"), seed=0, keep_head=True)
    assert not other.head_is_trained, "it has another size"
    weights = load_file(folder / "model.safetensors")
    del weights["classifier.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    lost = load_classifier(str(folder), None, ("good", "bad", "so-so"), seed=0, keep_head=True)
    assert not lost.head_is_trained
    again = load_classifier(str(folder), None, ("good", "bad", "so-so"), seed=0)
    assert lost.model.state_dict()["classifier.weight"].equal(again.model.state_dict()["classifier.weight"])


@pytest.mark.parametrize(
    ("values", "head"),
    [
        ({}, "token"),
        ({}, "regression"),
        ({"architectures": ["BertModel"]}, "sentence"),
        ({"architectures": None}, "sentence"),
        ({"problem_type": "regression"}, "sentence"),
    ],
)
def test_labels_of_another_head_are_none(classifier, values, head):
    folder, _ = classifier
    change(folder / "config.json", **values)
    assert read_trained_labels(str(folder), None, head, field="model.source") is None


def test_cutting_and_training_change_the_fingerprint(folder):
    parent = load_classifier(str(folder), None, "ab", seed=0)
    cut, complete = keep_layers(parent, (1, 2)), keep_layers(parent, tuple(range(1, parent.layers + 1)))
    assert complete.fingerprint == parent.fingerprint != cut.fingerprint
    before = cut.fingerprint
    fine_tune(cut, load_rows([("a good film", "a"), ("a bad film", "b")] * 8), Recipe(epochs=1, batch_size=8))
    assert cut.fingerprint != before


def test_a_random_pooler_is_not_part_of_the_fingerprint(folder):
    weights = {n: w for n, w in load_file(folder / "model.safetensors").items() if "pooler" not in n and "bert." in n}
    save_file({n.removeprefix("bert."): w for n, w in weights.items()}, folder / "model.safetensors", {"format": "pt"})
    change(folder / "config.json", architectures=["BertModel"])
    loaded = [load_classifier(str(folder), None, "ab", seed=seed) for seed in (0, 1)]
    assert loaded[0].fingerprint == loaded[1].fingerprint == load_as_saved(str(folder)).fingerprint
    pooler = "bert.pooler.dense.weight"
    assert not torch.equal(loaded[0].model.state_dict()[pooler], loaded[1].model.state_dict()[pooler])


@pytest.mark.parametrize("load", [load_as_saved, lambda source: load_classifier(source, None, "ab", seed=0)])
def test_missing_weights_are_errors(folder, load):
    weights = load_file(folder / "model.safetensors")
    del weights["bert.encoder.layer.2.output.dense.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"lacks 1 weights .*layer\.2\.output"):
        load(str(folder))


def test_weights_of_another_shape_are_errors(folder):
    change(folder / "config.json", intermediate_size=48)
    with pytest.raises(UserError, match=r"lacks|cannot be loaded"):
        load_classifier(str(folder), None, "ab", seed=0)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"num_hidden_layers": "4"}, "config that transformers refuses"),
        ({"num_hidden_layers": 0}, "no layers"),
        ({"num_attention_heads": 5}, "cannot be loaded|config"),
        ({"hidden_act": "nonsense"}, "cannot be loaded|config"),
    ],
)
def test_invalid_configs(folder, values, says):
    change(folder / "config.json", **values)
    with pytest.raises(UserError, match=says):
        load_classifier(str(folder), None, "ab", seed=0)


def test_a_broken_weights_file(folder):
    (folder / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(UserError, match="cannot be loaded"):
        load_as_saved(str(folder))


def test_a_folder_without_a_tokenizer_is_not_given_an_empty_one(folder):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises(UserError, match="no usable tokenizer: it has none of"):
        load_as_saved(str(folder))


@pytest.mark.parametrize(
    ("file", "values", "says"),
    [
        ("tokenizer_config.json", {"pad_token": None}, "no padding token"),
        ("config.json", {"vocab_size": 50}, "the model 50 embeddings"),
        ("tokenizer.json", {"model": {"type": "nonsense"}}, "no usable tokenizer"),
    ],
)
def test_tokenizers_that_do_not_fit_the_model(folder, file, values, says):
    change(folder / file, **values)
    with pytest.raises(UserError, match=says):
        load_classifier(str(folder), None, "ab", seed=0)


def test_the_mean_of_token_logits_leaves_padding_out():
    logits = torch.tensor([[[1.0], [3.0], [100.0]], [[2.0], [2.0], [5.0]]])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    assert FAMILIES["t5"].sentence_logits(logits, mask).tolist() == [[2.0], [3.0]]


def test_longest_inputs(model_folder):
    names = ("bert", "roberta", "mpnet", "t5")
    longest = {name: FAMILIES[name].longest_input(read_config(str(model_folder(name)))) for name in names}
    assert longest == {"bert": 128, "roberta": 128, "mpnet": 128, "t5": None}


def test_a_config_with_fewer_layers_than_the_checkpoint(folder):
    """transformers would load the first ones and only mention the others."""
    change(folder / "config.json", num_hidden_layers=3)
    for load in (load_as_saved, lambda source: load_classifier(source, None, "ab", seed=0)):
        with pytest.raises(UserError, match=r"weights of more layers than the 3 of its config, such as .*layer\.3\."):
            load(str(folder))


def test_a_config_with_more_layers_than_the_checkpoint(folder):
    change(folder / "config.json", num_hidden_layers=6)
    with pytest.raises(UserError, match=r"lacks .* weights(.|\n)*config says 6 layers"):
        load_as_saved(str(folder))


def test_pickles_are_read_only_if_allowed(folder):
    weights = load_file(folder / "model.safetensors")
    expected = load_as_saved(str(folder)).fingerprint
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"pickle \(pytorch_model\.bin\)(.|\n)*--allow-pickle"):
        load_as_saved(str(folder))
    with pytest.raises(UserError, match="pickle"):
        load_classifier(str(folder), None, "ab", seed=0)
    assert load_as_saved(str(folder), allow_pickle=True).fingerprint == expected
    assert load_classifier(str(folder), None, "ab", seed=0, allow_pickle=True).fingerprint == expected


def test_a_pickle_with_code_is_refused_even_if_pickles_are_allowed(folder):
    class Evil:
        def __reduce__(self):
            return (Path.write_text, (folder / "ran", "yes"))

    (folder / "model.safetensors").unlink()
    torch.save({"weights": Evil()}, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="cannot be loaded"):
        load_as_saved(str(folder), allow_pickle=True)
    assert not (folder / "ran").exists()


def test_code_that_ships_with_a_model_is_never_executed(folder):
    code = f"import pathlib\npathlib.Path({str(folder / 'ran')!r}).write_text('yes')\n"
    code += "from transformers import BertConfig, BertModel\n"
    code += "class Own(BertConfig):\n    model_type = 'own'\n"
    (folder / "own.py").write_text(code)
    change(folder / "config.json", model_type="own", auto_map={"AutoConfig": "own.Own", "AutoModel": "own.OwnModel"})
    with pytest.raises(UserError, match="code that ships with a model is never executed"):
        read_config(str(folder))
    assert not (folder / "ran").exists()


def test_a_decoder_without_padding_token_uses_its_end_token(tmp_path):
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = tiny_tokenizer("roberta")
    tokenizer.pad_token = None
    tokenizer.cls_token = None
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        eos_token_id=2,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path / "llama")
    tokenizer.save_pretrained(tmp_path / "llama")
    assert load_as_saved(str(tmp_path / "llama")).tokenizer.pad_token is None  # a cut leaves it as it is
    loaded = load_classifier(str(tmp_path / "llama"), None, "ab", seed=0)
    assert loaded.tokenizer.pad_token_id == loaded.model.config.pad_token_id == 2
    alone = loaded.tokenizer(["good film"], return_tensors="pt")
    padded = loaded.tokenizer(["good film", "a much longer sentence than that"], padding=True, return_tensors="pt")
    with torch.no_grad():
        assert torch.allclose(loaded.model(**alone).logits[0], loaded.model(**padded).logits[0], atol=1e-5)


def test_constants_of_older_versions_are_ignored(tmp_path):
    model = build_twin(AutoConfig.for_model("gpt2"), FAMILIES["gpt2"], "lm")
    assert model is not None
    model.save_pretrained(tmp_path / "gpt2")
    build_twin_tokenizer().save_pretrained(tmp_path / "gpt2")
    weights = load_file(tmp_path / "gpt2" / "model.safetensors")
    weights["transformer.h.0.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(weights, tmp_path / "gpt2" / "model.safetensors", metadata={"format": "pt"})
    assert load_as_saved(str(tmp_path / "gpt2")).layers == 4
    weights["transformer.h.1.attn.lora_A"] = torch.zeros(2)
    save_file(weights, tmp_path / "gpt2" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match="weights in its layers that its class does not have"):
        load_as_saved(str(tmp_path / "gpt2"))


def test_weights_left_out_for_an_unknown_class_are_reported(folder, capsys, tmp_path):
    change(folder / "config.json", architectures=["MyOwnBert"])
    assert type(load_as_saved(str(folder)).model).__name__ == "BertModel"
    assert "2 weights of the checkpoint have no place in BertModel and are left out" in capsys.readouterr().err
    model = build_twin(AutoConfig.for_model("t5"), FAMILIES["t5"], "lm")
    assert model is not None
    model.save_pretrained(tmp_path / "t5")
    build_twin_tokenizer().save_pretrained(tmp_path / "t5")
    change(tmp_path / "t5" / "config.json", architectures=["T5WithLMHeadModel"])  # an outdated class name
    assert type(load_as_saved(str(tmp_path / "t5")).model).__name__ == "T5ForConditionalGeneration"


def test_a_revision_of_a_folder(folder):
    with pytest.raises(UserError, match="has no revisions"):
        load_as_saved(str(folder), "main")


def test_encoder_only_where_no_class_has_it(folder, tmp_path):
    with pytest.raises(UserError, match="--encoder-only"):
        load_as_saved(str(folder), encoder_only=True)
    model = build_twin(AutoConfig.for_model("bart"), FAMILIES["bart"])
    assert model is not None
    model.save_pretrained(tmp_path / "bart")
    build_twin_tokenizer().save_pretrained(tmp_path / "bart")
    with pytest.raises(UserError, match="no stock class for the encoder alone"):
        load_as_saved(str(tmp_path / "bart"), encoder_only=True)
