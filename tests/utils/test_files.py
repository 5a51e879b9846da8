"""Results on disk that were changed by hand, or by a failing disk."""

from __future__ import annotations

import pytest

from probescale.errors import UserError
from probescale.utils.files import Record


class Result(Record):
    value: float


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"value": "x"}', b"\xff\xfe", b"{}"])
def test_a_damaged_result_is_named(tmp_path, text):
    Result(value=1.5).save(tmp_path / "result.json")
    assert Result.load(tmp_path / "result.json") == Result(value=1.5)
    (tmp_path / "result.json").write_bytes(text)
    with pytest.raises(UserError, match=r"result.json is damaged") as refused:
        Result.load(tmp_path / "result.json")
    assert "remove it" in refused.value.hint
