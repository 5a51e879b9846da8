"""Formats are looked up by name; what is not known, or not written here, is refused in one clear message."""

from __future__ import annotations

import pytest

from probescale.deploy.export import export
from probescale.deploy.formats import EXPORTERS, find_exporter
from probescale.errors import UserError


def test_a_known_format():
    assert find_exporter("onnx") is EXPORTERS["onnx"]


def test_an_unknown_format_is_refused_before_any_work(cli, tmp_path):
    with pytest.raises(UserError, match=r'"onx" is not known\. Did you mean "onnx"') as refused:
        export("no-such-model", tmp_path / "out", "onx")
    assert (refused.value.field, refused.value.hint) == ("--to", f"use one of: {', '.join(sorted(EXPORTERS))}")
    done = cli("export", "no-such-model", "--to", "onx")
    assert done.code == 2
    assert 'Did you mean "onnx"' in done.err


def test_gguf_needs_the_users_word_before_any_work(cli):
    done = cli("export", "no-such-model", "--to", "gguf")
    assert done.code == 2
    assert "--converter: GGUF is written by llama.cpp's converter" in done.err
