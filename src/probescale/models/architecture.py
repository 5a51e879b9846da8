"""Architectures: models as their configs describe them, without weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from transformers import PreTrainedConfig

from probescale.config import Head
from probescale.errors import UserError, did_you_mean
from probescale.models.config_reading import read_config
from probescale.models.cost import Cost
from probescale.models.counting import count_flops, count_from_config
from probescale.models.facts import Facts, FactsByLength, check_length, default_length
from probescale.models.families import find_family
from probescale.models.family import Family
from probescale.models.shapes import built_in_config, list_shapes
from probescale.utils.progress import console
from probescale.utils.sources import is_local


@dataclass(frozen=True)
class Architecture:
    """A model's config and family, and where the config came from."""

    source: str
    origin: Literal["given", "built-in shape", "hub"]
    config: PreTrainedConfig
    family: Family

    @property
    def layers(self) -> int:
        return self.family.count_layers(self.config)


def read_architecture(source: str, revision: str | None = None, *, field: str = "MODEL") -> Architecture:
    """The architecture of a folder, GGUF file or hub name. Well-known names without a revision need no network."""
    shape = None if revision or is_local(source) or source.startswith("pypi:") else built_in_config(source)
    if shape is not None:
        return Architecture(source, "built-in shape", shape, find_family(shape, field=field))
    try:
        config = read_config(source, revision, field=field)
    except UserError as error:
        if near := did_you_mean(source, list_shapes()):
            raise UserError(f"{error.message}.{near}", field=error.field, hint=error.hint) from error
        raise
    given = is_local(source) or source.startswith("pypi:")
    return Architecture(source, "given" if given else "hub", config, find_family(config, field=field))


def compute_facts(
    architecture: Architecture, head: Head = "none", classes: int = 2, length: int | None = None
) -> Facts:
    """Size and cost of a model, counted on the meta device."""
    family, config = architecture.family, architecture.config
    longest = family.longest_input(config)
    check_length(length, longest)
    length = default_length(length, longest)
    parameters = count_from_config(config, family, classes, head, field="MODEL")
    return Facts(
        family=family.name,
        part="encoder alone" if family.decoder and not parameters.decoder else "",
        layers_at=family.stack.blocks,
        layer_1_stays=family.layer_1_stays(config),
        longest=longest,
        length=length,
        parameters=parameters,
        gflops=_count_gflops(architecture, length, head, classes),
    )


def _count_gflops(architecture: Architecture, length: int, head: Head, classes: int) -> Cost | None:
    """GFLOPs, or None with a note where they cannot be counted: a plan is useful without them."""
    try:
        return count_flops(architecture.config, architecture.family, length, head, classes)
    except UserError as error:
        console.print(f"note: {error.message}")
        return None


def compute_facts_by_length(architecture: Architecture) -> FactsByLength:
    """The facts for any length: operations at three lengths give the three coefficients exactly."""
    facts = {n: compute_facts(architecture, length=n) for n in (16, 32, 64)}
    gflops = [cost for n in (16, 32, 64) if (cost := facts[n].gflops)]
    layers = [tuple(cost.layers[layer] for cost in gflops) for layer in range(architecture.layers)]
    return FactsByLength(
        **facts[16].model_dump(exclude={"gflops", "length"}),
        fixed=_coefficients([cost.fixed for cost in gflops]),
        layers=tuple(_coefficients(list(values)) for values in layers),
    )


def _coefficients(gflops: list[float]) -> tuple[float, float, float]:
    """a, b, c of the polynomial a + b n + c n^2 through the operations (whole numbers) at 16, 32 and 64 tokens.

    >>> _coefficients([(5 + 3 * n + 2 * n * n) / 1e9 for n in (16, 32, 64)])
    (5.0, 3.0, 2.0)
    """
    first, second, third = (round(value * 1e9) for value in gflops)
    c = ((third - second) / 32 - (second - first) / 16) / 48
    b = (second - first) / 16 - c * 48
    return first - 16 * b - 256 * c, b, c
