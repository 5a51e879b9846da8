"""Find texts without labels that a generative model is to go on with: running text, documents, conversations."""

from __future__ import annotations

from probescale.errors import UserError
from probescale.tasks.column_roles.table import Table
from probescale.tasks.documents import CHAT_COLUMNS, PAIRED_COLUMNS, is_text_file, read_text
from probescale.tasks.readers import find_column, is_delimited

LOOKED_AT = 1000  # lines of a text file
CERTAIN_PAIRS = PAIRED_COLUMNS[:2]  # column names that nothing but a conversation has


def is_running_text(source: str, *, given: bool, field: str) -> bool:
    """Whether a source is a file of running text. `given`: the user says so."""
    if not is_text_file(source) or given:
        return is_text_file(source)
    try:
        return not looks_tagged(read_text(source, field=field))
    except UserError:
        return False  # whoever reads it as a table says what is wrong with it


def describe_corpus(table: Table, *, text: str | int | None, given: bool) -> tuple[str | int, str] | None:
    """The text column of a corpus, and what it holds in words; None where the table looks like labelled data.

    `given`: the user says that it is a corpus, so that less certain names count as well.
    """
    columns = table.names
    if text is not None:
        column = find_column(columns, text)
        return (column, f"`{column}`") if given and column is not None else None
    for name in CHAT_COLUMNS if given else CHAT_COLUMNS[:1]:
        if name in columns:
            return name, f"conversations in `{name}`"
    if "text" in columns and (given or (len(columns) == 1 and not is_delimited(table.source))):
        return "text", "`text`"
    for prompt, response in PAIRED_COLUMNS if given else CERTAIN_PAIRS:
        if {prompt, response} <= set(columns) and (given or len(columns) == 2):
            return "text", f"conversations of `{prompt}` and `{response}`"
    return ("text", "texts") if given else None


def looks_tagged(text: str) -> bool:
    """Whether a text file has one word per line, with as many columns in every line: CoNLL.

    >>> looks_tagged("EU B-ORG\\nrejects O\\n"), looks_tagged("One day a fox met\\na crow that sat on a tree.\\n")
    (True, False)
    """
    lines = [line for line in text[: 200 * LOOKED_AT].splitlines()[:LOOKED_AT] if line.strip()]
    widths = {len(line.split("\t") if "\t" in text else line.split()) for line in lines if not line.startswith("#")}
    return len(widths - {1}) <= 1 and len(lines) > 1
