"""Trim the vocabulary to the tokens that a set of texts needs: in the tokenizer, the embeddings and the output head.

Always kept: special and added tokens; byte tokens, where the tokenizer has them; all one-character tokens, at the
beginning of a word and inside, whose character is printable ASCII or occurs in the texts. Up to the limit follow the
other tokens of the texts, most frequent first (for BPE with the tokens they are merged from), the remaining
one-character tokens, and then the tokens that do not occur in the texts, in the tokenizer's own order, in which the
tokens come first that are frequent in general. Any text can still be encoded, though it may take more tokens. A
character becomes unknown only if its token is dropped, and that happens only to characters that do not occur in the
texts.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from probescale.errors import ProofFailed, UserError
from probescale.models.loading import LoadedModel, empty_weights
from probescale.models.proof.comparison import compare_in_memory, load_options
from probescale.models.proof.reference import NARROW_TOLERANCE, Reference, example_inputs, run_model
from probescale.models.shrink.tokenizer import TokenizerVocabulary, rebuild_tokenizer
from probescale.models.surgery import build_like

C = TypeVar("C", PreTrainedConfig, GenerationConfig)
FIELD = "shrink.vocabulary"
BATCH = 1000  # texts tokenized at a time
PLACEHOLDER = re.compile(r"[\[<|]*(unused|reserved|extra_id|madeupword)\w*[\]>|]*")  # tokens that no text has


def count_tokens(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], pairs: Iterable[str] | None = None
) -> Counter[str]:
    """How often each token occurs in the full texts, and in the second texts of pairs, without special tokens."""
    counts: Counter[int] = Counter()
    all_texts = chain(texts, pairs or ())
    while batch := list(islice(all_texts, BATCH)):
        plain = {"add_special_tokens": False, "truncation": False, "padding": False, "verbose": False}
        counts.update(chain.from_iterable(tokenizer(batch, **plain)["input_ids"]))  # type: ignore[arg-type]
    tokens = tokenizer.convert_ids_to_tokens(list(counts))
    return Counter(dict(zip(tokens, counts.values(), strict=True)))


def required_tokens(tokenizer: PreTrainedTokenizerBase, counts: Mapping[str, int] | None = None) -> frozenset[int]:
    """Ids of the tokens that are kept whatever the limit, without those that the model's config names."""
    return frozenset(TokenizerVocabulary(tokenizer).required_ids(_characters(counts or {})))


def count_needed(loaded: LoadedModel, counts: Mapping[str, int]) -> int:
    """How many tokens texts need: their own, those that BPE merges these from, and those that are always kept."""
    vocabulary, named = TokenizerVocabulary(loaded.tokenizer), _ids_in_settings(loaded.model)
    needed = vocabulary.required_ids(_characters(counts)) | named
    for token in counts.keys() & vocabulary.ids.keys():
        if counts[token] > 0:
            needed |= {vocabulary.ids[token]} | vocabulary.merge_parts(vocabulary.ids[token])
    return len(needed)


def expected_shares(tokenizer: PreTrainedTokenizerBase, counts: Mapping[str, int]) -> dict[str, float]:
    """The share of every token in new texts of the same kind, in the order in which tokens are kept.

    All tokens that the texts do not have get the share of those that they have once (Good and Turing's estimate), taken
    from every token alike (absolute discounting) and divided by Zipf's law in the tokenizer's own order.
    """
    seen = {token: count for token, count in Counter(counts).most_common() if count > 0}
    once, total = sum(count == 1 for count in seen.values()), max(sum(seen.values()), 1)
    tokens = TokenizerVocabulary(tokenizer).tokens
    others = [token for _, token in sorted(tokens.items()) if token not in seen and not PLACEHOLDER.fullmatch(token)]
    weights = [1 / (place + len(seen)) for place in range(1, len(others) + 1)]
    whole = sum(weights)
    known = {token: (count - once / len(seen)) / total for token, count in seen.items()}
    new = {token: once / total * weight / whole for token, weight in zip(others, weights, strict=True)}
    return known | new


def trim_vocabulary(
    loaded: LoadedModel, counts: Mapping[str, int], size: int | None = None, *, share: bool = False
) -> LoadedModel:
    """A new model of the same stock class with at most `size` tokens, in their old order. The parent is not changed.

    `counts`: how often each token occurs. Without `size`, the tokens that occur are kept.
    `share`: use the parent's memory for the weights that stay the same.
    """
    vocabulary = TokenizerVocabulary(loaded.tokenizer)
    kept = _choose_ids(vocabulary, counts, _ids_in_settings(loaded.model), size)
    new_ids = {old: new for new, old in enumerate(kept)}
    rows = [number for number in kept if number < loaded.model.config.vocab_size]  # special tokens may have no row

    def config() -> PreTrainedConfig:
        smaller = _renumber(loaded.model.config, new_ids)
        smaller.vocab_size = len(rows)
        return smaller

    child = build_like(loaded, config, _weights(loaded.model, config(), rows, share=share))
    if loaded.model.can_generate() and child.model.generation_config is not None:
        child.model.generation_config = _renumber(child.model.generation_config, new_ids)
    tokenizer = rebuild_tokenizer(loaded.tokenizer, vocabulary.restrict(new_ids), child.model.config)
    child = replace(child, own_tokenizer=tokenizer)
    _check_tokenizer(child, vocabulary, new_ids)
    _check_outputs(loaded, child, rows)
    return child


