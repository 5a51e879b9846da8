"""Texts that a generative model learns to go on with: running text, whole documents, or conversations."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from probescale.config import DataConfig, ProbeTarget
from probescale.errors import UserError
from probescale.tasks.data import digest, tuple_rows
from probescale.tasks.readers import find_column, open_text, read_all_columns
from probescale.utils.sources import local_path

if TYPE_CHECKING:
    from typing_extensions import Self

PASSAGE = 2000  # characters, about: a text file is split at the ends of its paragraphs
ROLES = ("system", "user", "assistant", "tool")
ANSWERS = "assistant"  # the role that is learned
CHAT_COLUMNS = ("messages", "conversation", "conversations")
PAIRED_COLUMNS = (("prompt", "response"), ("prompt", "completion"), ("instruction", "output"), ("question", "answer"))

Chat = tuple[tuple[str, str], ...]  # role and content of every message


@dataclass(frozen=True)
class Documents:
    """Texts to be continued. What follows is the label: nothing else is needed."""

    texts: tuple[str, ...]  # of a conversation: all messages, for whoever reads words only
    chats: tuple[Chat, ...] | None = None  # conversations, whose answers are learned; None: texts
    whole: bool = True  # a text ends where it ends; passages of a longer text go on in the next one
    names: tuple[str, ...] = ()
    pairs: None = None
    kind: str = "text"
    per_word: ClassVar[bool] = False

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Sequence[int]) -> Self:
        chats = None if self.chats is None else tuple(self.chats[row] for row in rows)
        return replace(self, texts=tuple(self.texts[row] for row in rows), chats=chats)

    def draw(self, share: float, seed: int) -> Self:
        """About this share of the text, from all over it, in its order."""
        order = np.random.default_rng(seed).permutation(len(self))
        sizes = np.cumsum([len(self.texts[row]) for row in order])
        return self.take(sorted(order[: int(np.searchsorted(sizes, share * sizes[-1])) + 1].tolist()))

    @property
    def target(self) -> ProbeTarget:
        return "class"

    @property
    def inputs(self) -> list[tuple[str, ...]]:
        return [(text,) for text in self.texts]

    @property
    def content(self) -> list[Any]:
        return [self.texts, self.chats, self.whole]

    @property
    def fingerprint(self) -> str:
        return digest(self.content)

    @property
    def classes(self) -> Sequence[int]:
        return [0] * len(self)

    @property
    def gold(self) -> np.ndarray:
        """Of every document, what a model that knows it by heart needs: no nats, for no token, of no byte."""
        return tuple_rows([(0.0, 0.0, 0.0)] * len(self))

    @property
    def row_labels(self) -> np.ndarray:
        """Rows are tokens, which only a tokenizer knows (`models/packing.py`)."""
        return np.zeros(0)

    @property
    def rows_per_input(self) -> np.ndarray:
        return np.zeros(len(self), np.int64)

    @property
    def units(self) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(len(self)), np.zeros(len(self), np.int64)

    @property
    def learned(self) -> list[str]:
        """What is to be predicted of every document: all of a text, the answers of a conversation."""
        if self.chats is None:
            return list(self.texts)
        return ["".join(content for role, content in chat if role == ANSWERS) for chat in self.chats]

    def with_texts(self, texts: tuple[str, ...], pairs: tuple[str, ...] | None) -> Self:
        return replace(self, texts=texts, chats=None)

    def joined(self, more: Any) -> Self:  # noqa: ANN401 - data of the same class
        chats = self.chats + more.chats if self.chats is not None and more.chats is not None else None
        return replace(self, texts=self.texts + more.texts, chats=chats, whole=self.whole and more.whole)

    def with_names(self, names: tuple[str, ...]) -> Self:
        return self

    def fully_labelled(self) -> Self:
        return self

    def words_in(self, number: int) -> list[tuple[str, bool]]:
        return []

    def values_at(self, inputs: np.ndarray, words: np.ndarray) -> np.ndarray:
        return np.zeros(len(inputs), np.int64)

    def texts_at(self, inputs: np.ndarray, words: np.ndarray) -> list[tuple[str, ...]]:
        return [(self.texts[number],) for number in inputs]


def load_documents(data: DataConfig, *, field: str) -> Documents:
    """Passages of a text file; or the rows of a table: texts, conversations, or prompts with responses."""
    if is_text_file(data.source):
        return Documents(tuple(split_passages(read_text(data.source, field=field))), whole=False)
    columns = read_all_columns(data.source, data.split, header=data.header, field=field)
    column = find_column(list(columns), data.text)
    if column is not None and all(isinstance(cell, str) for cell in columns[column]):
        return Documents(_check_texts(columns[column], column, field=field))
    chats = column if column is not None else next((name for name in CHAT_COLUMNS if name in columns), None)
    if chats is not None:
        read = [_read_chat(cell, row, chats, field=field) for row, cell in enumerate(columns[chats], 1)]
        return _conversations(read)
    for prompt, response in PAIRED_COLUMNS:
        if prompt in columns and response in columns:
            prompts, responses = (_check_texts(columns[name], name, field=field) for name in (prompt, response))
            return _conversations([(("user", p), (ANSWERS, r)) for p, r in zip(prompts, responses, strict=True)])
    raise UserError(
        f"{data.source} has the columns {', '.join(columns)}: none of them holds texts or conversations",
        field=f"{field}.text",
        hint="name the column with the text, or call the columns messages, or prompt and response",
    )


def _conversations(chats: Sequence[Chat]) -> Documents:
    return Documents(tuple("\n".join(content for _, content in chat) for chat in chats), tuple(chats))


def is_text_file(source: str) -> bool:
    """Whether a source is a file of plain text."""
    return Path(source.partition("#")[0].removesuffix(".gz")).suffix.lower() == ".txt"


def read_text(source: str, *, field: str) -> str:
    """A text file as it is."""
    path = local_path(source, field=f"{field}.source")
    if path is None or not path.is_file():
        raise UserError(f"{source} is not a file", field=f"{field}.source")
    try:
        with open_text(path) as file:
            text = file.read()
    except (OSError, ValueError, EOFError, zlib.error) as error:
        hint = "save it as UTF-8" if isinstance(error, UnicodeError) else ""
        raise UserError(f"{path} cannot be read: {error}", field=f"{field}.source", hint=hint) from error
    if not text.strip():
        raise UserError(f"{path} is empty: it has no text", field=f"{field}.source", hint="give a file with text")
    return text


def split_passages(text: str) -> list[str]:
    """Parts of a text of about equal length that end where a line ends; together they are the text.

    >>> [len(part) for part in split_passages(("word " * 100 + "\\n") * 10)]
    [2004, 2004, 1002]
    """
    passages: list[str] = []
    lines: list[str] = []
    size = 0
    for line in text.splitlines(keepends=True):
        lines.append(line)
        size += len(line)
        if size >= PASSAGE:
            passages.append("".join(lines))
            lines, size = [], 0
    rest = "".join(lines)
    return [*passages, rest] if rest.strip() else passages


def _check_texts(cells: Sequence[Any], column: str, *, field: str) -> tuple[str, ...]:
    bad = [row for row, cell in enumerate(cells, 1) if not isinstance(cell, str) or not cell.strip()]
    if bad:
        raise UserError(
            f'column "{column}" has {len(bad)} rows without text, first in row {bad[0]}',
            field=f"{field}.text",
            hint="remove these rows",
        )
    return tuple(cells)


def _read_chat(cell: Any, row: int, column: str, *, field: str) -> Chat:  # noqa: ANN401 - any cell
    """The messages of one row, checked."""

    def refuse(what: str) -> UserError:
        return UserError(
            f'row {row} of "{column}" {what}',
            field=f"{field}.text",
            hint='every row is a list such as [{"role": "user", "content": "..."}, {"role": "assistant", ...}]',
        )

    if not isinstance(cell, (list, tuple)) or not cell:
        raise refuse("is no list of messages")
    messages: list[tuple[str, str]] = []
    for message in cell:
        content = message.get("content") if isinstance(message, dict) else None
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(content, str) or not isinstance(role, str):
            raise refuse("has a message without role and content")
        if role not in ROLES:
            raise refuse(f'has the role "{role}"; known are {", ".join(ROLES)}')
        messages.append((role, content))
    if not any(role == ANSWERS and content.strip() for role, content in messages):
        raise refuse("has no answer of the assistant to learn")
    return tuple(messages)
