"""Read texts to learn embeddings from, and pairs to measure them with."""

from __future__ import annotations

from typing import Any

from probescale.config import DataConfig
from probescale.errors import UserError
from probescale.tasks.cells import label_text
from probescale.tasks.documents import is_text_file
from probescale.tasks.passages import Passages
from probescale.tasks.readers import find_column, read_all_columns
from probescale.tasks.unlabelled import read_lines
from probescale.utils.sources import local_path

FOUND = ("1", "true", "yes", "entailment", "relevant", "duplicate", "positive", "paraphrase")


def load_passages(data: DataConfig, *, field: str, linked: bool) -> Passages:
    """The texts of a file. Where it has pairs, they are kept: to be compared if `linked`, else to be learned."""
    path = local_path(data.source, field=f"{field}.source")
    if path is not None and is_text_file(data.source):
        return Passages(tuple(read_lines(path, field)))
    columns = read_all_columns(data.source, data.split, header=data.header, field=field)
    first = _texts(columns, data.text, f"{field}.text")
    if data.pair is None:
        return Passages(tuple(first))
    second = _texts(columns, data.pair, f"{field}.pair")
    number: dict[str, int] = {}
    links = [
        (number.setdefault(a, len(number)), number.setdefault(b, len(number)))
        for a, b in zip(first, second, strict=True)
    ]
    label = None if isinstance(data.label, tuple) else find_column(list(columns), data.label)
    if label is None:
        paired = Passages(tuple(number), tuple(links), retrieval=True)
    else:
        paired = _with_labels(tuple(number), links, columns[label], label, f"{field}.label")
    return paired if linked else _as_lessons(paired)


def _as_lessons(paired: Passages) -> Passages:
    """The same texts, to learn from the original's vectors and from their pairs."""
    links, scores = paired.links or (), paired.scores
    taught = {(one, other): None if scores is None else scores[n] for n, (one, other) in enumerate(links)}
    return Passages(paired.texts, taught=tuple((*pair, score) for pair, score in taught.items() if pair[0] != pair[1]))


def _texts(columns: dict[str, list[Any]], column: str | int, field: str) -> list[str]:
    name = find_column(list(columns), column)
    if name is None:
        raise UserError(f'there is no column "{column}"', field=field, hint=f"use one of: {', '.join(columns)}")
    if bad := [n for n, text in enumerate(columns[name], 1) if not isinstance(text, str) or not text.strip()]:
        raise UserError(f'column "{name}" has no text in row {bad[0]}', field=field, hint="remove such rows")
    return columns[name]


def _with_labels(
    texts: tuple[str, ...], links: list[tuple[int, int]], values: list[Any], column: str, field: str
) -> Passages:
    """Pairs with scores; or those that belong together, where the label says only that."""
    labels = [label_text(value) for value in values]
    different = set(labels)
    if len(different) <= 2 and (found := [label for label in different if label.casefold() in FOUND]):
        kept = [link for link, label in zip(links, labels, strict=True) if label in found]
        searched = {one for one, _ in kept} | {other for _, other in links}  # not the questions without an answer
        return Passages(texts, tuple(kept), retrieval=True).take(sorted(searched))
    try:
        scores = tuple(float(label) for label in labels)
    except ValueError as error:
        raise UserError(
            f'column "{column}" holds neither scores nor which pairs belong together: {error}',
            field=field,
            hint="give numbers, or 1 for pairs that belong together and 0 for others; or leave the pair's column out",
        ) from error
    return Passages(texts, tuple(links), scores)
