"""Find texts without labels that a generative model is to go on with: running text, documents, conversations."""

from __future__ import annotations

from probescale.tasks.documents import CHAT_COLUMNS, PAIRED_COLUMNS, is_text_file, read_text
from probescale.tasks.readers import find_column, is_delimited, read_all_columns

LOOKED_AT = 1000  # lines of a text file
CERTAIN_PAIRS = PAIRED_COLUMNS[:2]  # column names that nothing but a conversation has


def describe_corpus(
    source: str, split: str | None, *, text: str | int | None, given: bool, header: bool, field: str
) -> tuple[str | int, str] | None:
    """The text column of a corpus, and what it holds in words; None where the source looks like labelled data.

    `given`: the user says that it is a corpus, so that less certain names count as well.
    """
    if is_text_file(source):
        if not given and looks_tagged(read_text(source, field=field)):
            return None
        return "text", "running text"
    columns = read_all_columns(source, split, header=header, field=field)
    if text is not None:
        column = find_column(list(columns), text)
        return (column, f"`{column}`") if given and column is not None else None
    for name in CHAT_COLUMNS if given else CHAT_COLUMNS[:1]:
        if name in columns:
            return name, f"conversations in `{name}`"
    if "text" in columns and (given or (len(columns) == 1 and not is_delimited(source))):
        return "text", "`text`"
    for prompt, response in PAIRED_COLUMNS if given else CERTAIN_PAIRS:
        if {prompt, response} <= set(columns) and (given or len(columns) == 2):
            return "text", f"conversations of `{prompt}` and `{response}`"
    return ("text", "texts") if given else None


def looks_tagged(text: str) -> bool:
    """Whether a text file has one word per line, with as many columns in every line: CoNLL.

    >>> looks_tagged("EU B-ORG\\nrejects O\\n"), looks_tagged("One day a fox met\\na crow on a tree.\\n")
    (True, False)
    """
    lines = [line for line in text[: 200 * LOOKED_AT].splitlines()[:LOOKED_AT] if line.strip()]
    widths = {len(line.split("\t") if "\t" in text else line.split()) for line in lines if not line.startswith("#")}
    return len(widths - {1}) == 1 and len(widths) <= 2 and len(lines) > 1