def _characters(counts: Mapping[str, int]) -> set[str]:
    return {character for token, count in counts.items() if count > 0 for character in token}


def _choose_ids(
    vocabulary: TokenizerVocabulary, counts: Mapping[str, int], named: set[int], size: int | None
) -> list[int]:
    """Ids of the tokens to keep, ascending; `named`: ids that the model's settings refer to."""
    kept = vocabulary.required_ids(_characters(counts)) | named
    if size is not None and len(kept) > size:
        raise UserError(
            f"{size} tokens are too few: {len(kept)} are needed to encode any text, or are special",
            field=FIELD,
            hint=f"give {len(kept)} or more; the full vocabulary has {len(vocabulary.tokens)} tokens",
        )
    limit = len(kept) + len(vocabulary.tokens) if size is None else size
    ids = vocabulary.ids
    by_id = {ids[token]: count for token, count in counts.items() if count > 0 and token in ids}
    ranked = sorted(by_id, key=lambda number: (-by_id[number], number))
    others = [number for number, token in sorted(vocabulary.tokens.items()) if not PLACEHOLDER.fullmatch(token)]
    others = others if size is not None else []  # without a limit, no more than the texts need
    for number in (*ranked, *sorted(vocabulary.characters), *others):
        missing = ({number} | vocabulary.merge_parts(number)) - kept
        if len(kept) + len(missing) <= limit:
            kept |= missing
    return sorted(kept)


def _ids_in_settings(model: PreTrainedModel) -> set[int]:
    """Ids of tokens that the model's config, generation settings or position table refer to."""
    settings = [vars(model.config), vars(model.generation_config) if model.can_generate() else {}]
    named = {number for values in settings for name in _token_settings(values) for number in _flat(values[name])}
    # Position tables that begin after the padding token's id: it must keep its id, and so must all tokens before it.
    token_table = model.get_input_embeddings().weight
    tables = [m for m in model.modules() if isinstance(m, nn.Embedding) and m.weight is not token_table]
    last = max((table.padding_idx for table in tables if table.padding_idx is not None), default=-1)
    return {number for number in (*named, *range(last + 1)) if 0 <= number < model.config.vocab_size}


def _token_settings(values: Mapping[str, Any]) -> list[str]:
    return [name for name, value in values.items() if name.endswith(("token_id", "token_ids")) and value is not None]


def _flat(value: int | Sequence[int]) -> Iterator[int]:
    yield from (value,) if isinstance(value, int) else value


def _renumber(settings: C, new_ids: Mapping[int, int]) -> C:
    """A copy with new token ids. An id without a token (GPT-2's default in a small model) stays as it is."""
    changed = copy.deepcopy(settings)
    for name in _token_settings(vars(settings)):
        value = getattr(settings, name)
        numbers = [new_ids.get(number, number) for number in _flat(value)]
        setattr(changed, name, numbers[0] if isinstance(value, int) else numbers)
    for name in ("suppress_tokens", "begin_suppress_tokens"):
        if getattr(settings, name, None):
            setattr(changed, name, [new_ids[number] for number in getattr(settings, name) if number in new_ids])
    if words := getattr(settings, "bad_words_ids", None):
        possible = [word for word in words if all(number in new_ids for number in word)]
        changed.bad_words_ids = [[new_ids[number] for number in word] for word in possible] or None
    return changed


def _weights(model: PreTrainedModel, config: PreTrainedConfig, rows: list[int], *, share: bool) -> dict[str, Tensor]:
    """The model's weights, with only these rows wherever the stock class has one per token."""
    with empty_weights():
        empty = type(model)(config, **load_options(model)).state_dict()
    weights: dict[str, Tensor] = {}
    for name, weight in model.state_dict().items():
        shape = empty[name].shape if name in empty else weight.shape
        axes = [axis for axis, (now, then) in enumerate(zip(weight.shape, shape, strict=True)) if now != then]
        for axis in axes:
            weight = weight.index_select(axis, torch.tensor(rows, device=weight.device))
        weights[name] = weight if share or axes else weight.clone()
    return weights


def _check_tokenizer(child: LoadedModel, vocabulary: TokenizerVocabulary, new_ids: Mapping[int, int]) -> None:
    """Refuse a tokenizer that does not give the kept tokens their new ids."""
    expected = {token: new_ids[number] for number, token in vocabulary.tokens.items() if number in new_ids}
    if child.tokenizer.get_vocab() != expected:
        raise ProofFailed(f"{type(child.tokenizer).__name__} does not number its remaining tokens in their order")


def _check_outputs(loaded: LoadedModel, child: LoadedModel, rows: list[int]) -> None:
    """Refuse a model whose outputs differ from its parent's for the same tokens."""
    inputs = example_inputs(child.model, child.family)
    old_ids = torch.tensor(rows)
    parent_inputs = {name: old_ids[value] if name.endswith("input_ids") else value for name, value in inputs.items()}
    expected = run_model(loaded.model, loaded.family, parent_inputs)
    for name, output in run_model(child.model, child.family, inputs).items():
        if output.shape != expected[name].shape:  # one value per token of the vocabulary
            expected[name] = expected[name][..., old_ids]
    reference = Reference("the parent with the same tokens", inputs, expected, [], NARROW_TOLERANCE)
    compare_in_memory(child.model, child.family, reference)
