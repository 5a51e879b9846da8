"""Dense modules of a sentence encoder are kept: its vectors are those of sentence-transformers, also after a cut."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from probescale.errors import UserError
from probescale.models.dense_layers import DenseLayer
from probescale.models.loading import load_encoder
from probescale.models.pooling import SentencePooling, write_pooling
from probescale.models.saving import write_model
from probescale.models.surgery import keep_layers
from probescale.recovery.embedder import Embedder

TEXTS = ["the plot was lovely", "a hero", "so dull and cold and the music was boring"]


@pytest.fixture
def encoder(tmp_path, model_folder):
    """A folder with two dense layers: 32 numbers become 12, then 6."""
    loaded, rng = load_encoder(str(model_folder("bert")), None), torch.Generator().manual_seed(0)
    layers = (
        DenseLayer(torch.randn(12, 32, generator=rng), torch.randn(12, generator=rng), "Tanh"),
        DenseLayer(torch.randn(6, 12, generator=rng), None, "Identity"),
    )
    folder = tmp_path / "encoder"
    folder.mkdir()
    write_model(loaded, folder)
    write_pooling(SentencePooling("mean", True, 32, dense=layers), folder, 32)
    return folder


def test_vectors_are_those_of_sentence_transformers(tmp_path, encoder):
    from sentence_transformers import SentenceTransformer

    stock = SentenceTransformer(str(encoder), device="cpu")
    loaded = load_encoder(str(encoder), None)
    assert loaded.outputs == 6
    assert Embedder(loaded, 32)(TEXTS) == pytest.approx(stock.encode(TEXTS), abs=1e-5)
    stock.save(str(tmp_path / "saved"))
    assert Embedder(load_encoder(str(tmp_path / "saved"), None), 32)(TEXTS) == pytest.approx(
        stock.encode(TEXTS), abs=1e-5
    )
    cut = keep_layers(loaded, (1, 3))
    assert cut.pooling is loaded.pooling
    assert np.abs(Embedder(cut, 32)(TEXTS) - stock.encode(TEXTS)).max() > 1e-3


@pytest.mark.slow
def test_the_export_has_the_layers_in_its_graph(tmp_path, encoder):
    pytest.importorskip("onnxruntime", reason='pip install "probescale[onnx]"')
    from probescale.deploy.export import export
    from probescale.deploy.open_model import open_model

    export(str(encoder), tmp_path / "onnx")
    exported = open_model(str(tmp_path / "onnx"))
    vectors = exported.run(dict(exported.tokenizer(TEXTS, padding=True, return_tensors="np")))
    assert vectors == pytest.approx(Embedder(load_encoder(str(encoder), None), 32)(TEXTS), abs=1e-4)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"activation_function": "my_package.Activation"}, 'the activation "Activation"'),
        ({"use_residual": True}, "has a residual connection"),
    ],
)
def test_layers_that_are_not_known(encoder, change, says):
    path = encoder / "2_Dense" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=says) as error:
        load_encoder(str(encoder), None)
    assert "Identity, Tanh" in str(error.value)


def test_a_layer_that_does_not_fit(encoder):
    (encoder / "3_Dense" / "model.safetensors").write_bytes((encoder / "2_Dense" / "model.safetensors").read_bytes())
    with pytest.raises(UserError, match=r"weights of the shape \(12, 32\), and its vectors have 12 numbers"):
        load_encoder(str(encoder), None)


def test_weights_that_are_not_there(encoder):
    (encoder / "3_Dense" / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"(?s)cannot be read.*pickles are not read"):
        load_encoder(str(encoder), None)
