"""Malicious model folders and GGUF files: none of their code is executed, and each gets a clear error."""

from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from probescale.errors import UserError
from probescale.models.loading import check_local_model, load_as_saved
from probescale.pipeline.cut import cut_to_folder
from probescale.report.examination import examine


@pytest.fixture
def folder(model_folder, tmp_path) -> Path:
    """A valid model, to be damaged."""
    return Path(shutil.copytree(model_folder("bert"), tmp_path / "model"))


@pytest.fixture
def executed(folder) -> Path:
    """A file that exists once the code in the model folder was executed."""
    mark = folder.parent / "executed"
    (folder / "evil.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    return mark


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def refused(folder: Path, says: str, **options: Any) -> None:
    for read in (check_local_model, load_as_saved):
        with pytest.raises(UserError, match=says) as error:
            read(str(folder), field="model.source", **options)
        assert error.value.field == "model.source"
        assert "Traceback" not in str(error.value)


class Evil:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def test_a_pickle_is_not_opened(folder, executed):
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Evil(executed)}, folder / "pytorch_model.bin")
    refused(folder, "has its weights in a pickle")
    assert not executed.exists()


def test_an_allowed_pickle_executes_no_code_either(folder, executed):
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Evil(executed)}, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="cannot be loaded: Weights only load failed"):
        load_as_saved(str(folder), allow_pickle=True)
    assert not executed.exists()


def test_code_for_an_unknown_model_type(folder, executed):
    change(folder / "config.json", model_type="evil", auto_map={"AutoConfig": "evil.Config"})
    refused(folder, "code that ships with a model is never executed")
    assert not executed.exists()


@pytest.mark.slow
def test_code_for_a_stock_type_is_ignored_and_not_copied(folder, executed, tmp_path):
    names = ("AutoConfig", "AutoModel", "AutoModelForSequenceClassification")
    change(folder / "config.json", auto_map=dict.fromkeys(names, "evil.Thing"))
    tokenizer = {"auto_map": {"AutoTokenizer": ["evil.Slow", "evil.Fast"]}, "tokenizer_class": "EvilTokenizer"}
    change(folder / "tokenizer_config.json", **tokenizer)
    (folder / "custom_generate").mkdir()
    shutil.copyfile(folder / "evil.py", folder / "custom_generate" / "generate.py")
    cut_to_folder(str(folder), [1, 2], tmp_path / "cut")
    assert not executed.exists()
    written = [path for path in (tmp_path / "cut").rglob("*") if path.is_file()]
    assert not [path for path in written if path.suffix == ".py" or b"auto_map" in path.read_bytes()]


@pytest.mark.parametrize("name", ["attn_implementation", "_attn_implementation"])
def test_attention_kernels_from_the_hub(folder, name):
    change(folder / "config.json", **{name: "evil/kernel"})
    refused(folder, "asks for code from the hub, evil/kernel")


def indexed(folder: Path, place: str) -> None:
    weights = folder / "model.safetensors"
    names = list(load_file(weights))
    weights.rename(folder / "model-00001-of-00001.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, place)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_an_index_that_leads_out_of_the_folder(folder, tmp_path):
    shutil.copyfile(folder / "model.safetensors", tmp_path / "other.safetensors")
    indexed(folder, "../other.safetensors")
    refused(folder, r'names "\.\./other\.safetensors"')


def test_an_index_that_leads_to_a_pickle(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "evil.bin")
    indexed(folder, "evil.bin")
    refused(folder, r'names "evil\.bin", which is not a \.safetensors file')


@pytest.mark.parametrize("text", ['{"weight_map": 5}', "[]", "{", "[" * 100_000, '{"weight_map": {"a": 1}}'])
def test_an_invalid_index(folder, text):
    (folder / "model.safetensors.index.json").write_text(text)
    refused(folder, r"model\.safetensors\.index\.json (is not an index|cannot be read|names)")


def test_weights_under_another_name(folder):
    change(folder / "config.json", transformers_weights="evil.safetensors.index.json")
    refused(folder, r'has its weights in "evil\.safetensors\.index\.json"')


def test_an_adapter_next_to_the_weights(folder):
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "/etc"}')
    refused(folder, "has an adapter next to its weights")


