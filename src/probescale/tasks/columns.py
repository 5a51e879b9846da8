"""Find the columns of a data set: which one is the text, which one the label, and what kind of task they make.

Names that people use for texts and labels come first, then what the values look like. What is not certain is an error
that says what was found and which options to give: a wrong guess would cost a training.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from probescale.errors import UserError
from probescale.tasks.column_roles.corpora import describe_corpus, is_running_text
from probescale.tasks.column_roles.label_columns import find_given_labels, find_label_columns
from probescale.tasks.column_roles.names import is_label_name
from probescale.tasks.column_roles.table import ColumnName, Table, join_names, read_table
from probescale.tasks.column_roles.tags import find_tags, find_words, is_tagged
from probescale.tasks.column_roles.texts import choose_kind, find_label, find_texts
from probescale.tasks.documents import is_text_file
from probescale.tasks.kinds import find_kind
from probescale.tasks.readers import is_delimited
from probescale.tasks.unlabelled import read_lines
from probescale.utils.sources import local_path


@dataclass(frozen=True)
class Layout:
    """What the columns of a table are."""

    kind: str  # task.kind
    text: ColumnName
    pair: str | None
    label: ColumnName | tuple[str, ...] | None  # several: one column of 0 and 1 per label; None: texts without labels
    labels: str = field(default="", compare=False)  # what the label column holds, for people: "5 classes"
    header: bool = True  # the first line has the names of the columns

    def describe(self) -> str:
        """The layout in one line.

        >>> Layout("class", "review", None, "stars", "5 classes").describe()
        'text: `review`, label: `stars` (5 classes)'
        >>> Layout("tags", 1, None, 4, "9 tags").describe()
        'words: column 1, tags: column 4 (9 tags)'
        >>> Layout("text", "text", None, None, "running text").describe()
        'text: running text'
        """
        if find_kind(self.kind).encodes:
            what = "without labels: the original's embeddings are learned"
            return f"{self.labels} {what}" if self.pair is None else f"pairs {_show(self.text)} and {_show(self.pair)}"
        if self.label is None:
            return f"text: {self.labels}"
        text, label = ("words", "tags") if find_kind(self.kind).unit == "word" else ("text", "label")
        texts = (
            f"{text}: {_show(self.text)}" if self.pair is None else f"texts: {_show(self.text)} and {_show(self.pair)}"
        )
        if isinstance(self.label, tuple):
            label, shown = "labels", join_names([_show(name) for name in self.label], "and")
        else:
            shown = _show(self.label)
        return f"{texts}, {label}: {shown}" + (f" ({self.labels})" if self.labels else "")


def find_layout(
    source: str,
    split: str | None = None,
    *,
    kind: str | None = None,
    text: ColumnName | None = None,
    pair: str | None = None,
    label: ColumnName | None = None,
    header: bool = True,
    field: str = "DATA",
) -> Layout:
    """The layout of labelled data. What is given is taken as it is, and the rest is found.

    Columns are given by name, or by number from 1. A text that is given without a pair is the only text. `header`:
    whether the first line of a CSV or TSV file has the names of the columns.
    """
    if kind is not None:
        find_kind(kind, field="--kind")
    if kind == "embedding" and is_text_file(source):
        return _find_texts_alone(source, header=header, field=field)
    may_be_corpus, given = kind in (None, "text") and label is None, kind == "text"
    if may_be_corpus and is_running_text(source, given=given, field=field):
        return Layout("text", "text", None, None, "running text", header)
    table = read_table(source, split, header=header, field=field)
    if kind == "embedding":
        return _find_pairs(table, text, pair, label, header=header)
    if may_be_corpus and (corpus := describe_corpus(table, text=text, given=given)) is not None:
        return Layout("text", corpus[0], None, None, corpus[1], header)
    several = () if label is None else find_given_labels(table, label)
    if several:
        return _find_by_column(table, several, text, pair, kind, header=header)
    text, label = (None if column is None else table.name(column) for column in (text, label))
    pair = None if pair is None else str(table.name(pair))
    given = {"text": text, "pair": pair, "label": label}
    table.check_given({role: str(column) for role, column in given.items() if column is not None})
    if text is None or label is None:
        table.refuse_missing_header()
    table.refuse_single_column()
    if is_tagged(table, kind, text, label):
        words, tags = find_tags(table, text, label)
        return Layout(kind or "tags", words, pair, tags, _summarise(table, kind or "tags", tags), header)
    if text is None:
        text, pair = find_texts(table, [label], pair)
    if label is None and (several := find_label_columns(table, [text, pair], kind)):
        return _find_by_column(table, several, text, pair, kind, header=header)
    if label is None:
        label = find_label(table, [text, pair], kind)
    kind = kind or choose_kind(table, table[text], table[label])
    return Layout(kind, text, pair, label, _summarise(table, kind, label), header)


def find_text_column(source: str, split: str | None, *, like: Layout, field: str) -> tuple[ColumnName, str | None]:
    """The columns of text and second text in a file that goes with labelled data: the same names, or else found anew.

    A .txt file has no names to look for: it holds one text per line, or the same CoNLL columns.
    """
    path = local_path(source, field=field)
    if path is not None and Path(path.name.removesuffix(".gz")).suffix.lower() == ".txt":
        return like.text, None
    table = read_table(source, split, header=like.header or not is_delimited(source), field=field)
    if all(str(column) in table.columns for column in (like.text, like.pair) if column is not None):
        return like.text, like.pair
    table.refuse_missing_header()
    if like.pair is None and len(table.columns) == 1:
        return table.names[0], None
    if find_kind(like.kind).unit == "word" and any(column.word_lists for column in table.columns.values()):
        return find_words(table), None
    names = f'columns "{like.text}" and "{like.pair}"' if like.pair else f'column "{like.text}"'
    hint = f"call the {names}, as in the labelled data"
    try:
        text, pair = find_texts(table, like.label if isinstance(like.label, tuple) else [like.label], None)
    except UserError as error:
        raise table.error(error.message, hint) from error
    if (pair is None) != (like.pair is None):
        has, labelled = ("one text", "two") if pair is None else ("two texts", "one")
        raise table.error(f"a row of {source} has {has}, and a row of the labelled data has {labelled}", hint)
    return text, pair


def _find_texts_alone(source: str, *, header: bool, field: str) -> Layout:
    path = local_path(source, field=field)
    assert path
    count = len(read_lines(path, field))
    return Layout("embedding", "text", None, None, f"{count:,} text{'s' * (count != 1)}", header)


def _find_pairs(
    table: Table, text: ColumnName | None, pair: str | None, label: ColumnName | None, *, header: bool
) -> Layout:
    """Texts or pairs of texts whose embeddings are learned or compared; a label says which pairs belong together."""
    if text is None and len(table.columns) == 1:
        text = table.names[0]
    if text is None:
        text, pair = find_texts(table, [label], pair)
    given = {"text": str(table.name(text)), **({"pair": str(table.name(pair))} if pair else {})}
    table.check_given(given | ({"label": str(table.name(label))} if label else {}))
    named = [column.name for column in table.usable(given.values()) if is_label_name(column.name)]
    label = table.name(label) if label else named[0] if named else None
    count = len(table[given["text"]].values)
    return Layout("embedding", given["text"], given.get("pair"), label, f"{count:,} texts", header)


def _find_by_column(
    table: Table, labels: tuple[str, ...], text: ColumnName | None, pair: str | None, kind: str | None, *, header: bool
) -> Layout:
    """The layout of a table that has one column of 0 and 1 for every label."""
    if kind not in (None, "labels"):
        raise UserError(
            f'several columns of labels are for "labels", not for "{kind}"', field="--kind", hint="leave it out"
        )
    if text is None:
        text, pair = find_texts(table, labels, pair)
    given = {"text": str(table.name(text)), **({"pair": str(table.name(pair))} if pair else {})}
    table.check_given(given | {f"label {name}": name for name in labels})
    return Layout("labels", given["text"], given.get("pair"), labels, f"{len(labels)} labels", header)


def _summarise(table: Table, kind: str, label: ColumnName) -> str:
    column, found = table[label], find_kind(kind)
    if found.named:
        labels = column.label_names if kind == "labels" else column.different
        return f"{len(labels)} {found.values_called}"
    return f"numbers from {min(column.numbers):g} to {max(column.numbers):g}" if column.numbers else ""


def _show(column: ColumnName) -> str:
    return f"column {column}" if str(column).isdecimal() else f"`{column}`"
