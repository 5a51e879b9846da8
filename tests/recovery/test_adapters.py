"""LoRA and gradient checkpointing: less memory, and the same kind of model at the end."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from helpers.data import labelled_rows
from probescale.errors import Problems
from probescale.models.fast_float32 import fast_float32
from probescale.models.loading import load_classifier
from probescale.models.surgery import keep_layers
from probescale.pipeline.validate import check
from probescale.recovery.adapters import low_rank_adapters
from probescale.recovery.fine_tuning import fine_tune
from probescale.recovery.recipe import Recipe
from probescale.tasks.data import load_rows

TRAIN = load_rows(labelled_rows(80))
RANK = 3
WIDTHS: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
IDS = torch.arange(12).reshape(2, 6)


@pytest.fixture
def models():
    torch.manual_seed(0)
    return {
        "an encoder": BertForSequenceClassification(BertConfig(vocab_size=40, **WIDTHS)),
        "matrices that are no nn.Linear": GPT2LMHeadModel(GPT2Config(vocab_size=40, n_embd=16, n_layer=2, n_head=2)),
        "a decoder": LlamaForCausalLM(LlamaConfig(vocab_size=40, **WIDTHS)),
    }


@pytest.mark.parametrize("name", ["an encoder", "matrices that are no nn.Linear", "a decoder"])
def test_matrices_of_layers_change_by_little_ones_and_the_model_has_its_own_modules_again(models, name):
    model = models[name]
    before = {key: weight.clone() for key, weight in model.state_dict().items()}
    with low_rank_adapters(model, RANK):
        optimizer = torch.optim.Adam([one for one in model.parameters() if one.requires_grad], lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            model(input_ids=IDS).logits.square().sum().backward()
            optimizer.step()
        trained = model.eval()(input_ids=IDS).logits
    after = model.state_dict()
    assert list(after) == list(before)
    assert torch.allclose(model(input_ids=IDS).logits, trained, atol=1e-4)
    assert all(parameter.requires_grad for parameter in model.parameters())
    changed = {key for key in before if not torch.equal(before[key], after[key])}
    head = {key for key in before if key.startswith("classifier")}
    assert changed >= head
    matrices = changed - head
    assert len(matrices) >= 2 * 4
    for key in matrices:
        assert "embed" not in key
        assert torch.linalg.matrix_rank(after[key] - before[key], atol=1e-4) <= RANK


def test_an_untrained_adapter_changes_nothing(models):
    model = models["an encoder"].eval()
    before = model(input_ids=IDS).logits
    with low_rank_adapters(model, RANK):
        trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        assert trained < 0.5 * sum(parameter.numel() for parameter in model.parameters())
        assert torch.allclose(model(input_ids=IDS).logits, before, atol=1e-6)
    assert torch.equal(model(input_ids=IDS).logits, before)


@pytest.fixture(scope="module")
def parent(model_folder):
    return load_classifier(str(model_folder("bert")), None, TRAIN.names, 0)


@pytest.mark.slow
def test_it_learns_a_task(parent):
    recipe = Recipe(epochs=12, learning_rate=1e-2, batch_size=16, dropout=0.0, adapters="lora", adapter_rank=8)
    losses = fine_tune(keep_layers(parent, (1, 3)), TRAIN, recipe, max_length=32)
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.slow
def test_computing_states_twice_gives_the_same_weights(parent):
    recipe = Recipe(epochs=2, learning_rate=3e-3, batch_size=16, dropout=0.0)
    found, passes = [], []
    for save_memory in (False, True):
        model, count = keep_layers(parent, (1, 2)), []
        block = model.family.layers(model.model)[0]
        part = next(module for module in block.modules() if isinstance(module, torch.nn.Linear))
        hook = part.register_forward_hook(lambda *_, count=count: count.append(1))
        fine_tune(model, TRAIN, replace(recipe, save_memory=save_memory), max_length=32)
        found.append(model.model.state_dict())
        hook.remove()
        passes.append(len(count))
        assert not model.model.is_gradient_checkpointing
    assert passes == [10, 20]  # five batches, two epochs
    for name, weight in found[0].items():
        assert torch.allclose(weight, found[1][name], atol=1e-5), name


def test_it_is_the_same_with_the_faster_library_and_leaves_no_hook(parent):
    model = keep_layers(parent, (1, 2))
    recipe = Recipe(epochs=1, learning_rate=3e-3, batch_size=16, dropout=0.0, save_memory=True)
    with fast_float32():
        fine_tune(model, TRAIN, recipe, max_length=32)
    again = pickle.loads(pickle.dumps(model))  # as other processes get it
    assert torch.equal(again.model.state_dict()["classifier.weight"], model.model.state_dict()["classifier.weight"])


def test_what_cannot_be_together_is_refused(model_folder, task_files):
    raw = {
        "model": {"source": str(model_folder("bert"))},
        "task": {"name": "tiny", "train": str(task_files.train), "dev": str(task_files.dev)},
        "recovery": {"save_memory": True, "states": 0.5},
    }
    with pytest.raises(Problems, match="cannot be computed twice") as raised:
        check(raw)
    assert "recovery.save_memory" in str(raised.value)
