"""Malicious wheels and data files: one error each, nothing executed, nothing written."""

from __future__ import annotations

import gzip
import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from probescale.errors import UserError
from probescale.tasks.readers import _read_hub, read_columns
from probescale.tasks.unlabelled import read_lines
from probescale.utils import archives
from probescale.utils.archives import read_gzip, unpack


def wheel(folder: Path, *members: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    path = folder / "evil-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path


def refused(path: Path, says: str, inner: str = "evil/model") -> None:
    target = path.parent / "cache" / "deep" / "model"
    with pytest.raises(UserError, match=says) as error:
        unpack(path, inner, target, field="model.source")
    assert error.value.field == "model.source"
    files = [file for file in path.parent.rglob("*") if file.is_file()]
    assert files == [path]  # nothing was written, here or elsewhere


@pytest.mark.parametrize(
    "name", ["evil/model/../../../out.txt", "evil/model//etc/out.txt", "evil/model/./out.txt", "evil/model/..\\out.txt"]
)
def test_names_that_lead_out_of_the_folder(tmp_path, name):
    refused(wheel(tmp_path, ("evil/model/config.json", b"{}"), (name, b"out")), "leads out of its folder")


def test_a_symbolic_link(tmp_path):
    link = zipfile.ZipInfo("evil/model/config.json")
    link.create_system, link.external_attr = 3, 0o120777 << 16
    refused(wheel(tmp_path, (link, b"/etc/passwd")), "a link")


def test_a_zip_bomb_that_declares_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "ALWAYS_ALLOWED", 1000)
    refused(wheel(tmp_path, ("evil/model/config.json", b"0" * 1_000_000)), r"would unpack to 1\.0 MB")


def test_a_zip_bomb_of_many_files(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "ALWAYS_ALLOWED", 1000)
    many = [(f"evil/model/{number}", b"0" * 100_000) for number in range(50)]
    refused(wheel(tmp_path, *many), r"would unpack to 5\.0 MB")


def test_a_zip_bomb_that_lies_about_its_size(tmp_path):
    """It declares ten bytes and holds a million: reading stops at ten, and the checksum fails."""
    path = wheel(tmp_path, ("evil/model/config.json", b"0" * 1_000_000))
    true, false = struct.pack("<I", 1_000_000), struct.pack("<I", 10)
    path.write_bytes(path.read_bytes().replace(true, false))
    refused(path, "cannot be unpacked: Bad CRC-32")


def test_more_than_the_disk_has(tmp_path, monkeypatch):
    path = wheel(tmp_path, ("evil/model/config.json", b"{}"))
    monkeypatch.setattr(archives.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1}))
    refused(path, "1 B are free")


def test_a_file_where_a_folder_must_be(tmp_path):
    refused(wheel(tmp_path, ("evil/model/a", b""), ("evil/model/a/b", b"")), "cannot be unpacked")


@pytest.mark.parametrize("cut", [0, 10, 60, -30])
def test_a_wheel_that_is_cut_short(tmp_path, cut):
    path = wheel(tmp_path, ("evil/model/config.json", os.urandom(200)))
    path.write_bytes(path.read_bytes()[: cut or 1])
    refused(path, "cannot be unpacked")


def test_another_compression(tmp_path):
    path = tmp_path / "evil-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("evil/model/config.json", "{}")
    refused(path, "in a compression that wheels do not use")


def test_a_gzip_bomb(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "ALWAYS_ALLOWED", 1000)
    path = tmp_path / "train.csv.gz"
    path.write_bytes(gzip.compress(b"text,label\n" + b"a,b\n" * 250_000))
    with pytest.raises(ValueError, match="unpacks to more than"):
        read_gzip(path)
    with pytest.raises(UserError, match=r"train\.csv\.gz cannot be read: it unpacks to more than"):
        read_columns(str(path), None, {"text": "text"}, field="task.train")
    for name in ("train.jsonl.gz", "train.conll.gz", "train.conllu.gz"):
        path.rename(tmp_path / name)
        path = tmp_path / name
        with pytest.raises(UserError, match="it unpacks to more than"):
            read_columns(str(path), None, {"text": "1"}, field="task.train")
    with pytest.raises(UserError, match="it unpacks to more than"):
        read_lines(path, "task.unlabelled")


def test_a_parquet_file_with_more_rows_than_bytes(tmp_path):
    path = tmp_path / "train.parquet"
    parquet.write_table(pa.table({"text": pa.array(["a"] * 2_000_000).dictionary_encode()}), path)
    assert path.stat().st_size < 100_000
    with pytest.raises(UserError, match=r"it says that it has 2,000,000 rows"):
        read_columns(str(path), None, {"text": "text"}, field="task.train")


def test_an_arrow_file_that_points_beyond_itself(tmp_path):
    """The offsets say that a text ends far behind the file; the library would read that memory."""
    path = tmp_path / "train.arrow"
    table = pa.table({"text": ["abc", "defg"]})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    offsets = struct.pack("<3i", 0, 3, 7)
    raw = path.read_bytes()
    assert raw.count(offsets) == 1
    path.write_bytes(raw.replace(offsets, struct.pack("<3i", 0, 3, 2**30)))
    with pytest.raises(UserError, match=r"train\.arrow cannot be read"):
        read_columns(str(path), None, {"text": "text"}, field="task.train")


def test_a_data_set_that_is_a_script(tmp_path):
    folder = tmp_path / "evil"
    folder.mkdir()
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w').close()\n")
    for source in (folder, folder / "evil.py"):
        with pytest.raises(UserError, match="has an unknown file type"):
            read_columns(str(source), None, {"text": "text"}, field="task.train")
        with pytest.raises(UserError, match="scripts are no longer supported"):
            _read_hub(str(source), None, field="task.train")  # as a name on the hub is read
    assert not (tmp_path / "executed").exists()


def test_half_a_character(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text('{"text": "good", "label": "a"}\n{"text": "bad \\ud800", "label": "b"}\n')
    with pytest.raises(UserError, match="line 2 has half of a character"):
        read_columns(str(path), None, {"text": "text"}, field="task.train")
    path.write_text('{"text": "whole \\ud83d\\ude00", "label": "a"}\n')
    assert read_columns(str(path), None, {"text": "text"}, field="task.train") == {"text": ["whole \U0001f600"]}


def test_modules_in_the_current_folder_are_not_imported(tmp_path):
    """pip and others run as new processes, perhaps in a dataset's folder that has files of these names."""
    for name in ("pip", "runpy", "json", "probescale"):
        (tmp_path / f"{name}.py").write_text("open('executed', 'w').close()\n")
    program = """
import os, subprocess, sys
from probescale.utils.subprocesses import module_command, python_command
os.chdir(sys.argv[1])
show = "import json, probescale; print(probescale.__file__)"
for words in (module_command("pip", "--version"), python_command(show)):
    print(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("pip ")
    assert not (tmp_path / "executed").exists()
