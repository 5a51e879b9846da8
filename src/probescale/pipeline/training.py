"""Train the original and its subnetworks: cut, distill, check, and begin again where a training failed."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from probescale.errors import Diverged
from probescale.models.loading import LoadedModel, load_classifier
from probescale.models.proof.comparison import compare_in_memory
from probescale.models.proof.reference import compute_layer_reference
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.models.subsets import Subset, format_subset
from probescale.models.surgery import keep_layers
from probescale.pipeline.folder import EVALUATED
from probescale.pipeline.seals import INNER, TRACKED, TRAINING
from probescale.pipeline.teachers import load_token_teacher, match_teacher
from probescale.pipeline.workbench import Workbench
from probescale.recovery.answered_texts import FROM_ALL, FROM_SHORT_TRAININGS, draw_text, gather_texts
from probescale.recovery.fine_tuning import fine_tune, prepare_training
from probescale.recovery.health import AS_IT_IS, Health, check_subnetwork, check_trained
from probescale.recovery.recipe import Choices, Recipe
from probescale.recovery.result import ORIGINAL
from probescale.recovery.short_training import ShortTraining, train_briefly
from probescale.recovery.teacher import (
    WEIGHTS,
    TeacherOutputs,
    load_teacher,
    record_teacher_outputs,
    record_teacher_tokens,
)
from probescale.recovery.thresholds import set_thresholds
from probescale.recovery.training_set import draw_validation
from probescale.utils.progress import console

TEACHER = "teacher"  # the fine-tuned original, and the answers that subnetworks learn
HIGHER, LOWER, LONGER = 3.0, 1 / 3, 2  # other rates and epochs, where a training failed

Trained = tuple[LoadedModel, tuple[float, ...], Health]  # a model, the loss of every epoch, and whether it learned


@dataclass(frozen=True)
class LargerRung:
    """A trained subnetwork of a ladder, from which smaller ones can be cut."""

    name: str
    kept: Subset  # the original's layers that it has
    shrink: ShrinkPlan
    model: LoadedModel

    def places(self, kept: Subset) -> Subset:
        """Its own numbers of these layers of the original."""
        return tuple(self.kept.index(layer) + 1 for layer in kept)

    def remaining(self, shrink: ShrinkPlan) -> ShrinkPlan:
        """The parts of a smaller subnetwork that are smaller than here."""
        here = self.shrink.model_dump()
        return ShrinkPlan(**{part: size for part, size in shrink.model_dump().items() if size != here[part]})


class Training:
    """Trains models of one run. What was trained stands in the run's folder, from which an interrupted run resumes."""

    def __init__(self, bench: Workbench, work: Path, shrink: ShrinkPlan, shared: Path | None = None) -> None:
        """`shared`: the folder with the original and its answers, where several runs share them."""
        self.bench, self.work, self.shared, self.shrink = bench, work, shared or work, shrink
        self.config, self.loaded, self.shrinker = bench.config, bench.loaded, bench.shrinker
        self.choices: Choices = bench.chosen_recipe
        train = draw_text(bench.task.train, self.choices, bench.situation.unlabelled, bench.config.seed)
        self.task = replace(bench.task, train=train)
        self.best_probe: float | None = None  # score of the best probe for the task's labels, where it is known
        self.texts = gather_texts(self.task.train, self.task.unlabelled, self.choices, self.config.seed)
        self.unlabelled = self.texts.unlabelled
        # Of a ladder, a rung is cut from the original or from the rung above: texts that neither knows decide.
        ladder, seed = self.config.selection.ladder, self.config.seed
        self.judged_by = self.texts.reserve(seed, *(FROM_ALL if ladder else FROM_SHORT_TRAININGS))
        self.reserved = self.judged_by.inputs if ladder else frozenset[int]()
        self.start: LargerRung | None = None  # what subnetworks are cut from, instead of the original

    def for_rung(self, bench: Workbench, work: Path, shrink: ShrinkPlan) -> Training:
        """The same original and texts for another size, whose models stand in a folder of their own."""
        other = copy.copy(self)
        other.source_model = self.source_model  # loaded once for all
        other.bench, other.config, other.choices = bench, bench.config, bench.chosen_recipe
        other.work, other.shrink = work, shrink
        return other

    def with_start(self, start: LargerRung | None) -> Training:
        """The same for subnetworks that are cut from a larger one; None: from the original."""
        other = copy.copy(self)
        other.start = start
        return other

    def with_shrink(self, shrink: ShrinkPlan) -> Training:
        """The same for subnetworks that are shrunk in another way. The original has to be trained before."""
        other = copy.copy(self)
        other.source_model = self.source_model  # loaded once for all
        other.shrink = shrink
        return other

    def with_choices(self, choices: Choices) -> Training:
        """The same with another recipe for the subnetworks."""
        other = copy.copy(self)
        other.source_model, other.choices = self.source_model, choices
        return other

    # The original

    def train_original(self, called: str = ORIGINAL) -> Trained:
        """The fine-tuned original, the mean loss of every epoch, and whether it learned the task.

        Where it did not, it is trained again with a higher and a lower learning rate; the best is kept.
        """
        recipe = self.choices.for_original(self.config.recovery)
        best: Trained | None = None
        subject = f"the {ORIGINAL}" if called == ORIGINAL else called
        for attempt, factor in enumerate((1.0, HIGHER, LOWER)):
            rate = recipe.learning_rate * factor
            settings = replace(recipe, learning_rate=rate, epochs=recipe.epochs * (LONGER if attempt else 1))
            model = keep_layers(self.loaded, tuple(range(1, self.loaded.layers + 1)))
            try:
                losses = self._fine_tune(model, called, None, settings, is_original=True, attempt=attempt)
            except Diverged:
                given = attempt == 0 and not self._chooses_rate(self.config.recovery.original.learning_rate)
                nothing_left = best is None and factor == LOWER
                if given or nothing_left:
                    raise
                continue  # this rate is too high; what was trained before is not lost
            health = self._check_original(model, recipe)
            if best is None or health.learned or health.loss_share < best[2].loss_share:
                best = model, losses, health
            if health.learned or recipe.epochs == 0:
                break
            if factor != LOWER:
                console.print(f"{subject} did not learn the task ({health.describe()}); trying another learning rate")
        assert best
        if self.config.recovery.distil:
            self._record_outputs(best[0])
        self._set_thresholds(best[0])  # after the teacher has answered: students learn probabilities
        return best

    def _check_original(self, model: LoadedModel, recipe: Recipe) -> Health:
        if self.task.kind.encodes:
            return AS_IT_IS
        length = self.config.model.max_length
        health = check_trained(model, self.task.train, length, self.best_probe, recipe.class_weights)
        if recipe.epochs or not health.below_probe:
            return health
        # It was fine-tuned on other texts: a probe that was fitted to these may do better, and nothing has failed.
        console.print(
            f"note: the {ORIGINAL} is used as it is: {health.describe()}; with --retrain it learns from these texts",
            soft_wrap=True,
        )
        return replace(health, best_probe=None)

    def reload_original(self) -> LoadedModel:
        """The fine-tuned original again, after a run was interrupted: as it was recorded, or trained once more."""
        recovery = self.config.recovery
        recorded = self.shared / INNER / TEACHER
        if recovery.distil and recovery.start == "teacher" and recorded.exists():
            original = load_teacher(self.loaded, recorded) if (recorded / WEIGHTS).exists() else self.loaded
            self._set_thresholds(original)
            return original
        return self.train_original()[0]

    def _record_outputs(self, original: LoadedModel) -> None:
        recovery, length, names = self.config.recovery, self.config.model.max_length, self.task.train.names
        if self.task.kind.unit == "token":
            self._record_tokens(original)
            return
        teacher, columns = original, None
        if recovery.teacher:
            order, kind = match_teacher(recovery.teacher, self.task), self.task.kind
            teacher = load_classifier(
                recovery.teacher,
                None,
                order,
                0,
                head=kind.head,
                problem_type=kind.problem_type,
                keep_head=True,
                field="recovery.teacher",
            )
            columns = [order.index(name) for name in names] or None
        record_teacher_outputs(
            teacher,
            self.task.train,
            self.unlabelled,
            self.shared / INNER / TEACHER,
            columns=columns,
            states=bool(recovery.states or recovery.healing),
            weights=original if recovery.start == "teacher" else None,
            max_length=length,
        )

    def _set_thresholds(self, model: LoadedModel) -> None:
        """Choose from which logit on labels are given, where texts can have several."""
        if self.task.tuning is not None:
            macro, length = self.task.metric == "label_f1", self.config.model.max_length
            set_thresholds(model, self.task.tuning, macro=macro, max_length=length)

    def _record_tokens(self, original: LoadedModel) -> None:
        """The likeliest tokens of the original, or of another teacher with the same tokenizer.

        Where the vocabulary is trimmed, the teacher's is trimmed in the same way, so that its answers fit its students.
        """
        source = self.config.recovery.teacher
        teacher = load_token_teacher(source, original) if source else original
        record_teacher_tokens(
            self._with_trimmed_vocabulary(teacher),
            self.task.train,
            self.shared / INNER / TEACHER,
            growing=self.shared / INNER / TRAINING / TEACHER,
            texts=self.choices.texts,
            max_length=self.config.model.max_length,
        )

    def _with_trimmed_vocabulary(self, model: LoadedModel) -> LoadedModel:
        """The whole model with the vocabulary of its subnetworks, whose size the settings fix for running text."""
        [vocabulary] = {way.vocabulary for way in self.bench.shrinks}
        if vocabulary is None:
            return model
        every = tuple(range(1, model.layers + 1))
        return self.shrinker.for_model(model).shrink(model, every, ShrinkPlan(vocabulary=vocabulary))

    # Subnetworks

    def fine_tune(self, name: str, kept: Subset) -> Trained:
        """A trained subnetwork, the mean loss of every epoch, and whether it learned."""
        trained = self._train_from_best_source(name, kept)
        self._set_thresholds(trained[0])
        return trained

    def _train_from_best_source(self, name: str, kept: Subset) -> Trained:
        """A trained subnetwork; where it was cut from a larger rung and did not learn, the better of that and one that
        is cut from the original."""
        trained = self._train_with_retry(name, kept)
        if self.start is None or trained[2].learned or self.choices.epochs == 0:
            return trained
        console.print(f"{name}, cut from {self.start.name}, did not learn; cutting it from the {ORIGINAL} instead")
        model, losses, health = self.with_start(None)._train_with_retry(name, kept, attempt=2)
        if not health.learned and health.loss_share >= trained[2].loss_share:
            return trained
        return (
            model,
            losses,
            replace(health, retried=f"cut from {self.start.name} it did not learn; cut from the {ORIGINAL} instead"),
        )

    def _train_with_retry(self, name: str, kept: Subset, attempt: int = 0) -> Trained:
        """A trained subnetwork; where it did not learn, the better of that and a longer training in another order."""
        recipe = self.choices.for_subnetworks(self.config.recovery)
        first: Trained | None = None
        try:
            first = self._train_and_check(name, kept, recipe, attempt)
            if first[2].learned or recipe.epochs == 0:
                return first
            console.print(f"{name} did not learn ({first[2].describe()}); training it again, for longer")
            again, why = replace(recipe, epochs=LONGER * recipe.epochs), "it did not learn at first; trained for longer"
        except Diverged as error:
            if not self._chooses_rate():
                raise
            console.print(f"{name}: {error}; training it again, at a lower rate")
            again = replace(recipe, learning_rate=LOWER * recipe.learning_rate)
            why = "it diverged at first; trained again at a lower rate"
        try:
            second = self._train_and_check(name, kept, again, attempt + 1)
        except Diverged:
            if first is None:
                raise
            return first
        better = first is None or second[2].learned or second[2].loss_share < first[2].loss_share
        return (*second[:2], replace(second[2], retried=why)) if better or first is None else first

    def _train_and_check(self, name: str, kept: Subset, recipe: Recipe, attempt: int = 0) -> Trained:
        model = self.cut(kept)
        losses = self._fine_tune(model, name, kept, recipe, is_original=False, attempt=attempt)
        return model, losses, self._check(model, kept, recipe)

    def _chooses_rate(self, own: float | str = "auto") -> bool:
        """Whether the learning rate was chosen automatically. `own`: the setting of the original."""
        return self.config.recovery.learning_rate == own == "auto"

    def _check(self, model: LoadedModel, kept: Subset, recipe: Recipe) -> Health:
        teacher, length, seed = self.teacher_outputs(), self.config.model.max_length, self.config.seed
        learned, scale = prepare_training(
            model,
            self.task.train,
            recipe,
            teacher=teacher,
            kept=kept,
            reserved=self.reserved,
            max_length=length,
            seed=seed,
        )
        return check_subnetwork(model, learned, seed, scale)

    def _fine_tune(
        self,
        model: LoadedModel,
        name: str,
        kept: Subset | None,
        recipe: Recipe,
        *,
        is_original: bool,
        attempt: int = 0,
    ) -> tuple[float, ...]:
        """Every attempt has checkpoints of its own, from which alone it is resumed."""
        folder, seed = self.shared if is_original else self.work, self.config.seed + (0 if is_original else attempt)
        return fine_tune(
            model,
            self.bench.task.train if is_original else self.task.train,
            recipe,
            teacher=None if is_original else self.teacher_outputs(),
            kept=kept,
            reserved=frozenset() if is_original else self.reserved | self._copies_of_validation(recipe, seed),
            max_length=self.config.model.max_length,
            seed=seed,
            title=f"fine-tuning: {name}",
            tracked=folder / TRACKED / name if recipe.tracking else None,
            checkpoints=self.checkpoints(kept or (), is_original=is_original) / str(attempt),
        )

    def _copies_of_validation(self, recipe: Recipe, seed: int) -> frozenset[int]:
        """Numbers of the changed copies of texts by which the best epoch is chosen: nothing is learned from them."""
        if not recipe.validation or self.task.kind.unit == "token":
            return frozenset()
        return self.texts.copies_of(draw_validation(self.task.train, recipe.validation, seed))

    def train_briefly(self, name: str, kept: Subset, texts: int, rate: float | None = None) -> ShortTraining:
        """The loss of a subnetwork after a short training, on texts it did not see; and a constant predictor's.

        `rate`: the learning rate, if it is not that of the recipe.
        """
        recipe = self.choices.for_subnetworks(self.config.recovery)
        recipe = recipe if rate is None else replace(recipe, learning_rate=rate)
        return train_briefly(
            self.cut(kept, without=self.judged_by.texts),
            self.task.train,
            recipe,
            teacher=self.teacher_outputs(),
            kept=kept,
            held_out=self.judged_by.inputs,
            texts=texts,
            max_length=self.config.model.max_length,
            seed=self.config.seed,
            title=f"short training: {name}",
        )

    def cut(self, kept: Subset, without: frozenset[int] = frozenset()) -> LoadedModel:
        """The untrained subnetwork, checked to compute what its source computes with the other layers skipped.

        `without`: numbers of texts whose tokens do not count for the vocabulary.
        """
        source, places, shrink = self.source_model, kept, self.shrink
        if self.start:
            source, places, shrink = self.start.model, self.start.places(kept), self.start.remaining(shrink)
        model = keep_layers(source, places)
        wanted = compute_layer_reference(source.model, source.family, places)
        compare_in_memory(model.model, model.family, wanted)  # before training: a wrong cut would only look weak
        return self.shrinker.for_model(source).without(without).shrink(model, places, shrink) if shrink else model

    @cached_property
    def source_model(self) -> LoadedModel:
        """What subnetworks are cut from: the fine-tuned original where it teaches them, else the pre-trained model."""
        recovery, as_it_is = self.config.recovery, self.choices.original_epochs == 0 and self.loaded.head_is_trained
        if not recovery.distil or recovery.start == "pretrained" or as_it_is:
            return self.loaded
        return load_teacher(self.loaded, self.shared / INNER / TEACHER)

    def teacher_outputs(self) -> TeacherOutputs | None:
        """The teacher's answers to the training texts; the original is trained before its subnetworks."""
        if not self.config.recovery.distil:
            return None
        return TeacherOutputs.load(self.shared / INNER / TEACHER, self.unlabelled)

    def has_teacher(self) -> bool:
        """Whether everything that subnetworks learn from stands in the run's folder."""
        return not self.config.recovery.distil or (self.shared / INNER / TEACHER).is_dir()

    def checkpoints(self, kept: Subset, *, is_original: bool) -> Path:
        """Where checkpoints stand until the trained model is evaluated, and saved if it is the run's result."""
        return self.result_path(kept, is_original=is_original).parent.with_name(TRAINING) / (
            ORIGINAL if is_original else format_subset(kept)
        )

    def result_path(self, kept: Subset, *, is_original: bool) -> Path:
        """The file with the metrics of a model, once it is evaluated."""
        folder = self.shared if is_original else self.work
        return folder / INNER / EVALUATED / f"{ORIGINAL if is_original else format_subset(kept)}.json"
