"""Make untrusted text safe to print: escape control characters, redact secrets."""

from __future__ import annotations

import re

# Terminals execute control characters, reverse the text at direction marks, and cannot show half a surrogate pair.
_CONTROLS = (*range(9), *range(11, 32), *range(127, 160))
_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ESCAPES = {number: repr(chr(number))[1:-1] for number in (*_CONTROLS, *_DIRECTIONS, *range(0xD800, 0xE000))}
_JSON_ESCAPES = {number: f"\\u{number:04x}" for number in (*range(127, 160), *_DIRECTIONS)}
_HUB_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{20,}")
_URL_LOGIN = re.compile(r"(?<=://)[^/\s@]+@")


def escape_controls(text: str) -> str:
    r"""The text with control and direction characters escaped; line breaks stay.

    >>> escape_controls("\x1b[31mred\u202e"), escape_controls("ein Wörtchen\n")
    ('\\x1b[31mred\\u202e', 'ein Wörtchen\n')
    """
    return text.translate(_ESCAPES)


def escape_json(text: str) -> str:
    r"""JSON with the characters escaped that a terminal would execute and JSON itself leaves as they are.

    >>> escape_json('{"a": "\x9b31m\u202e"}')
    '{"a": "\\u009b31m\\u202e"}'
    """
    return text.translate(_JSON_ESCAPES)


def redact_secrets(text: str) -> str:
    """The text without hub tokens, and without the login in URLs.

    >>> redact_secrets("https://me:word@huggingface.co/x, hf_abcdefghijklmnopqrstuvwxyz, hf_folder/train.csv")
    'https://...@huggingface.co/x, hf_..., hf_folder/train.csv'
    """
    return _HUB_TOKEN.sub("hf_...", _URL_LOGIN.sub("...@", text))
