"""Smaller beside the layers: fewer pieces in the vocabulary, narrower embeddings, fewer feed-forward units."""

from __future__ import annotations

from collections import Counter
from functools import cached_property

import numpy as np

from probescale.errors import ProofFailed
from probescale.models.counting import count_parameters
from probescale.models.loading import LoadedModel
from probescale.models.parameters import Parameters
from probescale.models.shrink.embeddings import embedding_parameters, factorise_embeddings, parameters_per_token
from probescale.models.shrink.units import UnitScores, count_units, keep_units, parameters_per_unit, score_units
from probescale.models.shrink.vocabulary import count_tokens, trim_vocabulary
from probescale.models.subsets import Subset
from probescale.tasks.data import Data
from probescale.utils.files import Record

UNIT_TEXTS = 500  # on which feed-forward units are scored: every token of them counts


class ShrinkPlan(Record):
    """How much of each part stays; None: all of it."""

    vocabulary: int | None = None  # pieces, at most
    rank: int | None = None  # width of the embeddings
    units: int | None = None  # feed-forward units of every layer

    def __bool__(self) -> bool:
        return any(value is not None for value in (self.vocabulary, self.rank, self.units))

    def __str__(self) -> str:
        """
        >>> str(ShrinkPlan(vocabulary=8000, rank=128))
        '8,000 pieces, embeddings 128 wide'
        """
        parts = [
            "" if self.vocabulary is None else f"{self.vocabulary:,} pieces",
            "" if self.rank is None else f"embeddings {self.rank} wide",
            "" if self.units is None else f"{self.units:,} feed-forward units a layer",
        ]
        return ", ".join(part for part in parts if part) or "all pieces, full width"


class Shrinker:
    """Makes subnetworks of one model smaller, by what some texts need. The texts are read when they are needed."""

    def __init__(self, loaded: LoadedModel, texts: Data, *, max_length: int = 128) -> None:
        self.loaded, self.texts, self.max_length = loaded, texts, max_length
        self.whole = count_parameters(loaded.model, loaded.family)
        self._last: Shrinker | None = None

    def of(self, other: LoadedModel) -> Shrinker:
        """The same for other weights of the same model; what it has read is kept for the next one who asks."""
        if other is self.loaded:
            return self
        if self._last is None or self._last.loaded is not other:
            self._last = Shrinker(other, self.texts, max_length=self.max_length)
        return self._last

    @cached_property
    def counts(self) -> Counter[str]:
        """How often each piece occurs."""
        return count_tokens(self.loaded.tokenizer, self.texts.texts, self.texts.pairs)

    @cached_property
    def units(self) -> UnitScores:
        some = self.texts.take(np.unique(np.linspace(0, len(self.texts) - 1, UNIT_TEXTS).astype(int)).tolist())
        return score_units(self.loaded, some.texts, some.pairs, max_length=self.max_length)

    def parameters(self, how: ShrinkPlan) -> Parameters:
        """What the model would have, without making it."""
        model, family = self.loaded.model, self.loaded.family
        pieces = model.config.vocab_size if how.vocabulary is None else min(how.vocabulary, model.config.vocab_size)
        embeddings, layers = self.whole.embeddings, self.whole.layers
        if how.rank is not None:
            embeddings = embedding_parameters(model.config, pieces, how.rank)
        elif how.vocabulary is not None:
            embeddings -= (model.config.vocab_size - pieces) * parameters_per_token(model)
        if how.units is not None:
            fewer = (count_units(model, family) - how.units) * parameters_per_unit(model, family)
            layers = tuple(size - fewer for size in layers)
        smaller = {"embeddings": embeddings, "layers": layers, "original": self.whole}
        return self.whole.model_copy(update=smaller) if how else self.whole

    def apply(self, model: LoadedModel, kept: Subset, how: ShrinkPlan) -> LoadedModel:
        """A smaller copy of the subnetwork with these layers; it has no more parameters than were counted."""
        if how.units is not None:
            scores, means = self.units.scores, self.units.means
            model = keep_units(model, how.units, [scores[n - 1] for n in kept], [means[n - 1] for n in kept])
        if how.vocabulary is not None:
            model = trim_vocabulary(model, self.counts, how.vocabulary)
        if how.rank is not None:
            counts = count_tokens(model.tokenizer, self.texts.texts, self.texts.pairs)  # of the pieces that are left
            numbers = np.zeros(model.model.config.vocab_size)
            for piece, count in counts.items():
                numbers[model.tokenizer.convert_tokens_to_ids(piece)] = count
            model = factorise_embeddings(model, how.rank, numbers)
        found, most = count_parameters(model.model, model.family).total, self.parameters(how).of(kept)
        if found > most:
            raise ProofFailed(f"{most:,} parameters were counted for {how}, and there are {found:,}")
        return model
