"""Texts for generative models: how files are read, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.decoders import sentences, write_corpus, write_jsonl
from probescale.config import DataConfig
from probescale.errors import UserError
from probescale.tasks.columns import find_layout
from probescale.tasks.documents import Documents, load_documents, split_passages

ASKED = {"role": "user", "content": "who is there?"}
ANSWERED = {"role": "assistant", "content": "the fox."}


def load(path: Path):
    return load_documents(DataConfig(source=str(path)), field="task.train")


def test_passages_are_the_text_and_end_with_lines(tmp_path: Path):
    path = write_corpus(tmp_path, 400)
    data = load(path)
    assert "".join(data.texts) == path.read_text()
    assert len(data) > 3
    assert all(text.endswith("\n") for text in data.texts)
    assert not data.whole
    assert split_passages("one line without an end") == ["one line without an end"]


def test_rows_of_a_table_are_documents_or_conversations(tmp_path: Path):
    texts = load(write_jsonl(tmp_path / "a.jsonl", [{"text": text} for text in sentences(3)]))
    assert texts.whole
    assert texts.chats is None
    assert len(texts) == 3
    chats = load(write_jsonl(tmp_path / "b.jsonl", [{"messages": [ASKED, ANSWERED]}]))
    pairs = load(write_jsonl(tmp_path / "c.jsonl", [{"prompt": "who is there?", "response": "the fox."}]))
    assert chats.chats == pairs.chats == ((("user", "who is there?"), ("assistant", "the fox.")),)
    assert chats.learned == ["the fox."]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"messages": []}, 'row 2 of "messages" is no list of messages'),
        ({"messages": [{"role": "user"}]}, 'row 2 of "messages" has a message without role and content'),
        ({"messages": [{"role": "robot", "content": "x"}]}, 'has the role "robot"'),
        ({"messages": [ASKED]}, "has no answer of the assistant"),
    ],
)
def test_a_broken_conversation_is_named(tmp_path: Path, row: dict[str, Any], said: str):
    path = write_jsonl(tmp_path / "chat.jsonl", [{"messages": [ASKED, ANSWERED]}, row])
    with pytest.raises(UserError, match=said):
        load(path)


def test_empty_and_unsuitable_files_are_refused(tmp_path: Path):
    (tmp_path / "empty.txt").write_text(" \n\n")
    with pytest.raises(UserError, match="is empty: it has no text"):
        load(tmp_path / "empty.txt")
    with pytest.raises(UserError, match="none of them holds texts or conversations"):
        load(write_jsonl(tmp_path / "other.jsonl", [{"number": 1}]))


def test_a_corpus_is_told_from_labelled_data(tmp_path: Path):
    assert find_layout(str(write_corpus(tmp_path, 20))).kind == "text"
    tagged = tmp_path / "tags.txt"
    tagged.write_text("EU B-ORG\nrejects O\n\nBonn B-LOC\nsays O\n" * 10)
    assert find_layout(str(tagged)).kind == "tags"
    chat = write_jsonl(tmp_path / "chat.jsonl", [{"messages": [ASKED, ANSWERED]}] * 3)
    assert find_layout(str(chat)).describe() == "text: conversations in `messages`"


def test_a_part_of_the_text_is_drawn_from_all_over_it(tmp_path: Path):
    lines = [f"{kind} line {number}\n" for kind in ("first", "second") for number in range(500)]
    data = Documents(tuple(lines), whole=False)
    part = data.draw(0.2, seed=0)
    assert part == data.draw(0.2, seed=0) != data.draw(0.2, seed=1)
    assert 0.19 < len("".join(part.texts)) / len("".join(lines)) < 0.21
    assert 70 < sum(text.startswith("first") for text in part.texts) < 130
    assert list(part.texts) == [line for line in lines if line in set(part.texts)]
    assert data.draw(1.0, seed=0) == data
