"""The pre-trained encoder as it is: nothing of it is fine-tuned, only a linear probe on its last layer."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from probescale.models.family import backbone
from probescale.models.loading import LoadedModel
from probescale.models.subsets import format_subset
from probescale.probing.cache import Store
from probescale.probing.represent import PassSettings, Request, represent
from probescale.recovery.alternatives.dense_probe import fit_dense_probe
from probescale.recovery.alternatives.lessons import LessonSource
from probescale.recovery.alternatives.simple_model import SimpleModel
from probescale.recovery.alternatives.timing import tokenize_one
from probescale.recovery.states import capture_states, mean_over_tokens
from probescale.tasks.data import Data

# At most so many labelled texts, and as many unlabelled ones, go through the encoder, beside those of dev: gte-small
# takes half a minute for 2,000 short sentences on one core. A probe of a few hundred weights hardly gains from more.
MOST_TEXTS = 2_000
WORDS_PER_TEXT = 10  # where words are tagged, about; the limit is one of words then


def fit_frozen_encoder(
    source: LessonSource, loaded: LoadedModel, max_length: int, most_texts: int = MOST_TEXTS
) -> SimpleModel:
    """The mean of the last layer's states (for words: the state of the first token) with a linear probe."""
    most = min(most_texts, MOST_TEXTS) * (WORDS_PER_TEXT if source.train.per_word else 1)
    lessons = source.draw(most, most)
    encode = partial(_encode, loaded, max_length)
    probe = fit_dense_probe(lessons, encode(lessons.data))
    params = sum(parameter.numel() for parameter in backbone(loaded.model).parameters())
    params += probe.weights.size + probe.bias.size
    return SimpleModel("frozen encoder", encode, probe, params, partial(_encode_one, loaded, max_length))


def _encode(loaded: LoadedModel, max_length: int, data: Data) -> np.ndarray:
    """(rows, hidden) the state of every text or word; NaN for words beyond the length limit."""
    starts = np.cumsum(data.rows_per_input) - data.rows_per_input
    every_layer = tuple(range(1, loaded.layers + 1))
    settings = PassSettings(max_length=max_length, subnetworks=(every_layer,), title="frozen encoder")
    request = Request(data.fully_labelled(), "token" if data.per_word else "mean")
    with Store.open(keep=False) as store:
        [features] = represent(loaded, [request], store, settings)
        states = features.load(format_subset(every_layer), np.arange(len(features)))
    result = np.full((int(data.rows_per_input.sum()), states.shape[1]), np.nan, np.float32)
    result[starts[features.inputs] + features.words] = states
    return result


def _encode_one(loaded: LoadedModel, max_length: int, one: Data) -> np.ndarray:
    """The state of one text, without a detour over files; for words, the states of all tokens: it takes as long."""
    inputs = tokenize_one(loaded, one, max_length)
    last = loaded.family.layers(loaded.model)[-1]
    with torch.inference_mode(), capture_states([last]) as captured:
        backbone(loaded.model)(**inputs)
        states = captured[0][0] if one.per_word else mean_over_tokens(captured, inputs["attention_mask"])[:, 0]
    return states.float().cpu().numpy()
