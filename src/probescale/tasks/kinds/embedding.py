"""One vector per text, for search and similarity: the original's embeddings are what is learned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from probescale.config import DataConfig, TaskConfig
from probescale.errors import UserError
from probescale.tasks.data import Data
from probescale.tasks.kinds.kind import FEWEST, Kind, Rendered
from probescale.tasks.kinds.losses import EmbeddingDistance
from probescale.tasks.kinds.registry import task_kind
from probescale.tasks.passages import Passages
from probescale.tasks.read_passages import load_passages


@task_kind("embedding")
class Embedding(Kind):
    """One vector per text, for search and similarity. Texts need no labels: the original's embeddings are learned."""

    head = "none"
    labelled = False
    encodes = True
    loss = EmbeddingDistance()
    metrics = ("spearman", "pearson")
    pipeline_tag = "sentence-similarity"
    library = "sentence-transformers"
    named = False
    rows_called = "texts"
    answers = ("embedding",)
    unfit_strategies = ("drop_loss",)
    strategy_hint = "use tried or stitched"

    def load(
        self,
        data: DataConfig,
        *,
        field: str,
        rename: Mapping[str, str] | None = None,
        names: tuple[str, ...] | None = None,
    ) -> Data:
        return load_passages(data, field=field, linked=names is not None)

    def check_rows(self, data: DataConfig, *, field: str) -> object:
        return load_passages(data, field=field, linked=True)

    def faults(self, task: TaskConfig) -> Iterator[UserError]:
        yield from super().faults(task)
        if task.unlabelled is not None:
            yield UserError(
                "texts to learn embeddings from have no labels", field="task.unlabelled", hint="give all as task.train"
            )

    def refuse_too_few(self, train: Data) -> None:
        if len(train) < FEWEST:
            raise UserError(
                f"there are too few different texts to learn embeddings from: {len(train)}",
                field="task.train",
                hint=f"give at least {FEWEST} different texts, one per line; a good model needs some thousands",
            )

    def draw(self, data: Data, most: int | None, seed: int) -> Data:
        assert isinstance(data, Passages)
        return data if most is None else data.draw(most, seed)

    def complete_dev(self, dev: Data, seed: int) -> Data:
        assert isinstance(dev, Passages)
        return dev.linked(seed)

    def default_metric(self, names: tuple[str, ...]) -> str:
        return "spearman"

    def metric_for(self, name: str | None, train: Data, dev: Data) -> str:
        assert isinstance(dev, Passages)
        chosen = name or ("recall_at_10" if dev.retrieval else "spearman")
        if (chosen in self.metrics) == dev.retrieval:
            raise UserError(
                f"{chosen} is not defined for these pairs",
                field="task.metric",
                hint="use recall_at_10 or ndcg_at_10 for questions and their passages, else spearman or pearson",
            )
        return chosen

    def decode(self, logits: np.ndarray, starts: np.ndarray) -> np.ndarray:
        return logits

    def answer(self, logits: np.ndarray, starts: np.ndarray, data: Data) -> np.ndarray:
        """(pairs,) similarities or ranks."""
        assert isinstance(data, Passages)
        return data.compare(logits)

    def right(self, gold: np.ndarray, predicted: np.ndarray) -> np.ndarray | None:
        return None

    def show(self, prediction: Any, names: tuple[str, ...]) -> str:  # noqa: ANN401 - a number
        return f"{prediction:.6g}"

    def render(self, logits: np.ndarray, names: tuple[str, ...], text: str) -> Rendered:
        vector = [float(f"{value:.7g}") for value in logits[0].tolist()]
        shown = " ".join(f"{value:.3f}" for value in vector[:3])
        return Rendered({"embedding": vector}, " ".join(map(str, vector)), f"{shown} ... ({len(vector)} numbers)")

    def pipeline_call(self, names: tuple[str, ...]) -> str:
        return 'embeddings = SentenceTransformer("model").encode(["some text", "another one"])'

    @property
    def pipeline_import(self) -> str:
        return "from sentence_transformers import SentenceTransformer"
