"""What every layer knows of the next token, in bits: a tuned lens, fitted in closed form.

An affine map takes the states of a layer to those of the last one (Belrose et al., 2303.08112); the model's own norm
and head then predict the next token. States are taken in units of their own length, as the norm would: a few tokens
whose states are enormous would decide the fit alone. The raw logit lens, without the map, stands beside.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from probescale.models.block_calls import BlockCalls, record_calls
from probescale.models.family import backbone
from probescale.models.loading import LoadedModel
from probescale.models.packing import Blocks, pack
from probescale.models.proof.child import without_cache
from probescale.probing.scores import Curve, ProbeResult
from probescale.tasks.documents import Documents
from probescale.utils.progress import progress

LENS_TOKENS = 32_768  # that the maps are fitted on
SCORED_ROWS, RAW_ROWS = 1024, 256  # tokens that are predicted at every layer, with the map and without
SCORED_SHARE = 0.2  # of the documents: the maps are fitted on the others
PENALTY = 1e-3  # of the ridge regression, in comparison with the variance of the states
DRAWS = 100
BATCH = 1024  # tokens


@dataclass
class _Moments:
    """Sums over all tokens, from which the map of one layer is computed: memory does not grow with the text."""

    width: int
    count: float = 0.0
    inputs: Tensor = field(init=False)  # (width + 1, width + 1); the last is the constant 1
    outputs: Tensor = field(init=False)  # (width + 1, width)

    def __post_init__(self) -> None:
        self.inputs = torch.zeros(self.width + 1, self.width + 1, dtype=torch.float64)
        self.outputs = torch.zeros(self.width + 1, self.width, dtype=torch.float64)

    def add(self, states: Tensor, last: Tensor) -> None:
        """States of a layer and of the last one, (tokens, width) each."""
        extended = torch.cat([states, states.new_ones(len(states), 1)], 1)
        self.inputs += (extended.T @ extended).double().cpu()
        self.outputs += (extended.T @ last).double().cpu()
        self.count += len(states)

    def solve(self) -> Tensor:
        """(width + 1, width) the affine map; its constant is not penalised."""
        penalty = PENALTY * self.inputs.diagonal()[:-1].mean()
        ridge = torch.diag(torch.cat([penalty.expand(self.width), penalty.new_zeros(1)]))
        return torch.linalg.solve(self.inputs + ridge, self.outputs).float()


def probe_next_token(
    loaded: LoadedModel, train: Documents, *, weight: float, length: int, seed: int, metric: str = "information"
) -> ProbeResult:
    """V of Eq. 1 for a generative model: bits that a layer saves, in comparison with token frequencies alone."""
    fitted, scored = (pack(loaded.tokenizer, part, length) for part in _split(train, seed))
    maps = _fit(loaded, fitted)
    places = _draw_rows(scored, seed)
    nats, right, raw = _score(loaded, scored, maps, places)  # (points, rows) each; point 0: the embeddings
    targets = scored.targets[np.concatenate(places)]
    frequencies = _unigram_nats(fitted, targets, loaded.model.config.vocab_size)
    saved, raw_saved = (frequencies[: part.shape[1]] - part for part in (nats, raw))
    measures = {
        "information": _curve(saved / np.log(2), seed),
        "accuracy": _curve(right, seed),
        "logit_lens": _curve(raw_saved / np.log(2), seed),
    }
    chosen = saved / np.log(2) if metric == "information" else right
    return ProbeResult(
        scores=measures[metric].values,
        weight=weight,
        metric=metric,
        measures=measures,
        embeddings={
            name: float(values[0].mean()) for name, values in (("information", saved / np.log(2)), ("accuracy", right))
        },
        draws=tuple(tuple(row) for row in _resample(chosen[1:], seed).T.round(6).tolist()),
        floors={
            "majority": float((targets == np.bincount(fitted.targets).argmax()).mean()),
            "embeddings": float(right[0].mean()),
        },
        bits={
            "token frequencies": float(frequencies.mean() / np.log(2)),
            "the whole model": float(nats[-1].mean() / np.log(2)),
        },
        pooling="token",
        target="token",
        train=int(sum(fitted.tokens.lengths)),
        validation=nats.shape[1],
    )


def _split(train: Documents, seed: int) -> tuple[Documents, Documents]:
    """Documents to fit the maps on, about as long as needed, and others to score them on."""
    order = np.random.default_rng(seed).permutation(len(train)).tolist()
    first = max(round(SCORED_SHARE * len(order)), 1)
    scored, fitted = order[:first], order[first:] or order[:first]
    return train.take(_enough(train, fitted, 5 * LENS_TOKENS)), train.take(_enough(train, scored, 20 * SCORED_ROWS))


def _enough(train: Documents, rows: list[int], characters: int) -> list[int]:
    sizes = np.cumsum([len(train.texts[row]) for row in rows])
    return sorted(rows[: int(np.searchsorted(sizes, characters)) + 1])


def _batches(loaded: LoadedModel, blocks: Blocks) -> Iterator[tuple[np.ndarray, dict[str, Tensor]]]:
    """Numbers of blocks, and their padded tokens."""
    size = max(BATCH // max(int(blocks.tokens.lengths.max()), 1), 1)
    for first in range(0, len(blocks.tokens), size):
        numbers = np.arange(first, min(first + size, len(blocks.tokens)))
        rows = [blocks.tokens[int(number)] for number in numbers]
        fields = {name: [row[name] for row in rows] for name in blocks.tokens.fields}
        padded = loaded.tokenizer.pad(fields, return_tensors="pt")
        yield numbers, {name: value.to(loaded.model.device) for name, value in padded.items()}


def _states(calls: BlockCalls) -> list[Tensor]:
    """The embeddings and the output of every layer, each token's in units of its own length."""
    return [_unit(state.float()) for state in (calls.embedded, *calls.outputs)]


