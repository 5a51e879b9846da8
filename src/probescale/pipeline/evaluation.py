"""Cut, fine-tune and evaluate the original and its subnetworks; no model is trained twice."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from probescale.models.counting import count_parameters
from probescale.models.latency import compare_latency
from probescale.models.loading import LoadedModel
from probescale.models.proof.comparison import compare_in_memory
from probescale.models.proof.reference import compute_layer_reference
from probescale.models.saving import describe_cut, save_model
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.models.subsets import Subset, format_subset
from probescale.models.surgery import keep_layers
from probescale.pipeline.folder import EVALUATED, INNER
from probescale.pipeline.workbench import Workbench
from probescale.recovery.bias import Bias, measure_swaps
from probescale.recovery.fine_tuning import fine_tune
from probescale.recovery.predict import predict
from probescale.recovery.predictions import load_predictions, save_predictions
from probescale.recovery.recipe import describe_recipe
from probescale.recovery.result import ORIGINAL, EvaluatedModel
from probescale.recovery.short_training import train_briefly
from probescale.recovery.teacher import TeacherOutputs, load_teacher, record_teacher_outputs
from probescale.selection.result import Selection
from probescale.tasks.metrics import interval
from probescale.tasks.unlabelled import changed_copies, joined
from probescale.utils.files import remove_folder, write_json
from probescale.utils.progress import spinner

TRACKED = "tracking"
PREDICTIONS, SWAPS = ".predictions.json", ".swaps.json"
TEACHER = "teacher"  # the fine-tuned original and its answers


class Evaluator:
    """Trains and evaluates subnetworks of one run. One that was evaluated before, also by an interrupted run, is not
    trained again."""

    def __init__(self, bench: Workbench, work: Path, shrink: ShrinkPlan, shared: Path | None = None) -> None:
        """`shared`: the folder with the original and its answers, where several runs share them."""
        self.bench, self.work, self.shared = bench, work, shared or work
        self.config, self.task, self.loaded, self.shrinker = bench.config, bench.task, bench.loaded, bench.shrinker
        self.shrink, self.parameters = shrink, bench.shrinker.count_parameters(shrink)
        self.held: tuple[Subset, LoadedModel] | None = None  # the trained model that is to be saved
        self.unlabelled = self.task.unlabelled
        if copies := self.config.recovery.augment:
            changed = changed_copies(joined(self.task.train, self.unlabelled), copies, self.config.seed)
            self.unlabelled = joined(changed, self.unlabelled)

    @property
    def recipe(self) -> str:
        recovery, unlabelled = self.config.recovery, len(self.unlabelled or ())
        text = describe_recipe(recovery, len(self.task.train), unlabelled, self.config.seed)
        return f"{text}; subnetworks with {self.shrink}" if self.shrink else text

    def with_shrink(self, shrink: ShrinkPlan) -> Evaluator:
        """The same for subnetworks that are shrunk in another way. The original has to be evaluated before."""
        other = copy.copy(self)
        other.source_model = self.source_model  # loaded once for all
        other.shrink, other.parameters, other.held = shrink, self.shrinker.count_parameters(shrink), None
        return other

    def evaluate_original(self) -> EvaluatedModel:
        """Fine-tune and evaluate the original; its answers are recorded where it teaches."""
        return self.evaluate(ORIGINAL, tuple(self.parameters.all_layers), None)

    def evaluate(
        self,
        name: str,
        kept: Subset,
        original: EvaluatedModel | None,
        hold: Callable[[EvaluatedModel], bool] = lambda _: False,
    ) -> EvaluatedModel:
        """Cut, fine-tune and evaluate a subnetwork; its model is held for `save` where `hold` says so."""
        is_original = original is None or self._is_original(kept)
        path = self._path(kept, is_original=is_original)
        if path.exists():
            return EvaluatedModel.load(path)
        started, length = time.perf_counter(), self.config.model.max_length
        model, losses = self.fine_tune(name, kept, is_original=is_original)
        predicted = predict(model, self.task.dev, max_length=length, title=f"evaluating: {name}")
        evaluated = EvaluatedModel(
            kept=kept,
            **self._size(model),
            **self._quality(predicted, original),
            losses=losses,
            **self._speed(model),
            seconds=round(time.perf_counter() - started, 1),
        )
        held = hold(evaluated)
        if held:
            self.held = (kept, model)
        save_predictions(path.with_suffix(PREDICTIONS), predicted)
        if self.task.kind.bias_pairs:
            found = measure_swaps(model, self.task.train, max_length=length)
            write_json(path.with_suffix(SWAPS), [one.model_dump() for one in found])
        evaluated.save(path)
        if not held:
            remove_folder(self._checkpoints(kept, is_original=is_original))
        return evaluated

    def _size(self, model: LoadedModel) -> dict[str, Any]:
        parameters, original = count_parameters(model.model, model.family), self.shrinker.original
        return {
            "params": parameters.total,
            "ratio_total": parameters.total / original.total,
            "ratio_layers": sum(parameters.layers) / sum(original.layers),
        }

    def _quality(self, predicted: np.ndarray, original: EvaluatedModel | None) -> dict[str, Any]:
        value = self.task.measure(self.task.gold, predicted)
        with spinner("resampling"):
            spread = interval(self.task.measure, self.task.gold, predicted, self.config.seed)
        reference = value if original is None else original.value
        return {"value": value, "interval": spread, "retention": self.task.measure.retention(value, reference)}

    def _speed(self, model: LoadedModel) -> dict[str, Any]:
        settings = self.config.selection
        length = min(settings.length, self.config.model.max_length)
        original, own = compare_latency([self.loaded, model], length, settings.batch_size)
        return {"milliseconds": round(own, 3), "speedup": round(original / own, 3)}

    def predictions(self, name: str, evaluated: EvaluatedModel) -> np.ndarray:
        """What an evaluated model predicts on dev."""
        is_original = name == ORIGINAL or self._is_original(evaluated.kept)
        return load_predictions(self._path(evaluated.kept, is_original=is_original).with_suffix(PREDICTIONS))

    def bias(self, small: EvaluatedModel) -> Bias | None:
        """How names and pronouns move the answers of both models; None where answers are not classes of texts."""
        original = self._path((), is_original=True).with_suffix(SWAPS)
        cut = self._path(small.kept, is_original=self._is_original(small.kept)).with_suffix(SWAPS)
        if not original.exists():
            return None
        return Bias(original=json.loads(original.read_text()), small=json.loads(cut.read_text()))

    def save(self, selection: Selection) -> None:
        """Write the selection's model as the run's result, and prove it."""
        folder, kept = self.work / "model", selection.kept
        if folder.exists():
            return
        model = self.held[1] if self.held and self.held[0] == kept else self.fine_tune("the result", kept)[0]
        record = describe_cut(self.loaded, kept, model) | {"selection": selection.model_dump(mode="json")}
        record["params"] = count_parameters(model.model, model.family).total
        record["max_length"], record["kind"] = self.config.model.max_length, self.task.kind.name
        if self.shrink:
            record["shrink"] = self.shrink.model_dump(mode="json", exclude_none=True)
        save_model(model, record, folder)
        remove_folder(self._checkpoints(kept, is_original=False))

    def train_briefly(self, name: str, kept: Subset, texts: int) -> tuple[float, float]:
        """The loss of a subnetwork after a short training, on texts it did not see; and a constant predictor's."""
        config = self.config
        return train_briefly(
            self._cut(kept),
            self.task.train,
            config.recovery,
            teacher=self._teacher_outputs(),
            kept=kept,
            texts=texts,
            max_length=config.model.max_length,
            seed=config.seed,
            title=f"tournament: {name}",
        )

    def fine_tune(self, name: str, kept: Subset, *, is_original: bool = False) -> tuple[LoadedModel, tuple[float, ...]]:
        """The trained model, and the mean loss of every epoch."""
        config, model = self.config, self._cut(kept, is_original=is_original)
        recipe = config.recovery.of_original if is_original else config.recovery
        folder = self.shared if is_original else self.work
        losses = fine_tune(
            model,
            self.task.train,
            recipe,
            teacher=None if is_original else self._teacher_outputs(),
            kept=kept,
            max_length=config.model.max_length,
            seed=config.seed,
            title=f"fine-tuning: {name}",
            tracked=folder / TRACKED / name if recipe.tracking else None,
            checkpoints=self._checkpoints(kept, is_original=is_original),
        )
        if is_original and config.recovery.distil:
            self._record_outputs(model)
        return model, losses

    def _cut(self, kept: Subset, *, is_original: bool = False) -> LoadedModel:
        source = self.loaded if is_original else self.source_model
        model = keep_layers(source, kept)
        wanted = compute_layer_reference(source.model, source.family, kept)
        compare_in_memory(model.model, model.family, wanted)  # before training: a wrong cut would only look weak
        if self.shrink and not is_original:
            model = self.shrinker.for_model(source).shrink(model, kept, self.shrink)
        return model

    @cached_property
    def source_model(self) -> LoadedModel:
        """What subnetworks are cut from: the fine-tuned original where it teaches them, else the pre-trained model."""
        recipe = self.config.recovery
        if not recipe.distil or recipe.start == "pretrained":
            return self.loaded
        return load_teacher(self.loaded, self.shared / INNER / TEACHER)

    def _record_outputs(self, teacher: LoadedModel) -> None:
        recipe, length = self.config.recovery, self.config.model.max_length
        states, weights = bool(recipe.states or recipe.healing), recipe.start == "teacher"
        folder = self.shared / INNER / TEACHER
        record_teacher_outputs(
            teacher, self.task.train, self.unlabelled, folder, states=states, weights=weights, max_length=length
        )

    def _teacher_outputs(self) -> TeacherOutputs | None:
        """The original's answers to the training texts; it is trained before its subnetworks."""
        if not self.config.recovery.distil:
            return None
        return TeacherOutputs.load(self.shared / INNER / TEACHER, self.unlabelled)

    def _is_original(self, kept: Subset) -> bool:
        """Whether all layers stay and nothing is shrunk."""
        return kept == tuple(self.parameters.all_layers) and not self.shrink

    def _path(self, kept: Subset, *, is_original: bool) -> Path:
        folder = self.shared if is_original else self.work
        return folder / INNER / EVALUATED / (f"{ORIGINAL}.json" if is_original else f"{format_subset(kept)}.json")

    def _checkpoints(self, kept: Subset, *, is_original: bool) -> Path:
        """Where checkpoints stand until the trained model is evaluated, and saved if it is the run's result."""
        path = self._path(kept, is_original=is_original)
        return path.parent.with_name("training") / path.stem
