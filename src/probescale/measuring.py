"""Cut, fine-tune and evaluate subnetworks, all with one recipe; what is known is not trained again."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from probescale.config import RunConfig
from probescale.models.loading import LoadedModel
from probescale.models.parameters import Parameters
from probescale.models.parent import parents_answers
from probescale.models.proof import check_in_memory
from probescale.models.surgery import extract, record_of, save_model
from probescale.progress import waiting
from probescale.recovery.recover import predict, recover
from probescale.recovery.result import Measured
from probescale.selection.select import Selection
from probescale.subsets import Subset, name_of
from probescale.tasks.metrics import interval
from probescale.tasks.task import Task


class Measurer:
    """A subset that is asked for several times, or was measured before an interruption, is trained once."""

    def __init__(self, work: Path, loaded: LoadedModel, task: Task, config: RunConfig, parameters: Parameters) -> None:
        self.work, self.loaded, self.task, self.config, self.parameters = work, loaded, task, config, parameters
        self.held: tuple[Subset, LoadedModel] | None = None

    @property
    def recipe(self) -> str:
        r = self.config.recovery
        return (
            f"fine-tuning on {len(self.task.train):,} examples, epochs {r.epochs}, AdamW, learning rate "
            f"{r.learning_rate:g}, batch size {r.batch_size}, warm-up {r.warmup:g}, weight decay {r.weight_decay:g}, "
            f"{'' if r.dropout is None else f'dropout {r.dropout:g}, '}seed {self.config.seed}"
        )

    def measure(
        self,
        name: str,
        kept: Subset,
        original: Measured | None = None,
        hold: Callable[[Measured], bool] = lambda _: False,
    ) -> Measured:
        """The figures of one subset; its model is held for `save` if that is wanted."""
        path = self.work / "measured" / (name_of(kept) + ".json")
        if path.exists():
            return Measured.load(path)
        started = time.perf_counter()
        model, value, spread = self._train(name, kept)
        against = value if original is None else original.value
        ratio_total, ratio_layers = self.parameters.ratios(kept)
        measured = Measured(
            kept=kept,
            params=self.parameters.of(kept),
            ratio_total=ratio_total,
            ratio_layers=ratio_layers,
            value=value,
            interval=spread,
            retention=value / against if against > 0 else None,
            seconds=round(time.perf_counter() - started, 1),
        )
        if hold(measured):
            self.held = (kept, model)
        measured.save(path)
        return measured

    def save(self, selection: Selection) -> None:
        """The selection's model becomes the run's; after an interruption it may have to be trained again."""
        folder, kept = self.work / "model", selection.kept
        if folder.exists():
            return
        model = self.held[1] if self.held and self.held[0] == kept else self._train("the answer", kept)[0]
        record = record_of(self.loaded, kept, model) | {"selection": selection.model_dump(mode="json")}
        save_model(model, record, folder)

    def _train(self, name: str, kept: Subset) -> tuple[LoadedModel, float, tuple[float, float]]:
        config, task, length = self.config, self.task, self.config.model.max_length
        model = extract(self.loaded, kept)
        wanted = parents_answers(self.loaded.model, self.loaded.family, kept)
        check_in_memory(model.model, model.family, wanted)  # before training: a wrong cut would only look weak
        recover(model, task.train, config.recovery, max_length=length, seed=config.seed, title=f"fine-tuning: {name}")
        predicted = predict(model, task.dev, max_length=length, title=f"evaluating: {name}")
        gold = np.array(task.dev.labels)
        with waiting("resampling"):
            return model, task.measure(gold, predicted), interval(task.measure, gold, predicted, config.seed)
