"""Factorised embeddings: the same model at full width, close to it below, and a folder that stock classes load."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    RobertaTokenizer,
    XLMRobertaConfig,
    set_seed,
)

from helpers.models import tiny_tokenizer
from helpers.real import real_data, real_weights
from probescale.errors import UserError
from probescale.models.batching import tokenize
from probescale.models.counting import count_parameters
from probescale.models.families import FAMILIES, find_family
from probescale.models.family import backbone
from probescale.models.heads import build_on_meta, stock_class_name
from probescale.models.loading import LoadedModel, load_as_saved
from probescale.models.proof.reference import example_inputs
from probescale.models.proof.twin import build_twin_config
from probescale.models.saving import save_model, write_model
from probescale.models.shrink.embeddings import (
    embedding_parameters,
    factorise_embeddings,
    parameters_per_token,
    why_rank_is_fixed,
)
from probescale.models.surgery import keep_layers

WIDTH = 32
SIZE: dict[str, Any] = {
    "vocab_size": 350, "hidden_size": WIDTH, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "max_position_embeddings": 40, "type_vocab_size": 2, "pad_token_id": 1, "layer_norm_eps": 1e-5,
    "hidden_act": "relu", "hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3, "classifier_dropout": 0.4,
    "problem_type": "multi_label_classification", "id2label": {0: "no", 1: "yes", 2: "perhaps"},
    "label2id": {"no": 0, "yes": 1, "perhaps": 2},
}  # fmt: skip
SENTENCE, TOKEN = "ForSequenceClassification", "ForTokenClassification"
NAMES = [
    "BertModel", f"Bert{SENTENCE}", f"Bert{TOKEN}", "RobertaModel", f"Roberta{SENTENCE}", f"Roberta{TOKEN}",
    f"XLMRoberta{SENTENCE}", f"Camembert{TOKEN}", f"Electra{SENTENCE}", f"Electra{TOKEN}", "ElectraModel, narrow",
]  # fmt: skip


def build(name: str, **changed: object) -> PreTrainedModel:
    """Random weights, large enough that all of them matter; norms and biases differ from their initial values."""
    cls = getattr(transformers, name.split(",")[0])
    narrow = {"embedding_size": 24 if "narrow" in name else WIDTH} if "Electra" in name else {}
    set_seed(3)
    model = cls(cls.config_class(**SIZE | narrow | changed)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(4)
            else:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def loaded(name: str, **changed: object) -> LoadedModel:
    model = build(name, **changed)
    return LoadedModel(model, tiny_tokenizer("roberta"), find_family(model.config), name, "")


def states(of: LoadedModel, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Hidden states before the first layer and after each, without padding: (states, tokens, hidden)."""
    with torch.no_grad():
        hidden = backbone(of.model)(**inputs, output_hidden_states=True).hidden_states
    return torch.stack(hidden)[:, inputs["attention_mask"].bool()]


def inputs_of(of: LoadedModel) -> dict[str, torch.Tensor]:
    """Two rows, the second padded, with tokens of both types."""
    inputs = example_inputs(of.model, of.family)
    types = torch.zeros_like(inputs["input_ids"])
    types[:, 5:] = 1
    return inputs | {"token_type_ids": types}


