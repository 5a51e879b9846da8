"""Fuzz model folders and GGUF files: config, tokenizer, weights and their index."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from helpers.fuzzing import RNG, damaged, damaged_json, fuzz, result_or_error
from probescale.config import ModelConfig
from probescale.models.architecture import compute_facts, read_architecture
from probescale.models.loading import check_local_model, load_as_saved
from probescale.pipeline.validate import check_architecture

FAMILIES = st.sampled_from(["bert", "roberta", "t5"])
SETTINGS = ("tokenizer_config.json", "tokenizer.json")


@pytest.fixture(scope="module")
def copies(model_folder, tmp_path_factory) -> dict[str, Path]:
    """A valid model of every family; tests damage one of its files at a time."""
    folder = tmp_path_factory.mktemp("damaged")
    return {name: Path(shutil.copytree(model_folder(name), folder / name)) for name in ("bert", "roberta", "t5")}


class Spoilt:
    """Replace one file of a folder for a while."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path, self.data, self.sound = path, data, path.read_bytes() if path.exists() else None

    def __enter__(self) -> None:
        self.path.write_bytes(self.data)

    def __exit__(self, *_: object) -> None:
        self.path.unlink() if self.sound is None else self.path.write_bytes(self.sound)


def sound(path: Path) -> Any:
    return json.loads(path.read_text())


@fuzz("config.json of models", 40, rng=RNG, family=FAMILIES)
def test_configs(copies, rng, family):
    folder = copies[family]
    with Spoilt(folder / "config.json", damaged_json(rng, sound(folder / "config.json"))):
        result_or_error(lambda: check_architecture(ModelConfig(source=str(folder), max_length=16)))
        result_or_error(lambda: check_local_model(str(folder)))
        result_or_error(lambda: compute_facts(read_architecture(str(folder))))


@fuzz("tokenizers", 25, rng=RNG, family=FAMILIES, name=st.sampled_from(SETTINGS))
def test_tokenizers(copies, rng, family, name):
    folder = copies[family]
    with Spoilt(folder / name, damaged_json(rng, sound(folder / name))):
        result_or_error(lambda: check_local_model(str(folder)))


def with_header(rng: Any, data: bytes) -> bytes:
    """A changed safetensors header, with a right or wrong length."""
    (length,) = struct.unpack("<Q", data[:8])
    header = damaged_json(rng, json.loads(data[8 : 8 + length]))
    said = len(header) if rng.random() < 0.8 else rng.choice([0, 1, length, 2**31, 2**40, 2**63, 2**64 - 1])
    return struct.pack("<Q", said) + header + data[8 + length :]


@fuzz("safetensors", 30, rng=RNG, family=FAMILIES)
def test_weights(copies, rng, family):
    folder = copies[family]
    data = (folder / "model.safetensors").read_bytes()
    with Spoilt(folder / "model.safetensors", with_header(rng, data) if rng.random() < 0.7 else damaged(rng, data)):
        result_or_error(lambda: check_local_model(str(folder)))
        result_or_error(lambda: load_as_saved(str(folder)))


INDEX = {"metadata": {"total_size": 5}, "weight_map": {"a": "model.safetensors", "b": "model.safetensors"}}


@fuzz("indexes of weights", 30, rng=RNG)
def test_indexes(copies, rng):
    folder = copies["bert"]
    with Spoilt(folder / "model.safetensors.index.json", damaged_json(rng, INDEX)):
        result_or_error(lambda: check_local_model(str(folder)))


def gguf_text(words: str) -> bytes:
    return struct.pack("<Q", len(words)) + words.encode()


def gguf() -> bytes:
    """A GGUF file with header values of several types and one tensor."""
    values = [gguf_text("general.architecture") + struct.pack("<I", 8) + gguf_text("llama")]
    for name in ("block_count", "embedding_length", "attention.head_count", "feed_forward_length", "context_length"):
        values.append(gguf_text(f"llama.{name}") + struct.pack("<II", 4, 4))
    words = b"".join(map(gguf_text, ("<s>", "</s>", "a", "b")))
    values.append(gguf_text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 4) + words)
    tensor = gguf_text("token_embd.weight") + struct.pack("<I2QIQ", 2, 4, 4, 0, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(values)) + b"".join(values) + tensor
    return head + b"\0" * (-len(head) % 32) + b"\0" * 64


@fuzz("GGUF", 30, rng=RNG)
def test_gguf(tmp_path_factory, rng):
    pytest.importorskip("gguf", reason='pip install "probescale[gguf]"')
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(damaged(rng, gguf()))
    result_or_error(lambda: read_architecture(str(path)))
