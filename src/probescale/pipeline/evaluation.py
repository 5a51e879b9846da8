"""Cut, fine-tune and evaluate the original and its subnetworks; no model is trained twice."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from probescale.config import OtherModel
from probescale.errors import UserError
from probescale.models.counting import count_parameters, measure_megabytes
from probescale.models.latency import compare_latency
from probescale.models.loading import LoadedModel
from probescale.models.parameters import Parameters
from probescale.models.saving import describe_cut, save_model
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.models.shrink.word_pieces import WordPieces, measure_pieces
from probescale.models.subsets import Subset
from probescale.pipeline.folder import EVALUATED
from probescale.pipeline.prepare import prepare_other
from probescale.pipeline.seals import INNER
from probescale.pipeline.training import LargerRung, Training
from probescale.pipeline.workbench import Workbench
from probescale.recovery.alternatives import measure_alternatives
from probescale.recovery.bias import Bias, SwapAnswers, answer_swaps, compare_swaps
from probescale.recovery.generation import Generation, Writing, measure_writing
from probescale.recovery.predict import predict
from probescale.recovery.predictions import load_predictions, rename_labels, save_predictions
from probescale.recovery.recipe import Choices, describe_recipe
from probescale.recovery.result import ORIGINAL, Alternative, BeforeTraining, EvaluatedModel, VectorCost
from probescale.recovery.vector_cost import embed_texts, measure_vector_cost
from probescale.selection.result import Selection
from probescale.tasks.balance import weigh_classes
from probescale.tasks.data import Data
from probescale.tasks.documents import Documents
from probescale.tasks.intervals import interval
from probescale.tasks.passages import Passages
from probescale.utils.files import read_as, remove_folder, write_json, write_text
from probescale.utils.progress import console, spinner

PREDICTIONS, SWAPS, WRITING = ".predictions.json", ".swaps.json", ".writing.json"


class Evaluator:
    """Trains and evaluates subnetworks of one run. One that was evaluated before, also by an interrupted run, is not
    trained again."""

    def __init__(self, bench: Workbench, work: Path, shrink: ShrinkPlan, shared: Path | None = None) -> None:
        """`shared`: the folder with the original and its answers, where several runs share them."""
        self.bench, self.work = bench, work
        self.config, self.task, self.loaded, self.shrinker = bench.config, bench.task, bench.loaded, bench.shrinker
        self.training = Training(bench, work, shrink, shared)
        self.held: tuple[Subset, LoadedModel] | None = None  # the trained model that is to be saved

    @property
    def shrink(self) -> ShrinkPlan:
        return self.training.shrink

    @property
    def parameters(self) -> Parameters:
        """Of the model that layers are removed from, its other parts shrunk."""
        return self.shrinker.count_parameters(self.shrink)

    @property
    def recipe(self) -> str:
        training, labelled = self.training, len(self.task.train)
        unlabelled = len(training.unlabelled or ())
        if training.choices.texts is not None:
            unlabelled = min(unlabelled, max(training.choices.texts - labelled, 0))
        text = describe_recipe(training.choices, self.config.recovery, labelled, unlabelled, self.config.seed)
        return f"{text}; subnetworks with {self.shrink}" if self.shrink else text

    def with_shrink(self, shrink: ShrinkPlan) -> Evaluator:
        """The same for subnetworks that are shrunk in another way. The original has to be evaluated before."""
        other = copy.copy(self)
        other.training, other.held = self.training.with_shrink(shrink), None
        return other

    def with_work(self, work: Path) -> Evaluator:
        """The same, writing its results to another folder."""
        other = copy.copy(self)
        other.work = work
        return other

    def for_rung(self, bench: Workbench, work: Path, shrink: ShrinkPlan) -> Evaluator:
        """The same original and texts for another size. The original has to be evaluated before."""
        other = copy.copy(self)
        other.bench, other.config, other.held = bench, bench.config, None
        other.training = self.training.for_rung(bench, work, shrink)
        return other

    def with_start(self, start: LargerRung | None) -> Evaluator:
        """The same for subnetworks that are cut from a larger one."""
        other = copy.copy(self)
        other.training, other.held = self.training.with_start(start), None
        return other

    def with_choices(self, choices: Choices) -> Evaluator:
        """The same with another recipe for the subnetworks. The original has to be evaluated before."""
        other = copy.copy(self)
        other.training, other.held = self.training.with_choices(choices), None
        return other

    def evaluate_original(self) -> EvaluatedModel:
        """Fine-tune and evaluate the original; its answers are recorded where it teaches."""
        keep = self.config.recovery.original.keep
        evaluated = self.evaluate(ORIGINAL, tuple(self.parameters.all_layers), None, hold=lambda _: keep)
        if keep and not (self.work / ORIGINAL).exists():
            model = self.held[1] if self.held else self.training.reload_original()
            self._write(model, evaluated.kept, {}, self.work / ORIGINAL)
            self.held = None
            remove_folder(self.training.checkpoints((), is_original=True))
        return evaluated

    def evaluate(
        self,
        name: str,
        kept: Subset,
        original: EvaluatedModel | None,
        hold: Callable[[EvaluatedModel], bool] = lambda _: False,
    ) -> EvaluatedModel:
        """Cut, fine-tune and evaluate a subnetwork; its model is held for `save` where `hold` says so."""
        is_original = original is None or self._is_original(kept)
        path = self.training.result_path(kept, is_original=is_original)
        if self._is_complete(path, is_original=is_original):
            return EvaluatedModel.load(path)
        started, length = time.perf_counter(), self.config.model.max_length
        model, losses, health = self.training.train_original() if is_original else self.training.fine_tune(name, kept)
        predicted, first = self._predict(name, model, is_original=is_original)
        evaluated = EvaluatedModel(
            kept=kept,
            **self._size(model),
            **self._quality(predicted, original),
            validation=self._measure(model, self.task.validation, "validating"),
            second=self._measure(model, self.task.second, "evaluating on the second text"),
            before=None if is_original else self._measure_before_training(kept),
            thresholds=model.thresholds,
            losses=losses,
            failure="" if health.learned else health.describe(),
            retried=health.retried,
            pieces=self._measure_pieces(model),
            **self._speed(model, is_original=is_original),
            vectors=self._measure_vectors(model),
            first=first,
            seconds=round(time.perf_counter() - started, 1),
        )
        held = hold(evaluated)
        if held:
            self.held = (kept, model)
        save_predictions(path.with_suffix(PREDICTIONS), predicted)
        if self.task.swaps:
            answers = answer_swaps(model, self.task.swaps, self.task.train, max_length=length)
            answers.save(path.with_suffix(SWAPS))
        if isinstance(self.task.dev, Documents):
            harness = self.config.task.harness
            measure_writing(self.loaded, model, self.task.dev, length, harness).save(path.with_suffix(WRITING))
        evaluated.save(path)
        if not held:
            remove_folder(self.training.checkpoints(kept, is_original=is_original))
        return evaluated

    def _predict(self, name: str, model: LoadedModel, *, is_original: bool) -> tuple[np.ndarray, dict[int, float]]:
        """What a model predicts on dev; and the metric with the first numbers of embeddings alone, where asked for.

        Embeddings of the original are known: they are what dev is measured by.
        """
        dev, length, title = self.task.dev, self.config.model.max_length, f"evaluating: {name}"
        if not isinstance(dev, Passages):
            return predict(model, dev, max_length=length, title=title), {}
        known = dev.embed if is_original else None
        vectors = known(dev.texts) if known else embed_texts(model, dev.texts, length, title)
        short = {number: dev.compare(vectors[:, :number]) for number in self.config.recovery.dimensions}
        return dev.compare(vectors), {n: self.task.measure(self.task.gold, found) for n, found in short.items()}

    def _is_complete(self, path: Path, *, is_original: bool) -> bool:
        """Whether an evaluated model has everything that later steps read; a damaged part was removed."""
        more = {PREDICTIONS: True, SWAPS: self.task.swaps, WRITING: isinstance(self.task.dev, Documents)}
        parts = [path, *(path.with_suffix(suffix) for suffix, needed in more.items() if needed)]
        return all(part.exists() for part in parts) and (not is_original or self.training.has_teacher())

    def _size(self, model: LoadedModel) -> dict[str, Any]:
        parameters, original = count_parameters(model.model, model.family), self.shrinker.original
        return {
            "params": parameters.total,
            "megabytes": round(measure_megabytes(model.model), 3),
            "ratio_total": parameters.total / original.total,
            "ratio_layers": sum(parameters.layers) / sum(original.layers),
        }

    def _quality(self, predicted: np.ndarray, original: EvaluatedModel | None) -> dict[str, Any]:
        value = self.task.measure(self.task.gold, predicted)
        with spinner("resampling"):
            spread = interval(self.task.measure, self.task.gold, predicted, self.config.seed)
        reference = value if original is None else original.value
        return {"value": value, "interval": spread, "retention": self.task.measure.retention(value, reference)}

    def _measure(self, model: LoadedModel, data: Data | None, title: str) -> float | None:
        """The metric on other data than dev, where there are any."""
        if data is None:
            return None
        predicted = predict(model, data, max_length=self.config.model.max_length, title=title)
        return self.task.measure(data.gold, predicted)

    def _measure_before_training(self, kept: Subset) -> BeforeTraining | None:
        """The metrics of the cut alone, where its head is the trained one of the checkpoint."""
        if self.task.kind.unit != "token":
            return None
        cut = self.training.cut(kept)
        value = self._measure(cut, self.task.dev, "evaluating the cut without training")
        second = self._measure(cut, self.task.second, "evaluating the cut on the second text")
        return None if value is None else BeforeTraining(value=value, second=second)

    def _measure_pieces(self, model: LoadedModel) -> WordPieces | None:
        if model.tokenizer is self.loaded.tokenizer:
            return None
        known, dev = self.shrinker.texts, self.task.dev
        texts, seen = ((*data.texts, *(data.pairs or ())) for data in (dev, known))
        return measure_pieces(model.tokenizer, self.loaded.tokenizer, texts, seen)

    def _measure_vectors(self, model: LoadedModel) -> VectorCost | None:
        """What embeddings cost in a search; None for models that give none."""
        if not self.task.kind.encodes:
            return None
        length = self.config.model.max_length
        return measure_vector_cost(partial(embed_texts, model, max_length=length), self.task.dev.texts)

    def _speed(self, model: LoadedModel, *, is_original: bool) -> dict[str, Any]:
        settings = self.config.selection
        length = min(settings.length, self.config.model.max_length)
        speed = compare_latency(self.loaded, model, length, settings.batch_size)
        # The original has the architecture of the model that it is timed beside: what differs from 1 is noise.
        speedup = 1.0 if is_original else speed.speedup
        return {"milliseconds": speed.milliseconds, "speedup": speedup, "spread": speed.spread}

    def predictions(self, name: str, evaluated: EvaluatedModel) -> np.ndarray:
        """What an evaluated model predicts on dev."""
        is_original = name == ORIGINAL or self._is_original(evaluated.kept)
        path = self.training.result_path(evaluated.kept, is_original=is_original).with_suffix(PREDICTIONS)
        return load_predictions(path, self.task)

    def evaluate_other(self, other: OtherModel, original: EvaluatedModel) -> EvaluatedModel:
        """Fine-tune another model as the original was, and evaluate it beside the original.

        One that was fine-tuned for these labels already is only evaluated.
        """
        path = self.other_path(other.called)
        if path.exists() and path.with_suffix(PREDICTIONS).exists():
            return EvaluatedModel.load(path)
        started, length = time.perf_counter(), self.config.model.max_length
        bench = prepare_other(self.bench, other)
        work = self.training.shared / INNER / "models" / other.called
        model, losses, health = Training(bench, work, ShrinkPlan()).train_original(other.called)
        predicted = predict(model, bench.task.dev, max_length=length, title=f"evaluating: {other.called}")
        predicted = rename_labels(predicted, bench.task.train.names, self.task.train.names)
        evaluated = EvaluatedModel(
            kept=tuple(range(1, model.layers + 1)),
            **self._size(model),
            **self._quality(predicted, original),
            losses=losses,
            failure="" if health.learned else health.describe(),
            **self._speed(model, is_original=False),
            vectors=self._measure_vectors(model),
            seconds=round(time.perf_counter() - started, 1),
        )
        save_predictions(path.with_suffix(PREDICTIONS), predicted)
        evaluated.save(path)
        remove_folder(work)
        return evaluated

    def other_path(self, name: str) -> Path:
        """The file with the metrics of another model, once it is evaluated."""
        return self.training.shared / INNER / EVALUATED / f"model {name}.json"

    def predictions_of_other(self, name: str) -> np.ndarray:
        """What another model predicts on dev."""
        return load_predictions(self.other_path(name).with_suffix(PREDICTIONS), self.task)

    def alternatives(self, original: EvaluatedModel) -> tuple[Alternative, ...]:
        """What simpler models reach with the same data and the teacher's answers."""
        if not self.task.kind.alternatives:
            return ()
        path, shared = (folder / "alternatives.json" for folder in (self.work, self.training.shared))
        if shared.exists() and not path.exists():
            write_text(path, shared.read_text(encoding="utf-8"))
        if not path.exists():
            teacher = self.training.teacher_outputs()
            found = measure_alternatives(
                self.task,
                self.training.unlabelled,
                teacher.logits if teacher else None,
                original,
                self.loaded,
                max_length=self.config.model.max_length,
                seed=self.config.seed,
                most_texts=self.config.probing.max_examples,
                class_weights=weigh_classes(self.task.train, self.training.choices.class_weights),
            )
            write_json(path, [one.model_dump() for one in found])
        return read_as(path, tuple[Alternative, ...])

    def bias(self, small: EvaluatedModel) -> Bias | None:
        """How both models answer texts that should be answered alike; None where answers are not classes of texts."""
        original = self.training.result_path((), is_original=True).with_suffix(SWAPS)
        cut = self.training.result_path(small.kept, is_original=self._is_original(small.kept)).with_suffix(SWAPS)
        if self.task.swaps is None:
            return None
        return compare_swaps(self.task.swaps, SwapAnswers.load(original), SwapAnswers.load(cut))

    def generation(self, small: EvaluatedModel) -> Generation | None:
        """What both models write after the same prompts; None where they write nothing."""
        if not isinstance(self.task.dev, Documents):
            return None
        original = self.training.result_path((), is_original=True)
        cut = self.training.result_path(small.kept, is_original=self._is_original(small.kept))
        return Generation.of_both(*(Writing.load(path.with_suffix(WRITING)) for path in (original, cut)))

    def save(self, selection: Selection, folder: Path | None = None) -> None:
        """Write the selection's model into a folder, by default that of the run's result, and prove it."""
        folder, kept = folder or self.work / "model", selection.kept
        if folder.exists():
            return
        if self.held and self.held[0] == kept:
            model = self.held[1]
        elif self._is_original(kept):
            model = self.training.train_original()[0]
        else:
            model = self.training.fine_tune("the result", kept)[0]
        more: dict[str, Any] = {"selection": selection.model_dump(mode="json")}
        if self.shrink:
            more["shrink"] = self.shrink.model_dump(mode="json", exclude_none=True)
        self._write(model, kept, more, folder)
        remove_folder(self.training.checkpoints(kept, is_original=False))

    def _write(self, model: LoadedModel, kept: Subset, more: dict[str, Any], folder: Path) -> None:
        """Write a trained model with its record, proved."""
        record = describe_cut(self.loaded, kept, model) | more
        record["params"] = count_parameters(model.model, model.family).total
        record["max_length"], record["kind"] = self.config.model.max_length, self.task.kind.name
        if self.task.kind.unit == "text":  # words are in the first column, wherever they were
            train = self.config.task.train
            pair = None if self.task.kind.encodes or train.pair is None else str(train.pair)  # a vector for each text
            record["columns"] = {"text": str(train.text), "pair": pair, "header": train.header}
        if model.thresholds:
            record["thresholds"] = model.thresholds
        save_model(model, record, folder, max_length=self.config.model.max_length)

    def _is_original(self, kept: Subset) -> bool:
        """Whether all layers stay and nothing is shrunk."""
        return kept == tuple(self.parameters.all_layers) and not self.shrink


def evaluate_others(evaluator: Evaluator, original: EvaluatedModel) -> dict[str, EvaluatedModel | str]:
    """Every other model of `compare`, evaluated; or why that failed, which costs no other row."""
    found: dict[str, EvaluatedModel | str] = {}
    for other in evaluator.config.other_models:
        try:
            found[other.called] = evaluator.evaluate_other(other, original)
        except UserError as error:
            found[other.called] = str(error)
            console.print(f"note: no row for {other.called}: {error}", soft_wrap=True)
    return found
