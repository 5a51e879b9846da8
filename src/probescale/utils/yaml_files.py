"""Read configurations from YAML and write them; all faults are reported together, in plain words."""

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
MAX_SIZE = 1_000_000  # bytes of a configuration; also values and characters, with its aliases expanded


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; an error gives line and column."""
    if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises on names that are too long
        raise UserError(f'"{path}" is not a file', field="CONFIG", hint="give a YAML file; configs/ has examples")
    if path.stat().st_size > MAX_SIZE:
        raise UserError(f"{path} has {format_size(path.stat().st_size)}, too much for a configuration", field="CONFIG")
    raw = _yaml_value(path.read_bytes(), str(path), field="CONFIG")
    if not isinstance(raw, dict):
        raise UserError(f"{path} has no settings", field="CONFIG", hint="start from a file in configs/")
    return raw


def _yaml_value(text: str | bytes, name: str, *, field: str) -> Any:  # noqa: ANN401 - any YAML value
    try:
        value = YAML(typ="safe").load(text)
    except (YAMLError, ValueError, LookupError, RecursionError) as error:  # such as a date that does not exist
        raise UserError(f"{name} is not valid YAML: {' '.join(str(error).split())}", field=field) from error
    _refuse_alias_bomb(value, name, field=field)
    return value


def _refuse_alias_bomb(value: Any, name: str, *, field: str) -> None:  # noqa: ANN401 - any YAML value
    """Refuse aliases of aliases that expand to more than fits into memory, or to themselves."""
    left, pending = MAX_SIZE, [value]
    while pending:
        part = pending.pop()
        left -= 1 + (len(part) if isinstance(part, str) else 0)
        if left < 0:
            raise UserError(
                f"{name} has aliases that expand to more than a configuration can hold",
                field=field,
                hint="write out what *names refer to",
            )
        if isinstance(part, dict):
            pending += [*part.keys(), *part.values()]
        elif isinstance(part, list):
            pending += part


def to_yaml(config: BaseModel, *, only_set: bool = False) -> str:
    """The configuration as YAML, with all defaults or only with what was set."""
    text = io.StringIO()
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.dump(_quoted(config.model_dump(mode="json", exclude_unset=only_set)), text)
    return text.getvalue()


def _quoted(value: Any) -> Any:  # noqa: ANN401 - any YAML value
    """The value with non-printable texts in double quotes: in other styles some line breaks become spaces."""
    if isinstance(value, dict):
        return {_quoted(key): _quoted(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_quoted(inner) for inner in value]
    return DoubleQuotedScalarString(value) if isinstance(value, str) and not value.isprintable() else value


def set_value(raw: dict[str, Any], assignment: str) -> None:
    """Apply one assignment `dotted.key=value`. The value is YAML; a number in the key is an index into a list.

    >>> raw = {"task": {"probes": [{"name": "pos"}]}}
    >>> set_value(raw, "task.probes.0.weight=0.5"); raw
    {'task': {'probes': [{'name': 'pos', 'weight': 0.5}]}}
    """
    key, equals, value = assignment.partition("=")
    if not equals or not key:
        raise UserError(f'"{assignment}" is not an assignment', field="--set", hint="write --set dotted.key=value")
    *path, last = key.split(".")
    parsed = _yaml_value(value, f'"{assignment}"', field="--set")
    here: Any = raw
    try:
        for part in path:
            here = here[int(part)] if isinstance(here, list) else here.setdefault(part, {})
        here[int(last) if isinstance(here, list) else last] = parsed
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise UserError(
            f'"{assignment}" cannot be applied: the configuration has no such key', field="--set"
        ) from error


def parse_section(raw: object, section: type[M]) -> M:
    """The validated section, or Problems with one line per fault."""
    try:
        return section.model_validate(raw)
    except ValidationError as error:
        raise Problems(explain_faults(error, section)) from error


def explain_faults(error: ValidationError, model: type[BaseModel]) -> list[UserError]:
    """pydantic's faults as user errors, in plain words."""
    problems = []
    for fault in error.errors():
        path = [part for part in fault["loc"] if not _is_type_name(part)]
        field = ".".join(str(part) for part in path)
        if fault["type"] == "extra_forbidden":
            known = _fields_at(model, path[:-1])
            hint = f"use one of: {', '.join(known)}" if known else ""
            problems.append(UserError(f"unknown key.{did_you_mean(str(path[-1]), known)}", field=field, hint=hint))
        elif fault["type"] == "missing":
            problems.append(UserError("required, but missing", field=field))
        else:
            message = fault["msg"].removeprefix("Value error, ").replace("tuple", "list").replace("Tuple", "list")
            value = fault["input"]
            shown = f" (found {value!r})" if isinstance(value, (str, int, float, bool, type(None))) else ""
            problems.append(UserError(message[0].lower() + message[1:] + shown, field=field))
    return _joined(problems)


def _is_type_name(part: str | int) -> bool:
    """Whether a part of a location is what pydantic calls a member of a union, and not what the user wrote."""
    return part in ("str", "int", "float", "[key]") or str(part).startswith(("literal[", "constrained-", "function-"))


def _joined(problems: list[UserError]) -> list[UserError]:
    """One problem per field: the members of a union each say what they allow of the same value."""
    by_field: dict[tuple[str, str], list[UserError]] = {}
    for problem in problems:
        _, found, value = problem.message.partition(" (found ")
        key = (problem.field, value) if found else (problem.field, problem.message)
        by_field.setdefault(key, []).append(problem)
    return [several[0] if len(several) == 1 else _either(several) for several in by_field.values()]


def _either(several: list[UserError]) -> UserError:
    messages = list(dict.fromkeys(problem.message for problem in several))
    allowed = [message.partition(" (found ")[0] for message in messages]
    found = messages[0].removeprefix(allowed[0])
    others = [one.removeprefix("input should be ") for one in allowed[1:]]
    return UserError(", or ".join([allowed[0], *others]) + found, field=several[0].field, hint=several[0].hint)


def _fields_at(model: type[BaseModel], path: list[Any]) -> list[str]:
    """The field names of the section at a location."""
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