@pytest.mark.parametrize("length", [10 << 30, 2**63, 2**64 - 1])
def test_a_header_of_ten_gigabytes(folder, length):
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", length) + b"{}")
    refused(folder, "header too large|[Hh]eader")


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ({"a": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}}, "safetensors|cannot be loaded"),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 2**60]}}, "safetensors|cannot be loaded"),
        ({"a": {"dtype": "<b>", "shape": [1], "data_offsets": [0, 4]}}, "safetensors|cannot be loaded"),
    ],
)
def test_a_header_that_lies(folder, header, says):
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"\0" * 4)
    refused(folder, says)


@pytest.mark.parametrize(
    "named", [["<script>alert(1)</script>"], [1], [[]], "pipeline", ["pipeline"], ["AutoTokenizer"]]
)
def test_a_class_name_that_is_not_a_model(folder, named):
    """The config's class name is ignored, and the bare model is loaded."""
    change(folder / "config.json", architectures=named, _name_or_path="<img src=x onerror=alert(1)>")
    assert type(load_as_saved(str(folder)).model).__name__ == "BertModel"


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"num_hidden_layers": 10**7}, "num_hidden_layers of the model's config is 10,000,000"),
        ({"hidden_size": 10**9}, "its config describes .* parameters"),
        ({"hidden_size": 4 * 10**12}, "no model can be built from its config"),
        ({"vocab_size": 10**18}, "no model can be built from its config"),
        ({"num_attention_heads": 0}, "no model can be built from its config"),
        ({"num_hidden_layers": -1}, "no layers"),
        ({"num_hidden_layers": "<b>"}, "has a config that transformers refuses"),
        ({"model_type": "\x1b[31mred"}, "has a config that transformers refuses"),
    ],
)
def test_absurd_config_values(folder, values, says):
    change(folder / "config.json", **values)
    with pytest.raises(UserError, match=says):
        examine(str(folder))


def test_an_endless_config(folder):
    (folder / "config.json").write_text('{"model_type": "bert", "a": ' + "[" * 100_000)
    refused(folder, "has a config that transformers refuses")


@pytest.mark.parametrize("verb", ["plan", "doctor"])
def test_an_invalid_config_is_one_message(folder, cli, verb):
    (folder / "config.json").write_text("{")
    done = cli(verb, folder)
    assert done.code == 2
    assert done.err.count("error: ") == 1
    assert "has a config that transformers refuses" in done.err


def text(words: str) -> bytes:
    return struct.pack("<Q", len(words)) + words.encode()


ARCHITECTURE = text("general.architecture") + struct.pack("<I", 8) + text("llama")
TOKENS = text("tokenizer.ggml.tokens") + struct.pack("<I", 9)
GGUF = {
    "values without end": (0, 2**62, ARCHITECTURE),
    "tensors without end": (2**62, 1, ARCHITECTURE),
    "an array of a billion texts": (0, 2, ARCHITECTURE + TOKENS + struct.pack("<IQ", 8, 10**9) + text("a")),
    "an array of a trillion numbers": (0, 2, ARCHITECTURE + TOKENS + struct.pack("<IQ", 0, 10**12) + b"ab"),
    "arrays in arrays": (0, 2, ARCHITECTURE + TOKENS + struct.pack("<IQ", 9, 1) * 2000),
    "a name of an exabyte": (0, 1, struct.pack("<Q", 2**60) + b"abc"),
    "a tensor of any size": (1, 1, ARCHITECTURE + text("t") + struct.pack("<I4QIQ", 4, *[2**40] * 4, 0, 0)),
}


@pytest.mark.parametrize("name", GGUF)
def test_gguf_with_absurd_counts(tmp_path, name):
    pytest.importorskip("gguf", reason='pip install "probescale[gguf]"')
    tensors, values, rest = GGUF[name]
    path = tmp_path / "evil.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, tensors, values) + rest)
    with pytest.raises(UserError, match=r"evil\.gguf has a config that transformers refuses"):
        examine(str(path))