@pytest.mark.parametrize("name", NAMES)
def test_at_full_width_it_is_the_same_model(name):
    parent = loaded(name)
    before = {key: weight.clone() for key, weight in parent.model.state_dict().items()}
    child = factorise_embeddings(parent, 24 if "narrow" in name else WIDTH)
    inputs = inputs_of(parent)
    assert torch.equal(states(parent, inputs), states(child, inputs))
    kind = name.split(",")[0].removeprefix(name[: name.index("For") if "For" in name else name.index("Model")])
    assert type(child.model).__name__ == f"Electra{kind}"
    assert child.family is FAMILIES["electra"]
    if name.endswith(TOKEN) or name == f"Electra{SENTENCE}":
        with torch.no_grad():
            one, two = (of.model(**inputs).logits for of in (parent, child))
        real = inputs["attention_mask"].bool() if name.endswith(TOKEN) else slice(None)
        assert torch.equal(one[real], two[real])
    for weight in child.model.parameters():
        weight.data.zero_()
    assert all(torch.equal(before[key], weight) for key, weight in parent.model.state_dict().items())


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_lost_where_the_tables_have_that_rank(name):
    """The norm before the projection does what the norm in the full width did."""
    parent, rank = loaded(name), 12
    with torch.no_grad():
        embeddings: Any = backbone(parent.model).embeddings
        tables = [embeddings.word_embeddings, embeddings.position_embeddings, embeddings.token_type_embeddings]
        few = torch.randn(rank - 1, tables[0].weight.shape[1])
        for table in tables:
            mean = torch.randn(len(table.weight), 1)  # of each row: norms take it off
            table.weight.copy_(0.1 * torch.randn(len(table.weight), rank - 1) @ few + mean)
    child = factorise_embeddings(parent, rank)
    assert parameters_per_token(child.model) == rank
    inputs = inputs_of(parent)
    torch.testing.assert_close(states(child, inputs), states(parent, inputs), atol=1e-4, rtol=1e-4)


def test_the_error_falls_with_the_width_and_with_counts():
    parent = loaded("RobertaModel")
    inputs = inputs_of(parent)
    counts = np.bincount(inputs["input_ids"].flatten().numpy(), minlength=350)
    expected = states(parent, inputs)[0]

    def error(rank: int, seen: np.ndarray | None) -> float:
        return float((states(factorise_embeddings(parent, rank, seen), inputs)[0] - expected).norm() / expected.norm())

    blind, seeing = ([error(rank, seen) for rank in (6, 12, 24, 31)] for seen in (None, counts))
    assert blind == sorted(blind, reverse=True)
    assert seeing == sorted(seeing, reverse=True)
    assert all(better < worse for better, worse in zip(seeing, blind, strict=True))
    assert seeing[2] < 0.6 * blind[2]


def test_special_tokens_weigh_even_if_they_were_not_counted():
    parent = loaded("BertModel")
    ends = torch.tensor([parent.tokenizer("")["input_ids"]])
    with torch.no_grad():
        backbone(parent.model).get_submodule("embeddings.position_embeddings").get_parameter("weight").mul_(0.01)
    counts = np.zeros(350)
    counts[10:15] = 7
    inputs = {"input_ids": ends, "attention_mask": torch.ones_like(ends)}
    expected = states(parent, inputs)[0]
    fitted, blind = (states(factorise_embeddings(parent, 12, seen), inputs)[0] for seen in (counts, None))
    assert (fitted - expected).norm() < 0.2 * (blind - expected).norm()


def test_roberta_positions_begin_after_the_padding_token():
    parent = loaded("RobertaModel", pad_token_id=5)
    child = factorise_embeddings(parent, WIDTH)
    assert child.model.config.max_position_embeddings == 40 - 6
    ids = torch.randint(6, 350, (1, 34))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    assert torch.equal(states(parent, inputs), states(child, inputs))


def test_settings_and_head_are_the_parents():
    for name, first in [("Bert", "bert.pooler.dense"), ("Roberta", "classifier.dense")]:
        parent = loaded(f"{name}{SENTENCE}")
        child = factorise_embeddings(parent, 8)
        old, new = parent.model.state_dict(), child.model.state_dict()
        assert torch.equal(old[f"{first}.weight"], new["classifier.dense.weight"])
        last = "classifier" if name == "Bert" else "classifier.out_proj"
        assert torch.equal(old[f"{last}.bias"], new["classifier.out_proj.bias"])
        carried = child.model.config.to_dict()
        changed = {"hidden_size", "max_position_embeddings", "vocab_size"}
        assert {key: carried[key] for key in SIZE.keys() - changed} == {key: SIZE[key] for key in SIZE.keys() - changed}
        assert (carried["embedding_size"], carried["hidden_size"]) == (8, WIDTH)
        assert child.model.config._attn_implementation == parent.model.config._attn_implementation
        assert child.fingerprint != parent.fingerprint


