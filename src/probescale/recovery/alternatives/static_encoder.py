"""Static embeddings as a sentence encoder: distilled from the original with model2vec, they are not trained further."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec

from probescale.errors import first_line
from probescale.models.loading import LoadedModel
from probescale.recovery.alternatives.static_embeddings import NAME, distill_static, embed_static
from probescale.recovery.alternatives.timing import compare_times
from probescale.recovery.result import Alternative, EvaluatedModel
from probescale.recovery.vector_cost import measure_vector_cost
from probescale.tasks.intervals import interval
from probescale.tasks.passages import Passages
from probescale.tasks.task import Task
from probescale.utils.progress import console, spinner


def measure_static_encoder(
    task: Task, original: EvaluatedModel, loaded: LoadedModel, *, max_length: int, seed: int
) -> tuple[Alternative, ...]:
    """What static embeddings reach on dev; nothing without model2vec, or if it refuses the model."""
    dev = task.dev
    if find_spec("model2vec") is None or not isinstance(dev, Passages):
        return ()
    try:
        with spinner(f"alternatives: {NAME}"):
            static = distill_static(loaded)
    except Exception as error:  # whatever the library raises for a tokenizer or a model that it does not know
        console.print(f"note: no {NAME}: {first_line(error)}", soft_wrap=True)
        return ()
    embed = partial(embed_static, static)
    predicted = dev.compare(embed(dev.texts))
    value = task.measure(task.gold, predicted)
    speed = compare_times(lambda one: embed(one.texts), loaded, dev, max_length, seed)
    return (
        Alternative(
            name=NAME,
            value=value,
            interval=interval(task.measure, task.gold, predicted, seed),
            retention=task.measure.retention(value, original.value),
            params=static.embedding.size,
            milliseconds=speed.milliseconds,
            speedup=speed.speedup,
            spread=speed.spread,
            vectors=measure_vector_cost(embed, dev.texts),
        ),
    )