def _unit(state: Tensor) -> Tensor:
    return state / state.pow(2).mean(-1, keepdim=True).sqrt().clamp(min=1e-6)


@torch.inference_mode()
def _fit(loaded: LoadedModel, fitted: Blocks) -> list[Tensor]:
    """The map of every point. The head is not needed for it, which is why this pass costs less than a bare one."""
    model, layers = backbone(loaded.model), list(loaded.family.layers(loaded.model))
    moments = [_Moments(model.config.hidden_size) for _ in range(len(layers) + 1)]
    done = 0
    with progress("what layers know of the next token", len(fitted.tokens)) as advance:
        for numbers, inputs in _batches(loaded, fitted):
            calls = record_calls(layers, lambda inputs=inputs: model(**inputs, **without_cache(model)), outputs=True)
            real = inputs["attention_mask"].bool()
            real[:, 0] = False  # a first token's state is often far from all others
            states = [state[real] for state in _states(calls)]
            for moment, state in zip(moments, states, strict=True):
                moment.add(state, states[-1])
            done += int(real.sum())
            advance(len(numbers))
            if done >= LENS_TOKENS:
                break
    return [moment.solve() for moment in moments]


def _draw_rows(scored: Blocks, seed: int) -> list[np.ndarray]:
    """For every block, the rows to score: about as many in all as are wanted, spread over the text."""
    rows = np.random.default_rng(seed).permutation(len(scored.targets))[:SCORED_ROWS]
    return [np.intersect1d(scored.rows_of(block), rows) for block in range(len(scored.tokens))]


@torch.inference_mode()
def _score(
    loaded: LoadedModel, scored: Blocks, maps: list[Tensor], places: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(points, rows) nats with the map, whether the likeliest token is right, and nats of the first rows without it."""
    layers = list(loaded.family.layers(loaded.model))
    nats, right, raw = ([[] for _ in maps] for _ in range(3))
    done = 0
    for block, wanted in enumerate(places):
        if not len(wanted):
            continue
        reader = _Reader.record(loaded, layers, scored, block, wanted)
        for point, (state, mapping) in enumerate(zip(_states(reader.calls), maps, strict=True)):
            mapped = state @ mapping[:-1].to(state) + mapping[-1].to(state)
            own, hits = reader.predict(mapped if point < len(maps) - 1 else reader.last)
            nats[point].append(own)
            right[point].append(hits)
            if done < RAW_ROWS:
                raw[point].append(reader.predict(reader.raw(point))[0])
        done += len(wanted)
    together = [np.stack([np.concatenate(part) for part in kind]) for kind in (nats, right, raw)]
    return together[0], together[1], together[2]


@dataclass(frozen=True)
class _Reader:
    """One block of text, and the model's own norm and head for any state of it."""

    loaded: LoadedModel
    inputs: dict[str, Tensor]
    calls: BlockCalls
    places: Tensor  # tokens that predict the wanted rows
    targets: Tensor

    @classmethod
    def record(cls, loaded: LoadedModel, layers: list, scored: Blocks, block: int, wanted: np.ndarray) -> _Reader:
        model = loaded.model
        tokens = scored.tokens[block]
        inputs = {name: torch.tensor([values]).to(model.device) for name, values in tokens.items()}
        calls = record_calls(layers, lambda: backbone(model)(**inputs, **without_cache(model)), outputs=True)
        places = torch.from_numpy(np.flatnonzero(np.isin(scored.rows_of(block), wanted))).to(model.device)
        targets = torch.from_numpy(scored.targets[wanted]).long().to(model.device)
        return cls(loaded, inputs, calls, places, targets)

    @property
    def last(self) -> Tensor:
        return self.calls.outputs[-1]

    def raw(self, point: int) -> Tensor:
        return (self.calls.embedded, *self.calls.outputs)[point]

    def predict(self, state: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Nats of the wanted rows, and whether the likeliest token is right."""
        model = self.loaded.model
        few = {"logits_to_keep": self.places} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}
        with self.calls.returning(state):
            logits = model(**self.inputs, **few, **without_cache(model)).logits[0]
        logits = logits if few else logits[self.places]
        nats = cross_entropy(logits.float(), self.targets, reduction="none")
        return nats.cpu().numpy(), (logits.argmax(-1) == self.targets).float().cpu().numpy()


def _unigram_nats(fitted: Blocks, targets: np.ndarray, vocabulary: int) -> np.ndarray:
    """(rows,) the nats of these tokens by their frequency in the other texts; each token counts once more."""
    counts = np.bincount(fitted.targets, minlength=vocabulary) + 1.0
    return -np.log(counts / counts.sum())[targets]


def _curve(values: np.ndarray, seed: int) -> Curve:
    """Means of (points, rows) at every layer, with intervals over the rows."""
    layers = values[1:]
    low, high = np.quantile(_resample(layers, seed), (0.025, 0.975), axis=1)
    return Curve(values=tuple(layers.mean(1).tolist()), low=tuple(low.tolist()), high=tuple(high.tolist()))


def _resample(values: np.ndarray, seed: int) -> np.ndarray:
    """(layers, draws) means over the same resampled rows in all layers."""
    rng = np.random.default_rng(seed)
    return np.stack([values[:, rng.integers(values.shape[1], size=values.shape[1])].mean(1) for _ in range(DRAWS)], 1)
