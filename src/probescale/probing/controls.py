"""What a probe is compared with: control labels, text-only baselines, and a model with random weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import transformers

from probescale.errors import ProbeScaleError
from probescale.models.family import backbone
from probescale.models.loading import LoadedModel, compute_fingerprint
from probescale.probing.probes.closed_form import MANY_CLASSES
from probescale.probing.targets import ProbeLabels
from probescale.tasks.sampling import seeded_draw


def draw_control_labels(target: ProbeLabels, keys: Sequence[str], seed: int) -> ProbeLabels:
    """Labels of a control task (Hewitt & Liang): random, but always the same for the same key (a word or an input).

    Each key draws one of the real labels, so that the class frequencies stay about the same.
    """
    rows = {key: seeded_draw(key, seed) % len(target) for key in dict.fromkeys(keys)}
    return target[np.array([rows[key] for key in keys])]


def predict_majority(train: ProbeLabels, held_out: ProbeLabels) -> np.ndarray:
    """Predict the most frequent label (for numbers: the mean) for every held-out row."""
    return held_out.predict(train.prior_logits(len(held_out)))


def predict_bag_of_words(
    texts: Sequence[Sequence[str]], target: ProbeLabels, parts: tuple[slice, slice, slice]
) -> np.ndarray:
    """Predict the held-out rows with a probe on TF-IDF weights; a row is a text, a pair of texts, or a word."""
    from scipy.sparse import csr_matrix, hstack
    from sklearn.feature_extraction.text import TfidfVectorizer

    fit, tuning, held_out = parts
    train = slice(0, tuning.stop)
    features = []
    for column in zip(*texts, strict=True):  # first texts, second texts
        vectorizer = TfidfVectorizer(token_pattern=r"\S+").fit(column[train])
        features.append(vectorizer.transform(column))
    rows = csr_matrix(hstack(features))
    classes = len(np.unique(target.values[train])) if target.kind == "class" else 0

    def score(strength: float) -> float:
        predicted = (
            _sparse_probe(target.kind, strength, classes).fit(rows[fit], target.values[fit]).predict(rows[tuning])
        )
        truth = target.values[tuning]
        return -float(np.mean((predicted - truth) ** 2 if target.kind == "number" else predicted != truth))

    best = max((1.0, 10.0), key=score)
    return _sparse_probe(target.kind, best, classes).fit(rows[train], target.values[train]).predict(rows[held_out])


def _sparse_probe(kind: str, strength: float, classes: int) -> Any:  # noqa: ANN401 - one of scikit-learn's estimators
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.neighbors import KNeighborsRegressor

    if kind == "number":
        return Ridge(alpha=1 / strength)
    if classes > MANY_CLASSES:  # a linear probe would take minutes; the label of the nearest text is used instead
        return KNeighborsRegressor(n_neighbors=1, metric="cosine")  # KNeighborsClassifier warns about so many classes
    logistic = LogisticRegression(C=strength, max_iter=1000)
    return OneVsRestClassifier(logistic) if kind == "multi" else logistic


@dataclass(frozen=True)
class RandomnessProof:
    """Evidence that weights are random: number of matrices compared with trained ones, and the largest correlation."""

    matrices: int
    largest_correlation: float


def with_random_weights(loaded: LoadedModel, seed: int) -> tuple[LoadedModel, RandomnessProof]:
    """The same architecture with random weights, built from its config; and the proof that it is not trained."""
    trained = backbone(loaded.model)
    transformers.set_seed(seed)
    model = type(loaded.model)(loaded.model.config).to(loaded.model.device).eval()  # type: ignore[call-arg]
    proof = _prove_randomness(trained.state_dict(), backbone(model).state_dict())
    source = f"{loaded.source} (random)"
    return replace(loaded, model=model, fingerprint=compute_fingerprint(model), source=source), proof


def _prove_randomness(trained: dict[str, torch.Tensor], random: dict[str, torch.Tensor]) -> RandomnessProof:
    correlations = []
    for name, weight in random.items():
        if weight.ndim < 2 or weight.numel() < 256:
            continue
        pair = torch.stack([trained[name].flatten().float(), weight.flatten().float()])
        # A constant matrix has no correlation: compare it directly.
        same = 1.0 if torch.equal(*pair) else 0.0
        correlations.append(max(same, abs(float(torch.corrcoef(pair)[0, 1].nan_to_num()))))
    largest = max(correlations)
    if not largest < 0.5:
        raise ProbeScaleError(
            f"the random weights correlate with the trained ones ({largest:.2f}): they are not random"
        )
    return RandomnessProof(len(correlations), largest)
