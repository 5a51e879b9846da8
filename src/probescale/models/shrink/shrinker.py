"""Shrink more than the number of layers: vocabulary size, embedding size, feed-forward width."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from functools import cached_property

import numpy as np
from transformers import PreTrainedModel

from probescale.config import ShrinkConfig
from probescale.errors import ProofFailed
from probescale.models.counting import count_parameters
from probescale.models.family import Family
from probescale.models.loading import LoadedModel
from probescale.models.packing import pack
from probescale.models.parameters import Parameters
from probescale.models.shrink.embeddings import (
    embedding_parameters,
    factorise_embeddings,
    held_variances,
    parameters_per_token,
)
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.models.shrink.units import UnitMoments, count_units, keep_units, measure_units, parameters_per_unit
from probescale.models.shrink.vocabulary import count_tokens, trim_vocabulary
from probescale.models.subsets import Subset
from probescale.tasks.data import Data
from probescale.tasks.documents import Documents
from probescale.tasks.sampling import spread

UNIT_TEXTS = 1000  # texts on which feed-forward units are compared, by all of their tokens


class Shrinker:
    """Shrinks subnetworks of one model to what a set of texts needs. The texts are read on first use."""

    def __init__(self, loaded: LoadedModel, texts: Data, *, max_length: int = 128) -> None:
        self.loaded, self.texts, self.max_length = loaded, texts, max_length
        self.original = count_parameters(loaded.model, loaded.family)
        self.ways: dict[ShrinkConfig, list[ShrinkPlan]] = {}  # that settings allow: listed once for all sizes
        self._last: Shrinker | None = None
        self._fewer: tuple[frozenset[int], Shrinker] | None = None
        self._whole: Shrinker | None = None  # with more texts
        self._counts_by_id: dict[int | None, np.ndarray] = {}

    def for_model(self, other: LoadedModel) -> Shrinker:
        """A shrinker for other weights of the same architecture; the last one is kept, with what it has computed."""
        if other is self.loaded:
            return self
        if self._last is None or self._last.loaded is not other:
            self._last = Shrinker(other, self.texts, max_length=self.max_length)
        return self._last

    def without(self, rows: frozenset[int]) -> Shrinker:
        """The same with tokens chosen by all texts but these, which can then tell what missing tokens cost."""
        if not rows:
            return self
        if self._fewer is None or self._fewer[0] != rows:
            left = self.texts.take([row for row in range(len(self.texts)) if row not in rows])
            fewer = Shrinker(self.loaded, left, max_length=self.max_length)
            fewer._whole = self
            self._fewer = rows, fewer
        return self._fewer[1]

    @cached_property
    def token_counts(self) -> Counter[str]:
        """How often each token occurs in the texts; of conversations, also in what the chat template adds."""
        tokenizer, texts = self.loaded.tokenizer, self.texts
        counts = count_tokens(tokenizer, texts.texts, texts.pairs)
        if isinstance(texts, Documents) and texts.chats is not None:
            blocks = pack(tokenizer, texts, self.max_length).tokens
            counts.update(tokenizer.convert_ids_to_tokens(blocks.fields["input_ids"].tolist()))
        return counts

    @cached_property
    def unit_moments(self) -> UnitMoments:
        """What is known of all feed-forward units, on texts spread evenly over the data."""
        if self._whole:  # a few texts more or less hardly change it, and measuring takes long
            return self._whole.unit_moments
        some = self.texts.take(spread(len(self.texts), UNIT_TEXTS))
        return measure_units(self.loaded, some.texts, some.pairs, max_length=self.max_length)

    def count_parameters(self, plan: ShrinkPlan) -> Parameters:
        """Parameters of the shrunk model, counted without building it."""
        return count_shrunk(self.loaded.model, self.loaded.family, plan, self.original)

    def held_variances(self, ranks: Collection[int]) -> dict[int, float]:
        """For every embedding size, the share of the variance of token embeddings in the texts that it holds."""
        return held_variances(self.loaded, ranks, self._count_by_id(self.loaded, None)) if ranks else {}

    def shrink(self, model: LoadedModel, kept: Subset, plan: ShrinkPlan) -> LoadedModel:
        """A shrunk copy of the subnetwork with these layers, checked to have no more parameters than were counted."""
        if plan.units is not None:
            model = keep_units(model, plan.units, self.unit_moments, kept)
        if plan.vocabulary is not None:
            model = trim_vocabulary(model, self.token_counts, plan.vocabulary)
        if plan.rank is not None:
            model = factorise_embeddings(model, plan.rank, self._count_by_id(model, plan.vocabulary))
        total, counted = count_parameters(model.model, model.family).total, self.count_parameters(plan).of(kept)
        if total > counted:
            raise ProofFailed(f"{counted:,} parameters were counted for {plan}, but the model has {total:,}")
        return model

    def _count_by_id(self, model: LoadedModel, vocabulary: int | None) -> np.ndarray:
        """How often each token of the trimmed model occurs in the texts; counted once per size of the vocabulary."""
        if vocabulary not in self._counts_by_id:
            by_id = np.zeros(model.model.config.vocab_size)
            counts = self.token_counts
            if vocabulary is not None:
                counts = count_tokens(model.tokenizer, self.texts.texts, self.texts.pairs)
            for token, count in counts.items():
                by_id[model.tokenizer.convert_tokens_to_ids(token)] = count
            self._counts_by_id[vocabulary] = by_id
        return self._counts_by_id[vocabulary]


def count_shrunk(model: PreTrainedModel, family: Family, plan: ShrinkPlan, original: Parameters) -> Parameters:
    """Parameters of the shrunk model, counted without building it; the model may be on the meta device."""
    tokens = model.config.vocab_size if plan.vocabulary is None else min(plan.vocabulary, model.config.vocab_size)
    embeddings, layers = original.embeddings, original.layers
    if plan.rank is not None:
        embeddings = embedding_parameters(model.config, tokens, plan.rank)
    elif plan.vocabulary is not None:
        embeddings -= (model.config.vocab_size - tokens) * parameters_per_token(model)
    if plan.units is not None:
        fewer = (count_units(model, family) - plan.units) * parameters_per_unit(model, family)
        layers = tuple(size - fewer for size in layers)
    smaller = {"embeddings": embeddings, "layers": layers, "original": original}
    return original.model_copy(update=smaller) if plan else original
