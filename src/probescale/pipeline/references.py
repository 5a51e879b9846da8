"""Rows to read a generative model's figures by: trained with the plain loss only; the full model on the same text."""

from __future__ import annotations

from probescale.config import REFERENCES
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.models.subsets import Subset
from probescale.pipeline.evaluation import PREDICTIONS, Evaluator
from probescale.pipeline.seals import INNER
from probescale.recovery.predictions import save_predictions
from probescale.recovery.result import EvaluatedModel


def evaluate_references(evaluator: Evaluator, kept: Subset, original: EvaluatedModel) -> dict[str, EvaluatedModel]:
    """Train and evaluate every reference that the configuration asks for; `kept`: the layers of the run's result.

    All of them read what the result read, with the same recipe, and nothing of the original's answers.
    """
    found: dict[str, EvaluatedModel] = {}
    for name in evaluator.config.references:
        called, layers = REFERENCES[name], tuple(original.kept) if name == "full_model" else kept
        reference = _prepare(evaluator, name)
        found[called] = reference.evaluate(called, layers, original)
        predicted = reference.predictions(called, found[called])
        save_predictions(evaluator.other_path(called).with_suffix(PREDICTIONS), predicted)
    return found


class _Reference(Evaluator):
    """An Evaluator that trains the model with all layers like any other."""

    def _is_original(self, kept: Subset) -> bool:
        return False


def _prepare(evaluator: Evaluator, name: str) -> Evaluator:
    """An evaluator for the same texts and recipe in a folder of its own, without a teacher."""
    config = evaluator.config
    plain = config.model_copy(update={"recovery": config.recovery.model_copy(update={"distil": False})})
    bench = evaluator.bench.with_config(plain).with_recipe(evaluator.training.choices)
    shrink = ShrinkPlan() if name == "full_model" else evaluator.shrink
    return _Reference(bench, evaluator.work / INNER / "references" / name, shrink)
