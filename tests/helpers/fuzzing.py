"""Fuzzing: every input must end in a result or in an error that people can read.

A few fixed cases run with all other tests. PROBESCALE_FUZZ=10000 runs that many new random cases per fuzzer.
"""

from __future__ import annotations

import atexit
import copy
import functools
import json
import os
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, TypeVar

import psutil
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from probescale.errors import ProbeScaleError
from probescale.utils.resources import find_shortage

T = TypeVar("T")
CASES = int(os.environ.get("PROBESCALE_FUZZ", "0"))
MINUTE = 60_000
LONGEST_ERROR = 20_000  # letters: more is a file, not a message
MORE = 3 << 30  # bytes of memory, beyond what the process has already
done: Counter[str] = Counter()  # area -> inputs


@atexit.register
def _report() -> None:
    if CASES:
        print(*(f"{area}: {number:,} inputs" for area, number in sorted(done.items())), sep="\n")
        print(f"all areas: {done.total():,} inputs")


# Files and JSON are made by a plain generator: it is many times faster than strategies, and its seed makes them again.
RNG = st.integers(0, 2**64 - 1).map(Random)


def fuzz(area: str, few: int, **drawn: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a test of `few` inputs, or of PROBESCALE_FUZZ inputs with a time limit each."""
    runs = settings(
        max_examples=CASES or few,
        derandomize=not CASES,
        database=None,
        deadline=MINUTE if CASES else None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        phases=[Phase.generate, Phase.shrink] if CASES else [Phase.generate],
        print_blob=True,
    )

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def counted(*args: Any, **kwargs: Any) -> None:
            done[area] += 1
            with limited_memory():
                test(*args, **kwargs)

        return pytest.mark.timeout(6 * 3600 if CASES else 120)(runs(given(**drawn)(counted)))

    return decorate


@contextmanager
def limited_memory() -> Iterator[None]:
    """Limit memory, so that a small file that asks for gigabytes fails."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + MORE, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def result_or_error(work: Callable[[], T]) -> T | None:
    """The result of work, or None after a readable error; any other exception fails the test."""
    try:
        return work()
    except ProbeScaleError as error:
        said, short = str(error), find_shortage(error)
    assert short is None, "memory or disk was used up"
    assert said.strip()
    assert len(said) <= LONGEST_ERROR
    assert "Traceback" not in said
    return None


PIECES = [
    *(b"\0", b"\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b'"', b"'", b"\n", b"\r", b"\t", b",", b"{", b"}"),
    *(b"[", b"]", b"-1", b"1e999", b"NaN", b"null", b"9" * 5000, b"[" * 1100, b"\\ud800", b"A" * 70_000),
    "é😀\u202e".encode(),
]
ENCODINGS = ("utf-16", "latin-1", "utf-32", "cp1252")


def damaged(rng: Random, data: bytes) -> bytes:
    """A valid file after a few edits, rarely in another encoding."""
    for _ in range(rng.randint(1, 4)):
        data = _edited(rng, data)
    if rng.random() < 0.1:
        data = data.decode(errors="replace").encode(rng.choice(ENCODINGS), errors="replace")
    note(f"the file: {data[:3000]!r}")
    return data


def _edited(rng: Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    end = min(at + rng.choice((1, 1, 4, 16, 300)), len(data))
    piece = rng.choice(PIECES) if rng.random() < 0.7 else rng.randbytes(rng.randint(1, 8))
    new = {
        "flip": bytes(byte ^ rng.randint(1, 255) for byte in data[at : at + 1]) + data[at + 1 :],
        "cut": b"",
        "drop": data[end:],
        "again": data[at:end] + data[at:],
        "put": piece + data[at:],
        "over": piece + data[end:],
    }
    return data[:at] + new[rng.choice(list(new))]


NUMBERS = [
    0,
    1,
    -1,
    2,
    3,
    10**9,
    -(10**9),
    2**31,
    2**63,
    2**64,
    10**30,
    10**400,
    0.5,
    -0.5,
    1e-320,
    1e308,
    1e300,
    -1e308,
]
WORDS = [
    "",
    " ",
    "\0",
    "\ud800",
    "😀",
    "\u202eabc",
    "a" * 5000,
    "1",
    "-1",
    "1e5",
    "true",
    "null",
    "auto",
    "../..",
    "/",
    "a",
    "b",
]
PLAIN: list[Any] = [None, True, False, float("nan"), float("inf"), float("-inf"), *NUMBERS, *WORDS]


def nonsense(rng: Random, depth: int = 2) -> Any:
    """Any JSON value."""
    way = rng.random()
    if depth and way < 0.15:
        return [nonsense(rng, depth - 1) for _ in range(rng.randint(0, 4))]
    if depth and way < 0.3:
        return {rng.choice(WORDS): nonsense(rng, depth - 1) for _ in range(rng.randint(0, 3))}
    if way < 0.4:
        return rng.choice((rng.uniform(-2, 2), rng.randint(-100, 100), rng.gauss(0, 1e6)))
    return rng.choice(PLAIN)


def with_nonsense(rng: Random, good: Any) -> Any:
    """A valid JSON value with a few parts replaced by nonsense, removed or lengthened."""
    box = [copy.deepcopy(good)]
    for _ in range(rng.randint(1, 3)):
        holder, key = rng.choice(_places(box))
        inner = holder[key]
        way = rng.random()
        if way < 0.15 and holder is not box:
            holder.pop(key)
        elif way < 0.3 and isinstance(inner, list):
            holder[key] = inner + [nonsense(rng)] * rng.randint(0, 1) + inner[: rng.randint(0, 2)]
        elif way < 0.4 and isinstance(inner, dict):
            inner[rng.choice(WORDS)] = nonsense(rng)
        else:
            holder[key] = nonsense(rng)
    return box[0]


def _places(holder: Any) -> list[tuple[Any, Any]]:
    """Every pair of a list or object and a key in it."""
    inner = list(holder.items()) if isinstance(holder, dict) else list(enumerate(holder))
    here = [(holder, key) for key, _ in inner]
    return here + [place for _, one in inner if isinstance(one, (dict, list)) for place in _places(one)]


def json_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


def damaged_json(rng: Random, good: Any) -> bytes:
    """Valid JSON with nonsense in it, or with damaged bytes."""
    if rng.random() < 0.3:
        return damaged(rng, json.dumps(good, indent=rng.choice((None, 2))).encode())
    data = json_bytes(with_nonsense(rng, good) if rng.random() < 0.9 else nonsense(rng))
    note(f"the file: {data[:3000]!r}")
    return data