def test_layers_are_cut_before_or_after():
    parent, kept = loaded(f"Roberta{SENTENCE}"), (3, 1)
    one, two = keep_layers(factorise_embeddings(parent, 8), kept), factorise_embeddings(keep_layers(parent, kept), 8)
    assert type(one.model) is type(two.model)
    assert one.fingerprint == two.fingerprint
    assert one.model.config.num_hidden_layers == two.model.config.num_hidden_layers == 2
    other = two.model.state_dict()
    assert all(torch.equal(weight, other[key]) for key, weight in one.model.state_dict().items())


def test_half_precision_stays():
    parent = loaded("BertModel")
    parent.model.to(torch.bfloat16)  # type: ignore[call-arg]
    child = factorise_embeddings(parent, 8)
    assert {weight.dtype for weight in child.model.state_dict().values()} == {torch.bfloat16}


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_counted_in_advance(name):
    parent = loaded(name)
    config = parent.model.config
    assert embedding_parameters(config, 350) == count_parameters(parent.model, parent.family).embeddings
    for rank in (2, 9, 24, WIDTH)[: 3 if "narrow" in name else 4]:
        child = factorise_embeddings(parent, rank)
        counted = count_parameters(child.model, child.family)
        assert counted.embeddings == embedding_parameters(config, 350, rank)
        assert counted.total == sum(p.numel() for p in child.model.parameters())
        assert counted.layers == count_parameters(parent.model, parent.family).layers
        per_token = embedding_parameters(config, 351, rank) - embedding_parameters(config, 350, rank)
        assert per_token == rank == parameters_per_token(child.model)


@pytest.mark.parametrize("head", ["none", "lm"])
@pytest.mark.parametrize("name", FAMILIES)
def test_parameters_of_one_token(name, head):
    """Compared with the same model with ten more tokens."""
    family = FAMILIES[name]
    config = build_twin_config(AutoConfig.for_model(family.model_types[0]), family)
    if stock_class_name(family, config, head) is None:
        pytest.skip("no such head")
    larger = type(config).from_dict(config.to_dict() | {"vocab_size": config.vocab_size + 10})
    one, two = (build_on_meta(family, c, head) for c in (config, larger))
    before, after = (sum(p.numel() for p in model.parameters()) for model in (one, two))
    assert after - before == 10 * parameters_per_token(one)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_says_whether_its_embeddings_can_change(name):
    family = FAMILIES[name]
    config = AutoConfig.for_model(family.model_types[0])
    can = name in ("bert", "roberta", "xlm-roberta", "camembert", "electra")
    assert (why_rank_is_fixed(family, config) == "") is can
    if not can:
        reason = f"of {config.model_type} models cannot be factorised: only the blocks of .* fit into ELECTRA's"
        with pytest.raises(UserError, match=reason):
            embedding_parameters(config, 100, 8)


@pytest.mark.parametrize(
    ("changed", "says"),
    [({"is_decoder": True}, "as a decoder"), ({"is_decoder": True, "add_cross_attention": True}, "as a decoder"),
     ({"position_embedding_type": "relative_key"}, "relative"), ({"pad_token_id": None}, "does not name")],
)  # fmt: skip
def test_configs_that_do_not_fit(changed, says):
    assert says in why_rank_is_fixed(FAMILIES["xlm-roberta"], XLMRobertaConfig(**SIZE | changed))


@pytest.mark.parametrize(("rank", "hint"), [(1, "2 to 32"), (0, "2 to 32"), (-4, "2 to 32"), (33, "2 to 32")])
def test_wrong_widths(rank, hint):
    with pytest.raises(UserError, match=f"embedding size {rank} is not possible") as refused:
        factorise_embeddings(loaded("BertModel"), rank)
    assert refused.value.field == "shrink.rank"
    assert hint in refused.value.hint


