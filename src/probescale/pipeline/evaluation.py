"""Cut, fine-tune and evaluate subnetworks, all with one recipe; what is known is not trained again."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np

from probescale.config import RunConfig
from probescale.models.counting import count_parameters
from probescale.models.latency import compare_latency
from probescale.models.loading import LoadedModel
from probescale.models.proof.comparison import compare_in_memory
from probescale.models.proof.reference import compute_layer_reference
from probescale.models.saving import describe_cut, save_model
from probescale.models.shrink.shrinker import Shrinker, ShrinkPlan
from probescale.models.subsets import Subset, format_subset
from probescale.models.surgery import keep_layers
from probescale.pipeline.folder import INNER
from probescale.recovery.bias import Bias, measure_swaps
from probescale.recovery.fine_tuning import fine_tune, train_briefly
from probescale.recovery.predict import predict
from probescale.recovery.predictions import load_predictions, save_predictions
from probescale.recovery.recipe import describe_recipe
from probescale.recovery.result import EvaluatedModel
from probescale.recovery.teacher import TeacherOutputs, load_teacher, record_teacher_outputs
from probescale.selection.result import Selection
from probescale.tasks.metrics import interval
from probescale.tasks.task import Task
from probescale.tasks.unlabelled import changed_copies, joined
from probescale.utils.files import remove_folder, write_json
from probescale.utils.progress import spinner

TRACKED = "tracking"
ANSWERS, SWAYED = ".answers.json", ".swayed.json"
TEACHER = "teacher"  # the fine-tuned original and what it answered


class Measurer:
    """A subset that is asked for several times, or was measured before an interruption, is trained once."""

    def __init__(
        self,
        work: Path,
        shrinker: Shrinker,
        shrink: ShrinkPlan,
        task: Task,
        config: RunConfig,
        ground: Path | None = None,  # where the original stands, if runs share it
    ) -> None:
        self.work, self.shrinker, self.shrink, self.task, self.config = work, shrinker, shrink, task, config
        self.ground = ground or work
        self.loaded, self.parameters = shrinker.loaded, shrinker.count_parameters(shrink)
        self.held: tuple[Subset, LoadedModel] | None = None
        self.unlabelled = task.unlabelled
        if copies := config.recovery.augment:
            changed = changed_copies(joined(task.train, task.unlabelled), copies, config.seed)
            self.unlabelled = joined(changed, task.unlabelled)

    @property
    def recipe(self) -> str:
        made = describe_recipe(self.config.recovery, len(self.task.train), len(self.unlabelled or ()), self.config.seed)
        return f"{made}; subnetworks with {self.shrink}" if self.shrink else made

    @property
    def original(self) -> Subset:
        return tuple(self.parameters.all_layers)

    def measure(
        self,
        name: str,
        kept: Subset,
        original: EvaluatedModel | None = None,
        hold: Callable[[EvaluatedModel], bool] = lambda _: False,
    ) -> EvaluatedModel:
        """The figures of one subset; its model is held for `save` if that is wanted."""
        whole = self._is_whole(kept, original)
        path = self._place(kept, whole=whole)
        if path.exists():
            return EvaluatedModel.load(path)
        started = time.perf_counter()
        model, losses = self.train(name, kept, whole=whole)
        predicted = predict(model, self.task.dev, max_length=self.config.model.max_length, title=f"evaluating: {name}")
        value = self.task.measure(self.task.gold, predicted)
        with spinner("resampling"):
            spread = interval(self.task.measure, self.task.gold, predicted, self.config.seed)
        against = value if original is None else original.value
        parameters = count_parameters(model.model, model.family)
        measured = EvaluatedModel(
            kept=kept,
            params=parameters.total,
            ratio_total=parameters.total / self.shrinker.original.total,
            ratio_layers=sum(parameters.layers) / sum(self.shrinker.original.layers),
            value=value,
            interval=spread,
            retention=self.task.measure.retention(value, against),
            losses=losses,
            **self._speed(model),
            seconds=round(time.perf_counter() - started, 1),
        )
        held = hold(measured)
        if held:
            self.held = (kept, model)
        save_predictions(path.with_suffix(ANSWERS), predicted)
        if self.task.kind.bias_pairs:
            found = measure_swaps(model, self.task.train, max_length=self.config.model.max_length)
            write_json(path.with_suffix(SWAYED), [one.model_dump() for one in found])
        measured.save(path)
        if not held:
            remove_folder(self._checkpoints(kept, whole=whole))
        return measured

    def _speed(self, model: LoadedModel) -> dict[str, float]:
        asked = self.config.selection
        length = min(asked.length, self.config.model.max_length)
        whole, own = compare_latency([self.loaded, model], length, asked.batch_size)
        return {"milliseconds": round(own, 3), "speedup": round(whole / own, 3)}

    def answers(self, measured: EvaluatedModel, original: EvaluatedModel | None = None) -> np.ndarray:
        """What a measured model said on dev."""
        whole = self._is_whole(measured.kept, original)
        return load_predictions(self._place(measured.kept, whole=whole).with_suffix(ANSWERS))

    def bias(self, original: EvaluatedModel, small: EvaluatedModel) -> Bias | None:
        """How names and pronouns move the answers of both; None where answers are not classes of texts."""
        whole = self._place(original.kept, whole=True).with_suffix(SWAYED)
        cut = self._place(small.kept, whole=self._is_whole(small.kept, original)).with_suffix(SWAYED)
        if not whole.exists():
            return None
        return Bias(**{name: json.loads(path.read_text()) for name, path in (("original", whole), ("small", cut))})

    def _is_whole(self, kept: Subset, original: EvaluatedModel | None) -> bool:
        return kept == self.original and (original is None or not self.shrink)

    def _place(self, kept: Subset, *, whole: bool) -> Path:
        folder = self.ground if whole else self.work
        return folder / INNER / "measured" / ("original.json" if whole else f"{format_subset(kept)}.json")

    def _checkpoints(self, kept: Subset, *, whole: bool) -> Path:
        """Until the trained model is measured, and saved where it is to be."""
        place = self._place(kept, whole=whole)
        return place.parent.with_name("training") / place.stem

    def save(self, selection: Selection) -> None:
        """The selection's model becomes the run's."""
        folder, kept = self.work / "model", selection.kept
        if folder.exists():
            return
        model = self.held[1] if self.held and self.held[0] == kept else self.train("the answer", kept)[0]
        record = describe_cut(self.loaded, kept, model) | {"selection": selection.model_dump(mode="json")}
        record["params"] = count_parameters(model.model, model.family).total
        record["max_length"], record["kind"] = self.config.model.max_length, self.task.kind.name
        if self.shrink:
            record["shrink"] = self.shrink.model_dump(mode="json", exclude_none=True)
        save_model(model, record, folder)
        remove_folder(self._checkpoints(kept, whole=False))

    def made_smaller(self, shrink: ShrinkPlan) -> Measurer:
        """The same for subnetworks that are made smaller in another way. The original is trained before."""
        other = copy.copy(self)
        other.parent = self.parent  # loaded once for all
        other.shrink, other.parameters, other.held = shrink, self.shrinker.count_parameters(shrink), None
        return other

    def attempt(self, name: str, kept: Subset, texts: int) -> tuple[float, float]:
        """How far a subnetwork is from what it should learn after a short training, and who learns nothing."""
        config, outputs = self.config, self._teacher_outputs()
        options = {"max_length": config.model.max_length, "seed": config.seed, "title": f"trying: {name}"}
        return train_briefly(
            self._cut(kept),
            self.task.train,
            config.recovery,
            teacher=outputs,
            kept=kept,
            texts=texts,
            **options,
        )

    def _cut(self, kept: Subset, *, whole: bool = False) -> LoadedModel:
        parent = self.loaded if whole else self.parent
        model = keep_layers(parent, kept)
        wanted = compute_layer_reference(parent.model, parent.family, kept)
        compare_in_memory(model.model, model.family, wanted)  # before training: a wrong cut would only look weak
        if self.shrink and not whole:
            model = self.shrinker.for_model(parent).shrink(model, kept, self.shrink)
        return model

    def train(self, name: str, kept: Subset, *, whole: bool = False) -> tuple[LoadedModel, tuple[float, ...]]:
        """The model, and the mean loss of every epoch."""
        config, model = self.config, self._cut(kept, whole=whole)
        outputs = None if whole else self._teacher_outputs()
        options = {"max_length": config.model.max_length, "seed": config.seed, "title": f"fine-tuning: {name}"}
        place = (self.ground if whole else self.work) / TRACKED / name
        recipe = config.recovery.of_original if whole else config.recovery
        tracked = place if recipe.tracking else None
        options |= {"tracked": tracked, "checkpoints": self._checkpoints(kept, whole=whole)}
        losses = fine_tune(model, self.task.train, recipe, teacher=outputs, kept=kept, **options)
        if whole and config.recovery.distil:
            self._teach(model)
        return model, losses

    @cached_property
    def parent(self) -> LoadedModel:
        """What subnetworks are cut from: the fine-tuned original, if it teaches them, or what it began as."""
        recipe = self.config.recovery
        if not recipe.distil or recipe.start == "pretrained":
            return self.loaded
        return load_teacher(self.loaded, self.ground / INNER / TEACHER)

    def _teach(self, teacher: LoadedModel) -> None:
        recipe, options = self.config.recovery, {"max_length": self.config.model.max_length}
        states = bool(recipe.states or recipe.healing)
        weights = recipe.start == "teacher"
        folder = self.ground / INNER / TEACHER
        record_teacher_outputs(
            teacher, self.task.train, self.unlabelled, folder, states=states, weights=weights, **options
        )

    def _teacher_outputs(self) -> TeacherOutputs | None:
        """What the original says of the training texts; it is trained before its subnetworks."""
        if not self.config.recovery.distil:
            return None
        return TeacherOutputs.load(self.ground / INNER / TEACHER, self.unlabelled)
