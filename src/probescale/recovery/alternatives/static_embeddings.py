"""Static embeddings: one vector per token, distilled from the encoder with model2vec; a text is their mean.

Only where model2vec is installed (`pip install "probescale[static]"`): it runs the encoder on every token of the
vocabulary, which takes minutes without a GPU (gte-small: 4 to 7 on two cores).
"""

from __future__ import annotations

import copy
import io
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stderr
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from probescale.errors import first_line
from probescale.models.family import backbone
from probescale.models.loading import LoadedModel
from probescale.recovery.alternatives.dense_probe import fit_dense_probe
from probescale.recovery.alternatives.lessons import LessonSource
from probescale.recovery.alternatives.simple_model import SimpleModel
from probescale.tasks.data import Data
from probescale.utils.progress import console

NAME = "static embeddings (model2vec)"
DIMENSIONS = 256  # model2vec's default
MOST_TEXTS = 20_000  # labelled, and as many unlabelled: a probe of 256 weights per class hardly gains from more


def fit_static_embeddings(source: LessonSource, loaded: LoadedModel) -> SimpleModel | None:
    """Embeddings of 256 numbers with a linear probe; None without model2vec, for words, or if it refuses the model."""
    if find_spec("model2vec") is None or source.train.per_word:
        return None
    try:
        static = distill_static(loaded)
    except Exception as error:  # whatever the library raises for a tokenizer or a model that it does not know
        console.print(f"note: no {NAME}: {first_line(error)}", soft_wrap=True)
        return None
    lessons = source.draw(MOST_TEXTS, MOST_TEXTS)
    encode = partial(_encode, static)
    probe = fit_dense_probe(lessons, encode(lessons.data))
    return SimpleModel(NAME, encode, probe, static.embedding.size + probe.weights.size + probe.bias.size)


def distill_static(loaded: LoadedModel) -> Any:  # noqa: ANN401 - model2vec's StaticModel; it is not always installed
    """Distill a copy of the model in memory: nothing is fetched, and the library changes its embeddings."""
    from model2vec.distill import distill_from_model  # pyright: ignore[reportMissingImports]

    # The library draws a progress bar of its own, also into log files.
    with nullcontext() if console.is_terminal else redirect_stderr(io.StringIO()):
        return distill_from_model(copy.deepcopy(backbone(loaded.model)), loaded.tokenizer, pca_dims=DIMENSIONS)


def _encode(static: Any, data: Data) -> np.ndarray:  # noqa: ANN401
    """(texts, features) embeddings; of a pair, both, their distance and their product, as SentEval does."""
    first, *second = (embed_static(static, texts) for texts in zip(*data.inputs, strict=True))
    return np.concatenate([first, *(np.hstack([b, np.abs(first - b), first * b]) for b in second)], 1)


def embed_static(static: Any, texts: Sequence[str]) -> np.ndarray:  # noqa: ANN401
    """(texts, 256) the means of the vectors of their tokens."""
    # One process: the library would start others for many texts, each with all the libraries loaded.
    return np.asarray(static.encode(list(texts), use_multiprocessing=False), np.float32)
