"""What every export format has in common, and the registry that names them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, TypeVar

from probescale.deploy.inference import RunBatch
from probescale.deploy.metadata import Tokens
from probescale.errors import UserError
from probescale.models.loading import LoadedModel
from probescale.tasks.kinds import Kind
from probescale.utils.files import Record


class ExportRecord(Record):
    """What an export wrote, and how it compares with the PyTorch model. A part of the folder's probescale.json."""

    int8: bool
    kind: str  # of the task; "states" where the model has no head
    labels: tuple[str, ...]
    inputs: tuple[str, ...]  # names of the tensors that the model reads
    longest: Tokens
    largest_difference: float  # of the float32 outputs, relative to the largest number
    metric: str | None = None  # of the task, where the run's dev set is found unchanged
    unmeasured: str = ""  # else why it was not evaluated
    value_recorded: float | None = None  # by the run
    value_pytorch: float | None = None
    value: float | None = None


class Exporter(ABC):
    """A format: how a model is written into a folder, and how the folder is opened again.

    export() does the rest: it writes tokenizer and config, compares outputs and metric, and keeps the folder or not.
    The first line of a subclass's docstring is the help shown by `probescale list exporters`.
    """

    name: ClassVar[str]  # given by @exporter
    file: ClassVar[str]  # that only folders of this format hold
    suffixes: ClassVar[tuple[str, ...]]  # of the files that hold weights
    runtime: ClassVar[str]  # library that runs the model

    def with_converter(self, converter: str | None) -> Exporter:
        """The same with the converter that the user named, for formats that a program from outside writes."""
        if converter is not None:
            raise UserError(f"{self.name} needs no converter", field="--converter", hint="leave it out")
        return self

    def check(self, loaded: LoadedModel) -> None:  # noqa: B027 - most formats take every model
        """Refuse by name, before the model is run, what cannot be written."""

    @abstractmethod
    def write(self, loaded: LoadedModel, kind: Kind | None, folder: Path, *, int8: bool) -> None:
        """Write the model in float32. `int8` says that quantize() follows. Refuse by name what cannot be written."""

    @abstractmethod
    def open(self, folder: Path, record: ExportRecord) -> RunBatch:
        """A function that runs a padded batch and returns what the PyTorch model would."""

    def quantize(self, folder: Path) -> bool:
        """Replace the weights by 8-bit ones. False, and no change, where this machine cannot run them."""
        raise UserError(f"{self.name} has no 8-bit form here", field="--int8", hint="leave it out")


EXPORTERS: dict[str, Exporter] = {}
E = TypeVar("E", bound=Exporter)


def exporter(name: str) -> Callable[[type[E]], type[E]]:
    """Register an Exporter under a name that `--to` accepts."""

    def register(kind: type[E]) -> type[E]:
        kind.name = name
        EXPORTERS[name] = kind()
        return kind

    return register
