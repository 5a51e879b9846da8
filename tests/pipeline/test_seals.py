"""Seals: what is damaged is restored, or removed to be made again; nothing else is touched."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.damage import DAMAGES, damage, snapshot
from probescale.pipeline.seals import SEALS, find_others, mend, seal, sealed
from probescale.utils.files import atomic_folder, write_text


@pytest.mark.parametrize("how", DAMAGES)
def test_a_seal_tells_what_is_damaged(tmp_path, how):
    work = tmp_path
    for name, content in {"text.json": b"[1, 2, 3]", "array.npy": bytes(range(256)), "notes.md": b"mine"}.items():
        (work / name).write_bytes(content)
    (work / "folder").mkdir()
    np.save(work / "folder" / "a.npy", np.arange(9))
    (work / "folder" / "b.json").write_text("{}")
    for unit in ("text.json", "array.npy", "folder"):
        seal(work, work / unit)
    before = snapshot(work)
    assert mend(work) == []
    damage(work / "text.json", how)
    damage(work / "folder" / "b.json", how)
    assert mend(work) == []
    assert snapshot(work) == before, "small texts are restored"
    damage(work / SEALS / "array.npy.seal", how)
    assert mend(work) == []
    assert snapshot(work) == before, "a damaged seal is renewed"
    damage(work / "array.npy", how)
    damage(work / "folder" / "a.npy", how)
    assert mend(work) == ["array.npy", "folder"]
    left = [name for name in snapshot(work) if not name.startswith(".work/")]
    assert left == ["notes.md", "text.json"], "what cannot be restored is made again as a whole"


def test_everything_that_is_completed_in_the_folder_is_sealed(tmp_path):
    work = tmp_path / "work"
    with sealed(work):
        write_text(work / "a.json", "1")
        write_text(tmp_path / "elsewhere.json", "2")
        with atomic_folder(work / ".work" / "teacher") as partial:
            write_text(partial / "b.json", "3")
    write_text(work / "later.json", "4")
    assert list(snapshot(work / SEALS)) == [".work/teacher.seal", "a.json.seal"]
    assert find_others(work) == [work / "later.json"]
    with sealed(work):
        write_text(work / "a.json", "5")
    (work / "a.json").write_text("6")
    assert mend(work) == []
    assert (work / "a.json").read_text() == "5"
    (work / "a.json").unlink()
    assert mend(work) == []
    assert not (work / "a.json").exists(), "who removes a file wants it to be made again"
