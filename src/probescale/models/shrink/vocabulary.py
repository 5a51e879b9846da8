"""A smaller vocabulary: the pieces that some texts need, in the tokenizer, the embeddings, and the output head.

What stays, whatever the texts: special and added pieces; bytes, where the tokenizer spells with them; every piece of
one character that is printable ASCII or part of a piece in the texts, at the beginning of a word and inside. Then come
the other pieces of the texts, the most frequent first (BPE: each with the pieces it is merged from), and last the
remaining pieces of one character. Without a limit all of these stay. Any text still encodes, if need be with more
pieces; a character becomes unknown only if its own piece had to go, so only one that is foreign to the texts.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
BATCH = 1000  # texts that are read at a time


def count_tokens(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], pairs: Iterable[str] | None = None
) -> Counter[str]:
    """How often each piece occurs in whole texts, and in the second ones of pairs; without the special ones around."""
    counts: Counter[int] = Counter()
    every = chain(texts, pairs or ())
    while batch := list(islice(every, BATCH)):
        plain = {"add_special_tokens": False, "truncation": False, "padding": False, "verbose": False}
        counts.update(chain.from_iterable(tokenizer(batch, **plain)["input_ids"]))  # type: ignore[arg-type]
    names = tokenizer.convert_ids_to_tokens(list(counts))
    return Counter(dict(zip(names, counts.values(), strict=True)))


def required_tokens(tokenizer: PreTrainedTokenizerBase, counts: Mapping[str, int] | None = None) -> frozenset[int]:
    """Numbers of the pieces that stay whatever the limit; what a model's config names comes on top of them."""
    return frozenset(TokenizerVocabulary(tokenizer).always(_characters(counts or {})))


def trim_vocabulary(
    loaded: LoadedModel, counts: Mapping[str, int], size: int | None = None, *, share: bool = False
) -> LoadedModel:
    """A new model of the same stock class that knows only some pieces, in their old order; at most `size` of them.

    The parent is left as it is. `share` makes the new model use the parent's memory for what stays whole.
    """
    pieces = TokenizerVocabulary(loaded.tokenizer)
    kept = _chosen(pieces, counts, _named(loaded.model), size)
    new = {number: at for at, number in enumerate(kept)}
    rows = [number for number in kept if number < loaded.model.config.vocab_size]  # special pieces may have none

    def config() -> PreTrainedConfig:
        smaller = _renumbered(loaded.model.config, new)
        smaller.vocab_size = len(rows)
        return smaller

    child = build_like(loaded, config, _weights(loaded.model, config(), rows, share=share))
    if loaded.model.can_generate() and child.model.generation_config is not None:
        child.model.generation_config = _renumbered(child.model.generation_config, new)
    child = replace(child, tokenizer=rebuild_tokenizer(loaded.tokenizer, pieces.only(new), child.model.config))
    _prove(loaded, child, pieces, rows, new)
    return child


@dataclass(frozen=True)
class VocabularySummary:
    """What became of a vocabulary, for reports."""

    before: int  # pieces
    after: int
    covered: float  # share of the counted pieces that are still one piece


def summarise_vocabulary(
    before: PreTrainedTokenizerBase, after: PreTrainedTokenizerBase, counts: Mapping[str, int]
) -> VocabularySummary:
    still = after.get_vocab()
    covered = sum(count for piece, count in counts.items() if piece in still)
    return VocabularySummary(len(before), len(after), covered / max(sum(counts.values()), 1))


def _characters(counts: Mapping[str, int]) -> set[str]:
    return {character for piece, count in counts.items() if count > 0 for character in piece}


def _chosen(pieces: TokenizerVocabulary, counts: Mapping[str, int], named: set[int], size: int | None) -> list[int]:
    """Old numbers of the pieces that stay, ascending."""
    kept = pieces.always(_characters(counts)) | named
    if size is not None and len(kept) > size:
        raise UserError(
            f"{size} pieces are too few: {len(kept)} are needed to write any text, or are special",
            field=FIELD,
            hint=f"give {len(kept)} or more; the {len(pieces.names)} pieces of the whole vocabulary are the most",
        )
    room = len(kept) + len(pieces.names) if size is None else size
    numbers = pieces.numbers
    found = {numbers[piece]: count for piece, count in counts.items() if count > 0 and piece in numbers}
    ranked = sorted(found, key=lambda number: (-found[number], number))
    for number in (*ranked, *sorted(pieces.characters)):
        missing = ({number} | pieces.parts(number)) - kept
        if len(kept) + len(missing) <= room:
            kept |= missing
    return sorted(kept)


def _named(model: PreTrainedModel) -> set[int]:
    """Numbers that the model itself knows pieces by."""
    settings = [vars(model.config), vars(model.generation_config) if model.can_generate() else {}]
    named = {number for values in settings for name in _token_settings(values) for number in _flat(values[name])}
    # Position tables that begin behind the padding piece: it has to keep its number, and so do all before it.
    pieces = model.get_input_embeddings().weight
    tables = [m for m in model.modules() if isinstance(m, nn.Embedding) and m.weight is not pieces]
    last = max((table.padding_idx for table in tables if table.padding_idx is not None), default=-1)
    return {number for number in (*named, *range(last + 1)) if 0 <= number < model.config.vocab_size}


def _token_settings(values: Mapping[str, Any]) -> list[str]:
    return [name for name, value in values.items() if name.endswith(("token_id", "token_ids")) and value is not None]


def _flat(value: int | Sequence[int]) -> Iterator[int]:
    yield from (value,) if isinstance(value, int) else value


def _renumbered(settings: C, new: Mapping[int, int]) -> C:
    """A copy with the new numbers of pieces; a number that names no piece (GPT-2's default in a small model) stays."""
    changed = copy.deepcopy(settings)
    for name in _token_settings(vars(settings)):
        value = getattr(settings, name)
        numbers = [new.get(number, number) for number in _flat(value)]
        setattr(changed, name, numbers[0] if isinstance(value, int) else numbers)
    for name in ("suppress_tokens", "begin_suppress_tokens"):
        if getattr(settings, name, None):
            setattr(changed, name, [new[number] for number in getattr(settings, name) if number in new])
    if words := getattr(settings, "bad_words_ids", None):
        possible = [word for word in words if all(number in new for number in word)]
        changed.bad_words_ids = [[new[number] for number in word] for word in possible] or None
    return changed


def _weights(model: PreTrainedModel, config: PreTrainedConfig, rows: list[int], *, share: bool) -> dict[str, Tensor]:
    """The model's weights with these rows alone, wherever the stock class has one for every piece."""
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


def _prove(
    loaded: LoadedModel, child: LoadedModel, pieces: TokenizerVocabulary, rows: list[int], new: Mapping[int, int]
) -> None:
    """The smaller model answers as its parent does to the same pieces, and its tokenizer has them where it should."""
    wanted = {piece: new[number] for number, piece in pieces.names.items() if number in new}
    if child.tokenizer.get_vocab() != wanted:
        raise ProofFailed(f"{type(child.tokenizer).__name__} does not number its remaining pieces in their order")
    inputs = example_inputs(child.model, child.family)
    old = torch.tensor(rows)
    same = {name: old[value] if name.endswith("input_ids") else value for name, value in inputs.items()}
    answers = run_model(loaded.model, loaded.family, same)
    for name, found in run_model(child.model, child.family, inputs).items():
        if found.shape != answers[name].shape:  # one number for every piece
            answers[name] = answers[name][..., old]
    reference = Reference("the parent with the same tokens", inputs, answers, [], NARROW_TOLERANCE)
    compare_in_memory(child.model, child.family, reference)
