"""Results on disk that were changed by hand, or by a failing disk."""

from __future__ import annotations

import pytest

from probescale.errors import UserError
from probescale.utils.files import Record


class Found(Record):
    value: float


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"value": "x"}', b"\xff\xfe", b"{}"])
def test_a_damaged_result_is_named(tmp_path, text):
    Found(value=1.5).save(tmp_path / "found.json")
    assert Found.load(tmp_path / "found.json") == Found(value=1.5)
    (tmp_path / "found.json").write_bytes(text)
    with pytest.raises(UserError, match=r"found.json is damaged") as refused:
        Found.load(tmp_path / "found.json")
    assert "remove it" in refused.value.hint
