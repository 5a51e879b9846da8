"""Fuzz every field of every configuration; fields are read from the classes, so new ones are included."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import note
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from helpers.fuzzing import RNG, damaged, fuzz, nonsense, result_or_error
from probescale.config import RunConfig
from probescale.pipeline.validate import load_config
from probescale.study.cells import load_study
from probescale.study.settings import StudyConfig
from probescale.utils.yaml_files import to_yaml

CONFIGS = [path.read_bytes() for path in sorted((Path(__file__).parents[2] / "configs").rglob("*.yaml"))]
Place = tuple[str | int, ...]


def inner_models(annotation: Any) -> list[tuple[Place, type[BaseModel]]]:
    """The configuration classes in an annotation, each with the path step that leads into it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [((), annotation)]
    step: Place = (0,) if getattr(annotation, "__origin__", None) is tuple else ()
    return [((*step, *p), m) for one in getattr(annotation, "__args__", ()) for p, m in inner_models(one)]


def fields_of(model: type[BaseModel], path: Place = ()) -> dict[Place, FieldInfo]:
    found: dict[Place, FieldInfo] = {}
    for name, field in model.model_fields.items():
        found[(*path, name)] = field
        for step, inner in inner_models(field.annotation):
            found |= fields_of(inner, (*path, name, *step))
    return found


FIELDS = fields_of(RunConfig) | fields_of(StudyConfig, ("study",))


def edges(field: FieldInfo) -> list[Any]:
    """Values on both sides of a field's bounds, and its allowed names."""
    bounds = [getattr(rule, name, None) for rule in field.metadata for name in ("ge", "gt", "le", "lt")]
    near = [
        value for bound in bounds if bound is not None for value in (bound, bound - 1, bound + 1, bound * 1.0000001)
    ]
    return [*near, *known_names(field.annotation), field.get_default(call_default_factory=True)]


def known_names(annotation: Any) -> list[str]:
    parts = getattr(annotation, "__args__", ())
    return [name for part in parts for name in ([part] if isinstance(part, str) else known_names(part))]


class Raw(str):
    """A string that YAML output leaves as it is."""


TRICKS = [
    Raw(text)
    for text in (
        "", "~", "yes", "No", "0o17", "017", "0x1F", "0b11", "1_000", "1:30", "190:20:30.15", ".inf", "-.inf",
        ".nan", "1e3", "1e999", "+1", "- 1", "2020-02-30", "2020-01-01", "2001-12-14t21:59:43.10-05:00", "9" * 5000,
        "1." + "0" * 5000, "=", "<<", "{<<: 5}", "{<<: [{a: 1}, {a: 2}]}", "&a [*a]", "&a {a: *a}", "*nobody",
        "&a &b c", "!!python/object/apply:os.system [ls]", "!x y", "!!binary aGVsbG8=", "!!binary ä",
        "!!set {a, b}", "!!omap [a: 1]", "!!pairs [a: 1, a: 2]", "!!str 5", "!!int x", "!!int ''", "!!float x",
        "!!float ''", "!!bool maybe", "!!null x", "!!timestamp x", "!!timestamp 2020-01-01", "!!map [a]",
        "!!seq {a: 1}", "!!omap 5", "!!set [1]", "!!int 0x", "!!int 0b", "!!int '-'", "!!float '.'", "!!int 1:x",
        "!!merge <<", "!!value =", "{a: 1, a: 2}", "{? [a]: b}", "{? {a: b}: c}", "{[a, b]: c}", "{1: 2}", "{~: 1}",
        "{.nan: 1}", "[" * 500, "{a: " * 1000, '"\\0"', '"\\ud800"', '"\\x85"', '"\\uFEFF"', '"\\U0001F600"',
        '"\\U00110000"', '"\\xff"', "'\u202e'", "'\u2028'", "'é\u0301'", "%YAML 1.1", "---", "...", "# nothing",
        "@x", "`x`", "? x", ": x", "|", ">", "\t", "\0", "\x85", "\ufeff", "'a: b'", "a: b",
    )
]  # fmt: skip


def flow(value: Any) -> str:
    """A value as YAML on one line."""
    if isinstance(value, Raw):
        return value
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, BaseModel):
        return flow(value.model_dump(mode="json"))
    return "null" if repr(value) == "PydanticUndefined" else json.dumps(value)


def put(raw: Any, path: Place, value: Any) -> None:
    """Set a nested value, and create the sections on the way."""
    for key, following in pairwise(path):
        new: Any = [{}] if following == 0 else {}
        old = raw[0] if key == 0 else raw.get(key)
        raw[key] = old if isinstance(old, type(new)) and old else new
        raw = raw[key]
    raw[path[-1]] = value


def base() -> dict[str, Any]:
    task = {"train": "owner/data", "dev": {"source": "owner/data", "split": "validation"}}
    return {"model": {"source": "owner/model"}, "task": task, "selection": {"k": 2}}


def changes(rng: Random, *, study: bool = False) -> list[tuple[Place, Any]]:
    places = [place for place in FIELDS if study or place[0] != "study"]
    return [(place, odd_value(rng, FIELDS[place])) for place in rng.choices(places, k=rng.randint(1, 3))]


def odd_value(rng: Random, field: FieldInfo) -> Any:
    return rng.choice([rng.choice(edges(field)), rng.choice(TRICKS), nonsense(rng)])


def document(raw: dict[str, Any], changed: list[tuple[Place, Any]]) -> str:
    for place, value in changed:
        put(raw, place, value)
    return "\n".join(f"{key}: {flow(value)}" for key, value in raw.items()) + "\n"


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("configs") / "config.yaml"


def written(path: Path, text: str | bytes) -> Path:
    note(f"the file: {text!r}")
    path.write_bytes(text if isinstance(text, bytes) else text.encode(errors="surrogatepass"))
    return path


def test_every_section_is_found():
    names = {".".join(str(part) for part in place) for place in FIELDS}
    assert {
        "model.source",
        "task.probes.0.data.label",
        "recovery.original.epochs",
        "shrink.corpus.most",
        "seed",
    } <= names
    assert {"study.seeds", "study.engine"} <= names


@fuzz("fields of a run", 120, rng=RNG)
def test_every_field_of_a_run(file, rng):
    path = written(file, document(base(), changes(rng)))
    config = result_or_error(lambda: load_config(path))
    if config is not None:
        assert load_config(written(file, to_yaml(config))) == config


@fuzz("fields of a study", 60, rng=RNG)
def test_every_field_of_a_study(file, rng):
    raw = base() | {"study": {"strategies": ["top_k"], "seeds": [0, 1]}}
    path = written(file, document(raw, changes(rng, study=True)))
    result_or_error(lambda: load_study(path))


@fuzz("assignments (--set)", 60, rng=RNG, odd=st.text(max_size=8))
def test_assignments(file, rng, odd):
    words = [f"{'.'.join(str(part) for part in place)}={flow(value)}" for place, value in changes(rng)]
    path = written(file, document(base(), []))
    result_or_error(lambda: load_config(path, [*words, odd] if odd else words))


@pytest.mark.long
@fuzz("configuration files", 30, rng=RNG)
def test_damaged_files(file, rng):
    path = written(file, damaged(rng, rng.choice(CONFIGS)))
    result_or_error(lambda: load_config(path))
    result_or_error(lambda: load_study(path))


@fuzz("texts like YAML", 40, text=st.text(st.sampled_from("ab:-&*!?{}[]|>#%@`'\",. \n\t\0\x85\u2028é1~<"), max_size=40))
def test_texts_that_look_like_yaml(file, text):
    result_or_error(lambda: load_config(written(file, text)))
