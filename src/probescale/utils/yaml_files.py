"""Configurations from YAML and back; every fault in it is named at once, in our words."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from probescale.errors import Problems, UserError, did_you_mean
from probescale.utils.files import format_size

M = TypeVar("M", bound=BaseModel)
MAX_SIZE = 1_000_000  # bytes of a configuration; values and letters, where its aliases are written out


def read_yaml(path: Path) -> dict[str, Any]:
    """The raw mapping of a YAML file; the error gives line and column."""
    if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises on names that are too long
        raise UserError(f'"{path}" is not a file', field="CONFIG", hint="give a YAML file; configs/ has examples")
    if path.stat().st_size > MAX_SIZE:
        raise UserError(f"{path} has {format_size(path.stat().st_size)}, which no configuration has", field="CONFIG")
    raw = _yaml_value(path.read_bytes(), str(path), field="CONFIG")
    if not isinstance(raw, dict):
        raise UserError(f"{path} holds no settings", field="CONFIG", hint="start from a file in configs/")
    return raw


def _yaml_value(text: str | bytes, name: str, *, field: str) -> Any:  # noqa: ANN401 - any YAML value
    try:
        value = YAML(typ="safe").load(text)
    except (YAMLError, ValueError, LookupError, RecursionError) as error:  # a date that does not exist, !!bool maybe
        raise UserError(f"{name} is not valid YAML: {' '.join(str(error).split())}", field=field) from error
    _refuse_bomb(value, name, field=field)
    return value


def _refuse_bomb(value: Any, name: str, *, field: str) -> None:  # noqa: ANN401 - any YAML value
    """A few aliases of aliases can stand for more than any memory holds, or for themselves."""
    room, rest = MAX_SIZE, [value]
    while rest:
        one = rest.pop()
        room -= 1 + (len(one) if isinstance(one, str) else 0)
        if room < 0:
            raise UserError(
                f"{name} has aliases that stand for more than a configuration can hold",
                field=field,
                hint="write out what *names refer to",
            )
        if isinstance(one, dict):
            rest += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            rest += one


def to_yaml(config: BaseModel, *, only_set: bool = False) -> str:
    """The configuration with all defaults filled in, or only what was set."""
    text = io.StringIO()
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.dump(_quoted(config.model_dump(mode="json", exclude_unset=only_set)), text)
    return text.getvalue()


def _quoted(value: Any) -> Any:  # noqa: ANN401 - any YAML value
    """Texts with unusual letters in double quotes, which keep them: in others, some line breaks become blanks."""
    if isinstance(value, dict):
        return {_quoted(key): _quoted(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_quoted(inner) for inner in value]
    return DoubleQuotedScalarString(value) if isinstance(value, str) and not value.isprintable() else value


def set_value(raw: dict[str, Any], assignment: str) -> None:
    """Apply one `dotted.key=value`; the value is read as YAML, a number steps into a list.

    >>> raw = {"task": {"probes": [{"name": "pos"}]}}
    >>> set_value(raw, "task.probes.0.weight=0.5"); raw
    {'task': {'probes': [{'name': 'pos', 'weight': 0.5}]}}
    """
    key, equals, value = assignment.partition("=")
    if not equals or not key:
        raise UserError(f'"{assignment}" is not an assignment', field="--set", hint="write --set dotted.key=value")
    *path, last = key.split(".")
    found = _yaml_value(value, f'"{assignment}"', field="--set")
    here: Any = raw
    try:
        for part in path:
            here = here[int(part)] if isinstance(here, list) else here.setdefault(part, {})
        here[int(last) if isinstance(here, list) else last] = found
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise UserError(
            f'"{assignment}" cannot be applied: no such place in the configuration', field="--set"
        ) from error


def parse_section(raw: object, section: type[M]) -> M:
    """The checked section, or Problems with one line per fault."""
    try:
        return section.model_validate(raw)
    except ValidationError as error:
        raise Problems(explain_faults(error, section)) from error


def explain_faults(error: ValidationError, model: type[BaseModel]) -> list[UserError]:
    """pydantic's faults in our words."""
    found = []
    for fault in error.errors():
        # Tagged unions put type names into the location; keep what the user wrote.
        path = [
            part
            for part in fault["loc"]
            if part not in ("str", "int", "float", "[key]", "function-before[_source_alone(), DataConfig]")
        ]
        field = ".".join(str(part) for part in path)
        if fault["type"] == "extra_forbidden":
            known = _fields_at(model, path[:-1])
            hint = f"use one of: {', '.join(known)}" if known else ""
            found.append(UserError(f"unknown key.{did_you_mean(str(path[-1]), known)}", field=field, hint=hint))
        elif fault["type"] == "missing":
            found.append(UserError("required, but missing", field=field))
        else:
            said = fault["msg"].removeprefix("Value error, ").replace("tuple", "list").replace("Tuple", "list")
            value = fault["input"]
            shown = f" (found {value!r})" if isinstance(value, (str, int, float, bool, type(None))) else ""
            found.append(UserError(said[0].lower() + said[1:] + shown, field=field))
    return list({problem.field + problem.message: problem for problem in found}.values())


def _fields_at(model: type[BaseModel], path: list[Any]) -> list[str]:
    """Field names of the section that a location points into."""
    for part in path:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation if part in model.model_fields else None
        inner = [a for a in _flatten(annotation) if isinstance(a, type) and issubclass(a, BaseModel)]
        if not inner:
            return []
        model = inner[0]
    return list(model.model_fields)


def _flatten(annotation: Any) -> list[Any]:  # noqa: ANN401 - typing constructs
    parts = getattr(annotation, "__args__", ())
    return [annotation, *(leaf for part in parts for leaf in _flatten(part))]
