"""Labelled rows from files: columns are read, every cell is checked, labels become numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from probescale.config import DataConfig, ProbeTarget
from probescale.errors import UserError
from probescale.tasks.data import Examples, TaggedSentences
from probescale.tasks.label_sets import read_label_columns, read_label_lists
from probescale.tasks.readers import read_columns

LABELS = "set task.kind: labels, or name one column"


def load_examples(
    data: DataConfig,
    *,
    field: str,
    rename: Mapping[str, str] | None = None,
    names: tuple[str, ...] | None = None,
    target: ProbeTarget = "class",
) -> Examples:
    """Texts with their labels. For dev, `names` are the labels of train, and other labels are errors."""
    texts, pairs, cells = read_labelled(data, field=field, target=target, every=names is None)
    if target == "number":
        return Examples(texts, pairs, tuple(cells), (), target, kind=target)
    own: dict[str, str] = dict(rename or {})
    if target == "multi":
        lists = [[str(own.get(label, label)) for label in cell] for cell in cells]
        every = [label for cell in lists for label in cell]
        names = names or _label_names(every, field=f"{field}.label", column=data.label)
        numbers = iter(_numbers(every, names, field=f"{field}.label", row="label"))
        labels = tuple(tuple(sorted({next(numbers) for _ in cell})) for cell in lists)
        return Examples(texts, pairs, labels, names, target, kind="labels")
    called = [own.get(label, label) for label in map(str, cells)]
    names = names or _label_names(called, field=f"{field}.label", column=data.label)
    return Examples(texts, pairs, _numbers(called, names, field=f"{field}.label"), names)


def read_labelled(
    data: DataConfig, *, field: str, target: ProbeTarget = "class", every: bool = False
) -> tuple[tuple[str, ...], tuple[str, ...] | None, list[Any]]:
    """Texts, second texts and label values; every cell is checked, but labels are not compared with those of train.

    `every`: where every label has a column, some row has to have it.
    """
    labels = enumerate(data.label) if isinstance(data.label, tuple) else ()
    wanted: dict[str, str | int] = {"text": data.text} | {f"label.{number}": name for number, name in labels}
    if not isinstance(data.label, tuple):
        wanted["label"] = data.label
    if data.pair is not None:
        wanted["pair"] = data.pair
    columns = read_columns(data.source, data.split, wanted, header=data.header, field=field)
    texts = _texts(columns["text"], field=f"{field}.text", column=data.text)
    pairs = _texts(columns["pair"], field=f"{field}.pair", column=data.pair) if data.pair is not None else None
    if not isinstance(data.label, tuple):
        read = {"class": _label_texts, "multi": read_label_lists, "number": _quantities}[target]
        return texts, pairs, read(columns["label"], field=f"{field}.label", column=data.label)
    if target != "multi":
        raise UserError("one column per label is for several labels per text", field=f"{field}.label", hint=LABELS)
    by_name = {str(name): columns[f"label.{number}"] for number, name in enumerate(data.label)}
    return texts, pairs, read_label_columns(by_name, field=f"{field}.label", every=every)


def load_tagged(
    data: DataConfig,
    *,
    field: str,
    rename: Mapping[str, str] | None = None,
    names: tuple[str, ...] | None = None,
) -> TaggedSentences:
    """Sentences with one tag per word, or none. For dev, `names` are the tags of train, and other tags are errors."""
    rows = read_tagged(data, field=field)
    flat = [(rename or {}).get(tag, tag) for _, tags in rows for tag in tags if tag is not None]
    names = names or _label_names(flat, field=f"{field}.label", column=data.label)
    numbers = iter(_numbers(flat, names, field=f"{field}.label", row="tagged word"))
    tags = tuple(tuple(-1 if tag is None else next(numbers) for tag in tags) for _, tags in rows)
    return TaggedSentences(tuple(words for words, _ in rows), tags, names)


def read_tagged(data: DataConfig, *, field: str) -> list[tuple[tuple[str, ...], tuple[str | None, ...]]]:
    """Words and tags of every sentence, all checked; sentences without a tagged word are left out."""
    if isinstance(data.label, tuple):
        raise UserError("words have one column of tags", field=f"{field}.label", hint="name one column")
    wanted: dict[str, str | int] = {"text": data.text, "label": data.label}
    columns = read_columns(data.source, data.split, wanted, header=data.header, field=field)
    for role in ("text", "label"):
        if not all(isinstance(cell, (list, tuple)) for cell in columns[role]):
            raise UserError(
                f"tagging needs a list of words and a list of tags in every row; {data.source} has plain values",
                field=f"{field}.{role}",
                hint="give a CoNLL file (.conll, .txt), or columns that hold lists",
            )
    if not all(isinstance(word, str) for words in columns["text"] for word in words):
        raise UserError("words must be plain texts", field=f"{field}.text", hint="name the column with the words")
    if bad := [n for n, words in enumerate(columns["text"], 1) if not all(word.strip() for word in words)]:
        raise UserError(
            f"sentence {bad[0]} has an empty word ({len(bad)} such sentences)",
            field=f"{field}.text",
            hint="remove these words and their tags",
        )
    sentences = [(tuple(words), tags) for words, tags in zip(columns["text"], columns["label"], strict=True)]
    if bad := [n for n, (words, tags) in enumerate(sentences, 1) if len(words) != len(tags)]:
        raise UserError(f"sentence {bad[0]} does not have one tag per word", field=f"{field}.label")
    rows = [(words, tags) for words, tags in sentences if any(tag is not None for tag in tags)]
    if not rows:
        raise UserError(f'no word in {data.source} has a value in "{data.label}"', field=f"{field}.label")
    given = [tag for _, tags in rows for tag in tags if tag is not None]
    texts = iter(_label_texts(given, field=f"{field}.label", column=data.label))
    return [(words, tuple(None if tag is None else next(texts) for tag in tags)) for words, tags in rows]


def _texts(values: list[Any], *, field: str, column: object) -> tuple[str, ...]:
    if bad := [n for n, value in enumerate(values, 1) if not isinstance(value, str) or not value.strip()]:
        first = values[bad[0] - 1]
        if isinstance(first, (int, float)) and not isinstance(first, bool):
            raise _numbers_not_text(column, first, field)
        if first is not None and not isinstance(first, str):
            raise UserError(
                f'column "{column}" holds {type(first).__name__} values, not text',
                field=field,
                hint="name the column with the text",
            )
        raise UserError(
            f'column "{column}" has {len(bad)} rows without text, first in row {bad[0]}',
            field=field,
            hint="remove these rows",
        )
    if all(_is_number(value) for value in values):
        raise _numbers_not_text(column, values[0], field)
    return tuple(values)


def _numbers_not_text(column: object, value: object, field: str) -> UserError:
    return UserError(
        f'column "{column}" holds numbers (first: {value}), not text',
        field=field,
        hint="name the column with the text",
    )


def _is_number(value: Any) -> bool:  # noqa: ANN401 - any cell
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):  # the last for 400 digits
        return False


def _is_integer(name: str) -> bool:
    return name.isascii() and name.removeprefix("-").isdigit() and len(name) < 1000  # Python does not read longer ones


def _label_texts(values: list[Any], *, field: str, column: object) -> list[str]:
    texts = [_label_text(value) for value in values]
    if bad := [n for n, text in enumerate(texts, 1) if not text]:
        raise UserError(
            f'column "{column}" has {len(bad)} rows without a label, first in row {bad[0]}',
            field=field,
            hint="labels are texts or numbers; remove or correct these rows",
        )
    return [text for text in texts if text]


def _quantities(values: list[Any], *, field: str, column: object) -> list[float]:
    if bad := [n for n, value in enumerate(values, 1) if isinstance(value, bool) or not _is_number(value)]:
        raise UserError(
            f'column "{column}" has {len(bad)} rows without a number, first in row {bad[0]}: {values[bad[0] - 1]!r}',
            field=field,
            hint="a quantity is a finite number; every row needs one",
        )
    numbers = [float(value) for value in values]
    if len(set(numbers)) < 2:
        raise UserError(f'column "{column}" has the same number in every row', field=field)
    return numbers


def _label_text(value: object) -> str | None:
    """A label as text: 1, 1.0, "1", "1.0" and " 1 " are the same; None for what is no label."""
    if isinstance(value, float):
        return None if math.isnan(value) else str(value).removesuffix(".0")
    if not isinstance(value, (str, int)):
        return None
    text = str(value).strip()
    return text.removesuffix(".0") if _is_integer(text.removesuffix(".0")) else text


def _label_names(labels: list[str], *, field: str, column: object) -> tuple[str, ...]:
    if not labels:
        raise UserError(f'column "{column}" holds no label', field=field, hint="name the column with the labels")
    if not all(label.strip() for label in labels):
        raise UserError("a label has an empty name", field="task.labels", hint="give it a name")
    names = sorted(set(labels), key=lambda name: (0, int(name), name) if _is_integer(name) else (1, 0, name))
    if len(names) > max(2, len(labels) // 2):
        raise UserError(
            f'column "{column}" has {len(names)} different values in {len(labels)} rows: these are no classes',
            field=field,
            hint="name the column with the label",
        )
    if len(names) < 2:
        raise UserError(
            f'column "{column}" has one class only: "{names[0]}"',
            field=field,
            hint="give data with at least two labels",
        )
    return tuple(names)


def _numbers(labels: list[str], names: tuple[str, ...], *, field: str, row: str = "row") -> tuple[int, ...]:
    number = {name: i for i, name in enumerate(names)}
    if unseen := [n for n, label in enumerate(labels, 1) if label not in number]:
        raise UserError(
            f'label "{labels[unseen[0] - 1]}" in {row} {unseen[0]} does not occur in train ({len(unseen)} such {row}s)',
            field=field,
            hint=f"train has: {', '.join(names[:20])}; give equal labels one name with task.labels",
        )
    return tuple(number[label] for label in labels)
