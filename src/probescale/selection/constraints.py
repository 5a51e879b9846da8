"""What a selected subnetwork has to satisfy: a budget, over costs that are known, and a structure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from probescale.errors import UserError
from probescale.models.cost import Cost, parameter_cost
from probescale.models.parameters import Parameters
from probescale.selection.budget import UNIT_NAMES, Budget, Limit, Unit
from probescale.selection.structure import Structure

FLOAT32 = 4  # bytes


@dataclass(frozen=True)
class Bound:
    """One limit of a budget, with the cost that it limits."""

    limit: Limit
    cost: Cost
    most: float  # in the unit of the limit


@dataclass(frozen=True)
class Constraints:
    """The budget and the structure of a selection, with what the model's layers cost."""

    budget: Budget
    parameters: Parameters | None = None  # None: not known, so the budget can only be a number of layers
    costs: Mapping[Unit, Cost] = field(default_factory=dict)  # that parameters do not tell: GFLOPs, milliseconds
    structure: Structure | None = None

    @cached_property
    def full_structure(self) -> Structure:
        """The structure, with the layers that the model cannot do without."""
        structure = self.structure or Structure(where=self.budget.where)
        return structure.with_kept(self.parameters.fixed if self.parameters else ())

    @cached_property
    def known_costs(self) -> dict[Unit, Cost]:
        """Costs in every unit that is known. Megabytes are those of float32, unless they are given."""
        if not self.parameters:
            return dict(self.costs)
        counted = parameter_cost(self.parameters)
        return {"parameters": counted, "megabytes": counted.scaled(FLOAT32 / 1e6), **self.costs}

    @cached_property
    def bounds(self) -> tuple[Bound, ...]:
        """The limits of the budget; refused where the cost of the layers in a unit is not known."""
        costs, bounds = self.known_costs, []
        for limit in self.budget.limits:
            if limit.unit not in costs:
                raise UserError(
                    f"a budget of {limit.text} needs the {UNIT_NAMES[limit.unit]} of the layers, which the scores do "
                    "not carry",
                    field=f"{self.budget.where}budget",
                    hint="give k, or --model to count them from its config",
                )
            cost = costs[limit.unit]
            bounds.append(Bound(limit, cost, limit.most(cost.total)))
        return tuple(bounds)

    def allow(self, kept: Iterable[int]) -> bool:
        """Whether these layers stay within every limit of the budget."""
        layers = tuple(kept)
        return all(bound.cost.of(layers) <= bound.most for bound in self.bounds)

    def sizes(self, layers: int) -> list[int]:
        """Numbers of layers to try, largest first; contradictory settings are refused."""
        k, where = self.budget.k, self.budget.where
        if k is not None and k > layers:
            raise UserError(
                f"k={k}, but the model has {layers} layers", field=f"{where}k", hint=f"choose 1 to {layers}"
            )
        structure = self.full_structure
        possible = structure.sizes(layers)
        least, most = possible[0], possible[-1]
        if k is not None and k not in possible:
            raise UserError(
                f"k={k}, but the required structure allows {least} to {most} layers",
                field=f"{where}k",
                hint=f"choose {least} to {most}, or change {structure.where}keep or {structure.where}gap",
            )
        if k is not None and not self.budget.limits:
            return [k]
        return [size for size in reversed(possible) if size <= (k or most)]
