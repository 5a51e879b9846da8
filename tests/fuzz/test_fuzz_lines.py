"""Fuzz the input of `predict`: every line gets a prediction or an error of its own."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence

import pytest
from hypothesis import strategies as st

from helpers.fuzzing import RNG, damaged, fuzz, json_bytes, nonsense, result_or_error
from probescale.deploy.open_model import open_model
from probescale.deploy.predict import predict_lines
from probescale.deploy.texts import Format, Line, read_texts
from probescale.tasks.kinds import KINDS

FORMATS: tuple[Format, ...] = ("lines", "csv", "tsv", "jsonl")
SOUND: dict[Format, bytes] = {
    "lines": "a text\n\nanother é\n😀\n".encode(),
    "csv": b'text,pair\n"a, ""text""",b\n"two\nlines",c\nd,e\n',
    "tsv": b'text\tpair\na "text\tb\nc\td\n',
    "jsonl": b'{"text": "a", "pair": "b"}\n{"text": "c", "pair": "d"}\n',
}
PARTS = st.sampled_from(
    ["a", "word", " ", "\t", ",", '"', "'", "\r", "\0", "\x1a", "\x85", "\u2028", "\u202e", "😀", "שלום", "é" * 50]
)
TEXTS = st.lists(PARTS | st.text(max_size=5), max_size=6).map("".join)


def check(lines: Sequence[Line]) -> None:
    numbers = [line.number for line in lines]
    assert numbers == sorted(set(numbers))
    for line in lines:
        assert bool(line.fault) != bool(line.text.strip())
        (line.text + (line.pair or "") + line.fault).encode()


def read(data: bytes, kind: Format, pair: str | None) -> list[Line]:
    return list(read_texts(io.BytesIO(data), kind, "text", pair))


@pytest.mark.parametrize("kind", FORMATS)
@fuzz("what predict reads", 50, rng=RNG, pair=st.sampled_from([None, "pair"]))
def test_damaged_files(kind, rng, pair):
    data = damaged(rng, SOUND[kind])
    check(result_or_error(lambda: read(data, kind, pair)) or [])


@pytest.mark.parametrize("kind", FORMATS)
@fuzz("what predict reads", 20, texts=st.lists(TEXTS, max_size=8), pair=st.sampled_from([None, "pair"]))
def test_any_lines(kind, texts, pair):
    first = {"csv": ["text,pair"], "tsv": ["text\tpair"]}.get(kind, [])
    data = "\n".join([*first, *texts]).encode(errors="surrogatepass")
    check(result_or_error(lambda: read(data, kind, pair)) or [])


@fuzz("what predict reads", 50, rng=RNG)
def test_any_json(rng):
    rows = [{name: nonsense(rng) for name in ("text", "pair")} for _ in range(rng.randint(0, 6))]
    rows = [row if rng.random() < 0.9 else nonsense(rng) for row in rows]
    found = result_or_error(lambda: read(b"\n".join(map(json_bytes, rows)), "jsonl", "pair"))
    assert found is not None
    check(found)
    assert len(found) == len(rows)


@pytest.fixture(scope="module", params=["bert", "roberta", "t5"])
def ready(request, model_folder):
    return open_model(str(model_folder(request.param)))


@fuzz("what predict answers", 15, texts=st.lists(TEXTS.filter(str.strip), min_size=1, max_size=4), pairs=st.booleans())
def test_any_text_gets_a_prediction(ready, texts, pairs):
    rows = [{"text": text} | ({"pair": text[::-1]} if pairs else {}) for text in texts]
    data = "\n".join(map(json.dumps, rows)).encode()
    lines = read(data, "jsonl", "pair" if pairs else None)
    answers = result_or_error(lambda: list(predict_lines(ready, lines, 16)))
    if answers is None:
        assert pairs
        assert ready.kind is KINDS["tags"]
        return
    assert [answer.number for answer in answers] == [line.number for line in lines]
    for answer in answers:
        record = answer.record()
        assert bool(answer.fault) != bool(record.get("label") or record.get("tags"))
        json.dumps(record, ensure_ascii=False).encode()