def test_heads_that_electra_does_not_have():
    for name in ("BertForMaskedLM", "RobertaForQuestionAnswering", "ElectraForPreTraining"):
        with pytest.raises(UserError, match=f"{name} has a head that no stock class with narrow embeddings has"):
            factorise_embeddings(loaded(name), 8)


@pytest.mark.parametrize(
    "counts", [np.ones(349), np.ones((350, 1)), np.zeros(350), np.full(350, np.nan), -np.ones(350)]
)
def test_wrong_counts(counts):
    with pytest.raises(UserError, match="350 numbers"):
        factorise_embeddings(loaded("BertModel"), 8, counts)


@pytest.mark.slow
def test_a_fresh_process_loads_it(tmp_path):
    child = factorise_embeddings(with_own_tokenizer(tmp_path), 8)
    save_model(child, {"rank": 8}, tmp_path / "saved")
    record = json.loads((tmp_path / "saved" / "probescale.json").read_text())
    assert record["proof"]["to_the_bit"]
    assert record["class"] == "ElectraForSequenceClassification"
    assert record["params"] == count_parameters(child.model, child.family).total


@pytest.mark.parametrize("own", [True, False])
def test_the_parents_tokenizer_stays_the_same_with_an_electra_model(tmp_path, own):
    parent = with_own_tokenizer(tmp_path) if own else loaded(f"Roberta{SENTENCE}", type_vocab_size=1)
    child = factorise_embeddings(parent, 8)
    write_model(child, tmp_path / "saved")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert isinstance(tokenizer, type(parent.tokenizer))
    texts = ["the film was good and the plot awful .", "dull"]
    batches = [of(texts, padding=True, return_tensors="pt") for of in (parent.tokenizer, tokenizer)]
    assert batches[0].keys() == batches[1].keys()
    assert all(torch.equal(value, batches[1][key]) for key, value in batches[0].items())
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved").eval()
    with torch.no_grad():
        torch.testing.assert_close(again(**batches[1]).logits, child.model(**batches[0]).logits)


def with_own_tokenizer(folder: Path) -> LoadedModel:
    """RoBERTa with a tokenizer of RoBERTa's class."""
    parent = loaded(f"Roberta{SENTENCE}", type_vocab_size=1)
    parent.tokenizer.save_pretrained(folder / "tokenizer")
    return replace(parent, own_tokenizer=RobertaTokenizer.from_pretrained(folder / "tokenizer"))


def sst2(tokenizer: PreTrainedTokenizerBase, vocabulary: int) -> tuple[np.ndarray, list[str]]:
    """Token counts of 2,000 sentences, and 30 other sentences."""
    with real_data("sst2/train.tsv").open(encoding="utf-8") as file:
        texts = [row["sentence"] for row, _ in zip(csv.DictReader(file, delimiter="\t", quoting=3), range(2030))]  # noqa: B905
    ids = tokenize(tokenizer, texts[:2000], None, 128).fields["input_ids"]
    return np.bincount(ids, minlength=vocabulary), texts[2000:]


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize(("name", "rank", "limit"), [("gte-small", 256, 0.32), ("granite", 128, 0.65)])
def test_real_weights(name, rank, limit):
    parent = load_as_saved(str(real_weights(name)))
    counts, texts = sst2(parent.tokenizer, parent.model.config.vocab_size)
    batch = dict(parent.tokenizer(texts, padding=True, return_tensors="pt"))
    expected = states(parent, batch)[0]
    blind, seeing = (factorise_embeddings(parent, rank, seen) for seen in (None, counts))
    errors = [float((states(of, batch)[0] - expected).norm() / expected.norm()) for of in (blind, seeing)]
    assert errors[1] < limit
    assert errors[1] < errors[0]
