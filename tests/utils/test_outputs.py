"""Outputs of commands never replace what the user has."""

from __future__ import annotations

import pytest

from probescale.errors import UserError
from probescale.utils.files import atomic_folder
from probescale.utils.outputs import check_output_file, check_output_folder
from probescale.utils.ownership import MANIFEST


def test_a_file_is_replaced_only_when_asked_and_an_input_never(tmp_path):
    (tmp_path / "model").mkdir()
    for name in ("in.csv", "other.csv", "model/config.json"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "link.csv").hardlink_to(tmp_path / "in.csv")
    inputs = [tmp_path / "in.csv", str(tmp_path / "model"), "owner/name-on-the-hub"]
    for name in ("in.csv", "link.csv", "model/config.json"):
        with pytest.raises(UserError, match="is what the command reads"):
            check_output_file(tmp_path / name, inputs=inputs, overwrite=True)
    with pytest.raises(UserError, match="already exists"):
        check_output_file(tmp_path / "other.csv", inputs=inputs)
    check_output_file(tmp_path / "other.csv", inputs=inputs, overwrite=True)
    check_output_file(tmp_path / "other.csv", inputs=inputs, is_own=lambda _: True)
    check_output_file(tmp_path / "model" / "new.json", inputs=inputs)


def test_a_folder_is_replaced_only_with_nothing_else_in_it(tmp_path):
    out = tmp_path / "out"

    def allowed(kind: str = "model", inputs: tuple = ()) -> None:
        check_output_folder(out, kind=kind, inputs=inputs, overwrite=True)

    with atomic_folder(out, "model", also=["README.md"]) as partial:
        (partial / "deep").mkdir()
        (partial / "deep" / "weights").write_text("ours")
    (out / "README.md").write_text("ours, later")
    allowed()
    with pytest.raises(UserError, match="left alone"):
        allowed("export")
    with pytest.raises(UserError, match="which the command reads"):
        allowed(inputs=(out / "deep",))
    for stranger in ("notes.md", "deep/link"):
        (out / stranger).symlink_to(tmp_path)
        with pytest.raises(UserError, match=f"did not write, and is left alone: {stranger}"):
            allowed()
        (out / stranger).unlink()
    for content in ("", "[]", '{"kind": "model"}', '{"kind": "model", "files": 3}'):
        (out / MANIFEST).write_text(content)
        with pytest.raises(UserError, match="left alone"):
            allowed()
