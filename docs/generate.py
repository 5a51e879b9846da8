"""Write the generated pages of docs/reference from the code; `--check` only compares.

`--counts` writes the parameter counts of the built-in shapes instead. A test compares them with the meta device.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

import probescale
from probescale.cli import app
from probescale.config import RunConfig
from probescale.study.settings import StudyConfig

REFERENCE = Path(__file__).parent / "reference"
SOURCE = Path(__file__).parents[1] / "src" / "probescale"
NOTE = "<!-- Written by docs/generate.py from the code; change the code and run `make docs`. -->"
# Packages of the modules page, in the order in which a run passes through them.
ORDER = ("cli", "pipeline", "tasks", "models", "probing", "selection", "recovery", "report", "study", "deploy", "utils")


def configuration() -> str:
    lines = [
        NOTE,
        "# Configuration",
        "One YAML file describes a run. `task` may be the name of a built-in task (`task: sst2`), or a built-in task "
        "with changes (`task: {builtin: sst2, max_train: 2000}`). `train`, `dev` and `data` may be just a source. "
        "Unknown keys are errors. `--set dotted.key=value` changes one value from the command line.",
    ]
    study = "A [study](../guides/study.md) has all of these keys, and a section that says what it varies."
    return "\n\n".join([*lines, *_sections(RunConfig, ""), _study_heading(study)]) + "\n"


def _study_heading(words: str) -> str:
    heading, table = _sections(StudyConfig, "study.")[0].split("\n", 1)
    return f"{heading}\n\n{words}\n{table}"


def _sections(section: type[BaseModel], path: str) -> list[str]:
    """A table for the section, then its parts."""
    rows, parts = [], []
    for name, field in section.model_fields.items():
        inner = _inner(field.annotation)
        many = "tuple" in str(field.annotation) and inner is not None
        key = f"{path}{name}"
        if inner:
            parts += _sections(inner, f"{key}.N." if many else f"{key}.")
        rows.append(f"| `{key}` | {_default(field.is_required(), field.get_default(call_default_factory=True))} "
                    f"| {field.description or ''} |")  # fmt: skip
    head = f"## {path.removesuffix('.').replace('.N', ' (each)') or 'Top level'}"
    return ["\n".join([head, "", "| key | default | |", "| --- | --- | --- |", *rows]), *parts]


def _inner(annotation: Any) -> type[BaseModel] | None:  # noqa: ANN401 - typing constructs
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_inner(part) for part in getattr(annotation, "__args__", ()))
    return next((part for part in found if part), None)


def _default(required: bool, value: object) -> str:
    if required or value is PydanticUndefined:
        return "required"
    if isinstance(value, BaseModel) or (isinstance(value, tuple) and value and isinstance(value[0], BaseModel)):
        return "see below"
    if isinstance(value, tuple):
        return f"`[{', '.join(str(item) for item in value)}]`"
    return "" if value is None else f"`{value}`"


def commands() -> str:
    lines = [
        NOTE,
        "# Command line",
        "`probescale COMMAND --help` prints the same. Exit code 2: the input is wrong. Exit code 1: the machine ran "
        "out of a resource, or a part of the work failed ([details](../concepts/reliability.md)).",
    ]
    for name, command in _every(typer.main.get_command(app)):
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
        usage = " ".join(
            ["probescale", name, *(p.name.upper() for p in arguments), *(["[OPTIONS]"] if options else [])]
        )
        rows = [f"| `{p.name.upper()}` | {p.help} |" for p in arguments]
        rows += [f"| `{', '.join(p.opts)}` | {p.help}{_option_default(p.default, p.show_default)} |" for p in options]
        lines += [f"## {name}", command.help, f"```\n{usage}\n```", "\n".join(["| | |", "| --- | --- |", *rows])]
    return "\n\n".join(lines) + "\n"


def _every(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - click's group
    """Commands in the order of --help, those of a group under its name."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _every(command, f"{name} ")
        else:
            yield f"{path}{name}", command


def _option_default(value: object, shown: object) -> str:
    if isinstance(shown, str):
        return f" Default: `{shown}`."
    value = value.value if isinstance(value, Enum) else value
    return f" Default: `{value}`." if value not in (None, False, (), []) and not callable(value) else ""


def functions() -> str:
    """The public functions with their signatures and docstrings."""
    introduction = (
        "`from probescale import run, load_config`: the public functions do what the commands of the same name do, "
        "with fewer options (`cut` is `probescale extract`). `Settings` is a configuration, a mapping with the same "
        "keys, or the path of a YAML file. Wrong input raises `UserError`."
    )
    sections = [NOTE, "# Python functions", introduction]
    for name in probescale.__all__:
        public = getattr(probescale, name)
        if inspect.isfunction(public):
            signature = str(inspect.signature(public)).replace("'", "")
            sections += [f"## {name}", f"```text\n{name}{signature}\n```", inspect.getdoc(public) or ""]
        elif not inspect.isclass(public):
            sys.exit(f"probescale.{name}: only functions and classes are public, and this is {public!r}")
    return "\n\n".join(sections) + "\n"


def modules() -> str:
    """The modules of every package, each with the first line of its docstring."""
    packages: dict[str, list[Path]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        packages.setdefault(path.relative_to(SOURCE).parent.as_posix(), []).append(path)
    sections = [_module_section(name, packages[name]) for name in sorted(packages, key=_package_rank)]
    introduction = (
        "Every module with the first line of its docstring. [Architecture](../concepts/architecture.md) says how they "
        "depend on each other, and which ones to read first."
    )
    return "\n\n".join([NOTE, "# Modules", introduction, *sections]) + "\n"


def _package_rank(package: str) -> tuple[int, str]:
    """The root first, then the packages in ORDER with what is inside them; packages that ORDER lacks come last."""
    top = package.split("/")[0]
    return (-1 if package == "." else ORDER.index(top) if top in ORDER else len(ORDER), package)


def _module_section(package: str, paths: list[Path]) -> str:
    name = "probescale" if package == "." else f"probescale.{package.replace('/', '.')}"
    summary = _first_line(SOURCE / package / "__init__.py")
    rows = [f"| `{path.name}` | {_first_line(path)} |" for path in paths if path.name != "__init__.py"]
    table = ["| module | |", "| --- | --- |", *rows] if rows else []
    return "\n".join([f"## {name}", "", summary, *([""] if table else []), *table])


def _first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) if path.exists() else ""
    if not text:
        sys.exit(f"{path}: a module needs a docstring")
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|").replace("<", "&lt;")


def counts() -> None:
    from probescale.models.architecture import compute_facts_by_length, read_architecture
    from probescale.models.facts import FACTS_FILE
    from probescale.models.shapes import canonical_name, list_shapes

    known = sorted({canonical_name(name) or "" for name in list_shapes()})
    found = {name: compute_facts_by_length(read_architecture(name)).model_dump(mode="json") for name in known}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in found.items())
    path = SOURCE / "models" / FACTS_FILE
    path.write_text("{\n" + lines + "\n}\n", encoding="utf-8")


def main() -> None:
    if "--counts" in sys.argv:
        counts()
        return
    stale = []
    pages = {
        "configuration.md": configuration(),
        "cli.md": commands(),
        "python.md": functions(),
        "modules.md": modules(),
    }
    for name, text in pages.items():
        path = REFERENCE / name
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(f"docs/reference/{name}")
    if stale:
        sys.exit(f"out of date: {', '.join(stale)}; run `make docs`")


if __name__ == "__main__":
    main()
