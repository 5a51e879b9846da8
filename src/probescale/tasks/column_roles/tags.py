"""Find the words and the tags of sentences that have one tag per word."""

from __future__ import annotations

from probescale.tasks.column_roles.content import Column, have_equal_lengths
from probescale.tasks.column_roles.names import is_certain_label_name, is_label_name, is_text_name, is_word_list_name
from probescale.tasks.column_roles.table import ColumnName, Table
from probescale.tasks.kinds import find_kind

TAGGING_FILES = "a CoNLL file (.conll, .txt, .conllu), or columns that hold lists"


def is_tagged(table: Table, kind: str | None, text: ColumnName | None, label: ColumnName | None) -> bool:
    """Whether the rows are sentences with one tag per word."""
    if kind is not None:
        return find_kind(kind).unit == "word"
    if text is not None:
        return table[text].lists
    if label is not None:
        return any(have_equal_lengths(words, table[label]) for words in _word_columns(table, label))
    tags = [c for c in table.columns.values() if any(have_equal_lengths(w, c) for w in _word_columns(table, c.name))]
    classes = [c for c in table.usable() if is_label_name(c.name) and not c.lists and c.form != "none"]
    if tags and classes and _plain_texts(table):
        raise table.error(
            f'a row has one label ("{classes[0].name}") and one tag per word ("{tags[0].name}")',
            "give --kind class or --kind tags",
        )
    return bool(tags)


def _plain_texts(table: Table) -> list[Column]:
    return [c for c in table.usable() if c.is_text or (c.may_be_text and is_text_name(c.name))]


def _word_columns(table: Table, label: ColumnName) -> list[Column]:
    """Columns that may hold the words beside a label; beside plain texts, only one whose name says so."""
    lists = [c for name, c in table.columns.items() if c.word_lists and name != str(label)]
    return [c for c in lists if is_word_list_name(c.name)] if _plain_texts(table) else lists


def find_tags(table: Table, text: ColumnName | None, label: ColumnName | None) -> tuple[ColumnName, ColumnName]:
    """The columns of words and tags, of which `text` and `label` are what the user gives."""
    words = text if text is not None else find_words(table, label)
    if label is not None:
        return words, label
    if conll := _find_conll_columns(table):
        label = conll[1]
    elif _is_universal(table):
        label = next((name for name in ("upos", "xpos") if len(table[name].different) > 1), "upos")
    else:
        label = _find_tag_lists(table, words)
    tags = table[label]
    count = len(tags.entries)
    if not 2 <= len(tags.different) <= max(2, count // 2):
        raise table.error(
            f'column "{label}" has {len(tags.different):,} different values for {count:,} words: these are no tags',
            "give --label NAME",
        )
    return words, label


def find_words(table: Table, label: ColumnName | None = None) -> ColumnName:
    """The column with the words of sentences."""
    if conll := _find_conll_columns(table):
        return conll[0]
    if _is_universal(table):
        return "form"
    lists = [c.name for c in table.usable([label]) if c.word_lists]
    named = [name for name in lists if is_word_list_name(name)] or [name for name in lists if is_text_name(name)]
    found = named or [name for name in lists if not is_label_name(name)]
    if not found:
        raise table.error("no column holds lists of words", f"tagging needs {TAGGING_FILES}")
    if len(found) > 1:
        raise table.ask_which("words", found, "--text")
    return found[0]


def _find_tag_lists(table: Table, words: ColumnName) -> str:
    usable = [c for c in table.usable([words]) if have_equal_lengths(table[words], c)]
    certain = [c.name for c in usable if is_certain_label_name(c.name) or c.name.lower() in ("tag", "tags")]
    found = certain or [c.name for c in usable if is_label_name(c.name)] or [c.name for c in usable]
    if not found:
        raise table.error(
            f'no column has one tag per word of "{words}"', f"give --label NAME; tagging needs {TAGGING_FILES}"
        )
    if len(found) > 1:
        raise table.ask_which("tags", found, "--label")
    return found[0]


def _is_universal(table: Table) -> bool:
    """Whether these are the columns of a CoNLL-U file."""
    names = ("form", "upos", "xpos", "deprel")
    return set(names) <= table.columns.keys() and all(table[name].lists for name in ("form", "upos"))


def _find_conll_columns(table: Table) -> tuple[int, int] | None:
    """Words and tags of a CoNLL file, whose columns are numbered: the first and the last. None for another table."""
    count = len(table.columns)
    if table.names != [str(number + 1) for number in range(count)] or not table["1"].word_lists:
        return None
    numbered = all(cell[:1] == ["1"] for cell in table["1"].filled)  # the words of a sentence, as in CoNLL-U
    return (2, 4 if count == 10 else count) if numbered and count > 2 else (1, count)
