"""From a model, a table and a budget to a configuration: columns are found, everything else is left to the defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from probescale.config import RunConfig
from probescale.errors import ProofFailed, UserError
from probescale.pipeline.validate import check
from probescale.tasks.columns import Layout, find_layout, find_text_column
from probescale.tasks.kinds import find_kind
from probescale.tasks.live import save_rows
from probescale.tasks.readers import is_delimited, read_all_columns
from probescale.utils.files import remove_folder
from probescale.utils.ownership import read_manifest, write_manifest
from probescale.utils.sources import DATA_SUFFIXES

INPUTS = "inputs"  # kind of the folder with models and rows from Python
NOTHING_GIVEN = "5x"  # the budget where neither a budget nor a share to keep is given
MOST_DEV = 10_000  # examples for the final figures: they are certain to a point, and every model answers them
MOST_DOCUMENTS = 200  # the same of running text, where every token is an answer


@dataclass(frozen=True)
class Request:
    """What a user asks of `compress`: a model, its data, and how small it should be."""

    model: str | tuple[Any, Any]  # a source, or a transformers model with its tokenizer
    train: object  # a source, or rows: a DataFrame, a Dataset, lists
    dev: object = None
    unlabelled: object = None
    budget: str | Sequence[str] = NOTHING_GIVEN
    columns: Mapping[str, str | None] = field(default_factory=dict)  # text, pair, label, kind, where given
    settings: Mapping[str, Any] = field(default_factory=dict)  # more settings, by dotted key
    header: bool = True  # the first line of CSV and TSV files has the names of the columns
    ladder: str | Sequence[str] | None = None  # several sizes instead of a budget; "auto": the usual ones
    second: object = None  # other text, of which nothing is learned
    calibration: object = None  # data to measure layers on

    @property
    def name(self) -> str:
        """A name for the task: that of its file."""
        if not isinstance(self.train, (str, Path)):
            return "task"
        stem = Path(str(self.train).partition("#")[0].removesuffix(".gz")).name
        for suffix in DATA_SUFFIXES:
            stem = stem.removesuffix(suffix)
        return "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in stem) or "task"


def refuse_beside_keep(keep: object, given: Mapping[str, object], *, where: str = "--") -> None:
    """Refuse what a search for the smallest model would ignore, where there is a share to keep.

    `where`: what stands before the names, where they were given.
    """
    for name, value in given.items():
        if value and keep is not None:
            raise UserError(
                "a search for the smallest model chooses this by itself",
                field=f"{where}{name}",
                hint=f"leave it or {where}keep out" if where else "leave it out",
            )


def refuse_beside_ladder(ladder: bool | Sequence[str], budget: str | Sequence[str] | None) -> None:
    """Refuse a budget that a ladder from Python would ignore."""
    if ladder and budget is not None:
        raise UserError(
            "a ladder has a model of every size",
            field="budget",
            hint='leave it or the ladder out; to choose the sizes: ladder=["2x", "5x", "10x"]',
        )


def split_rungs(budgets: Sequence[str]) -> str | list[str]:
    """The sizes of a ladder as a user lists them.

    >>> split_rungs(["2x,5x", "10x"]), split_rungs([])
    (['2x', '5x', '10x'], 'auto')
    """
    return [part.strip() for text in budgets for part in text.split(",")] or "auto"


@contextmanager
def new_inputs(inputs: Path) -> Iterator[Path]:
    """The folder for live models and rows, which does not stay behind where they are refused."""
    existed = inputs.exists()
    try:
        yield inputs
    except ProofFailed:
        raise  # the run can be resumed, and needs them
    except UserError:
        if not existed:
            remove_folder(inputs)
        raise


def build_config(request: Request, inputs: Path, assignments: Sequence[str] = ()) -> tuple[RunConfig, Layout]:
    """The checked configuration, and what its columns are. Live models and rows are written to the folder `inputs`.

    `assignments`: changes such as "selection.k=4".
    """
    train = _as_source(request.train, inputs / "train.jsonl", "DATA")
    model = _model_source(request.model, inputs / "model")
    layout = find_layout(train, **request.columns, header=request.header, field="DATA")
    if request.columns.get("kind") is None and find_kind(layout.kind).unit == "token" and not _generates(model):
        layout = find_layout(train, **{**request.columns, "kind": "embedding"}, header=request.header, field="DATA")
    columns = {"source": train, **_columns(layout)}
    most = MOST_DOCUMENTS if find_kind(layout.kind).unit == "token" else MOST_DEV
    task: dict[str, Any] = {"name": request.name, "kind": layout.kind, "train": columns, "max_dev": most}
    more = {"dev": request.dev, "second": request.second, "calibration": request.calibration}
    for part, given in more.items():
        if given is not None:
            source = _as_source(given, inputs / f"{part}.jsonl", f"--{part}")
            task[part] = {"source": source, **_labelled_columns(source, layout, f"--{part}")}
    if request.unlabelled is not None:
        more = _as_source(request.unlabelled, inputs / "unlabelled.jsonl", "--unlabelled")
        task["unlabelled"] = {"source": more, **_text_columns(more, layout, "--unlabelled")}
    budget = request.budget if isinstance(request.budget, str) else list(request.budget)
    rungs = request.ladder if isinstance(request.ladder, str) else list(request.ladder or ())
    raw: dict[str, Any] = {
        "model": {"source": model},
        "task": task,
        "selection": {"ladder": rungs} if rungs else {"budget": budget},
    }
    for key, value in request.settings.items():
        _set(raw, key, value)
    return check(raw, assignments), layout


def _generates(model: str) -> bool:
    """Whether a model writes texts: else what it makes of texts without labels are embeddings."""
    from probescale.models.config_reading import read_config
    from probescale.models.families import find_family

    family = find_family(read_config(model, None, field="MODEL"), field="MODEL")
    return family.is_decoder


def _as_source(given: object, path: Path, field: str) -> str:
    """A source as the configuration names it; rows from Python are written to a file first."""
    if isinstance(given, (str, Path)):
        return str(given)
    _claim(path.parent)
    return str(save_rows(given, path, field=field))


def _claim(inputs: Path) -> None:
    """Make the folder for live models and rows ours; refuse one of someone else."""
    if inputs.exists() and any(inputs.iterdir()) and read_manifest(inputs, INPUTS) is None:
        raise UserError(
            f'"{inputs}" is where rows and models from Python are kept, but it was not written by ProbeScale',
            field="out",
            hint="choose another folder for the run, or move that one",
        )
    inputs.mkdir(parents=True, exist_ok=True)
    write_manifest(
        inputs, INPUTS, files=[f"{part}.jsonl" for part in ("train", "dev", "second", "calibration", "unlabelled")]
    )


def _columns(layout: Layout) -> dict[str, Any]:
    label = list(layout.label) if isinstance(layout.label, tuple) else layout.label
    given = {"pair": layout.pair, "label": label}
    more = {role: column for role, column in given.items() if column is not None}
    return {"text": layout.text, **more, **({} if layout.header else {"header": False})}


def _labelled_columns(source: str, layout: Layout, field: str) -> dict[str, Any]:
    """The columns of train where the table has them; else those that are found in it."""
    header = layout.header or not is_delimited(source)
    if not find_kind(layout.kind).labelled:
        return _columns(find_layout(source, kind=layout.kind, header=header, field=field))
    names = read_all_columns(source, None, header=header, field=field)
    labels = layout.label if isinstance(layout.label, tuple) else (layout.label,)
    if all(str(column) in names for column in (layout.text, *labels, layout.pair) if column is not None):
        return _columns(replace(layout, header=header))
    return _columns(find_layout(source, kind=layout.kind, header=header, field=field))


def _text_columns(source: str, layout: Layout, field: str) -> dict[str, Any]:
    text, pair = find_text_column(source, None, like=layout, field=field)
    header = layout.header or not is_delimited(source)
    return {"text": text, **({"pair": pair} if pair else {}), **({} if header else {"header": False})}


def _model_source(model: str | tuple[Any, Any], folder: Path) -> str:
    """The model's source; a live model is saved first, with its tokenizer."""
    if isinstance(model, (str, Path)):
        return str(model)
    if not (isinstance(model, tuple) and len(model) == 2 and hasattr(model[0], "save_pretrained")):
        raise UserError(
            f"a {type(model).__name__} is no model",
            field="model",
            hint="give a source, or a tuple of a transformers model and its tokenizer",
        )
    _claim(folder.parent)
    for part in model:
        part.save_pretrained(folder)
    return str(folder)


def _set(raw: dict[str, Any], key: str, value: object) -> None:
    """Set a value by its dotted key."""
    *path, last = key.split(".")
    for name in path:
        raw = raw.setdefault(name, {})
    raw[last] = value
