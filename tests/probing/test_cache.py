"""The cache: hits, misses, kill -9, two processes, damage."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest

from helpers.data import labelled_rows, write_csv
from probescale.errors import MachineError, UserError
from probescale.models.loading import load_as_saved
from probescale.probing import cache
from probescale.probing.cache import Store
from probescale.probing.represent import Request, key_of, represent
from probescale.probing.sites import sites_of
from probescale.tasks.data import Examples
from probescale.utils.cache import cache_limit, enforce_limit, list_entries, remove_entries

TEXTS = tuple(text for text, _ in labelled_rows(40, seed=5))
DATA = Examples(TEXTS, None, (0, 1) * 20, ("a", "b"))
SITES = ["embeddings", "layer-001", "layer-002", "layer-003", "layer-004"]


@pytest.fixture
def loaded(model_folder):
    return load_as_saved(str(model_folder("bert")))


def count_passes(loaded):
    passes: list[int] = []
    loaded.family.layers(loaded.model)[0].register_forward_pre_hook(lambda *_: passes.append(1))
    return passes


def everything(features):
    return {site: features.load(site, np.arange(len(features))) for site in features.widths}


def test_a_second_request_runs_nothing_and_gives_the_same_bytes(loaded, tmp_path):
    passes, store = count_passes(loaded), Store(tmp_path)
    first = represent(loaded, [Request(DATA, "mean")], store, batch_tokens=100)[0]
    done = len(passes)
    again = represent(loaded, [Request(DATA, "mean")], store, batch_tokens=300)[0]
    assert len(passes) == done > 1
    assert list(first.widths) == SITES
    for site, rows in everything(first).items():
        assert np.array_equal(rows, everything(again)[site])
    arrays = np.load(first.folder / "layer-002.npy", mmap_mode="r")
    assert isinstance(arrays, np.memmap)
    assert arrays.shape == (40, 32)
    assert arrays.dtype == np.float32, "float16 overflows on T5's activations"


def test_the_key_covers_what_features_depend_on(loaded, model_folder):
    other = load_as_saved(str(model_folder("roberta")))
    sites, more = sites_of(loaded, ("layer",)), sites_of(loaded, ("head",))
    base = key_of(loaded, Request(DATA, "mean"), 64, sites)
    relabelled = Examples(TEXTS, None, (1, 0) * 20, ("x", "y"))
    assert key_of(loaded, Request(relabelled, "mean"), 64, sites) == base
    changed = {
        key_of(other, Request(DATA, "mean"), 64, sites),
        key_of(loaded, Request(DATA.take(range(39)), "mean"), 64, sites),
        key_of(loaded, Request(DATA, "cls"), 64, sites),
        key_of(loaded, Request(DATA, "mean"), 32, sites),
        key_of(loaded, Request(DATA, "mean"), 64, more),
    }
    loaded.tokenizer.add_tokens(["unbelievably"])
    changed.add(key_of(loaded, Request(DATA, "mean"), 64, sites))
    assert base not in changed
    assert len(changed) == 6


@pytest.mark.parametrize("damage", ["flip", "truncate", "manifest", "rows"])
def test_a_damaged_entry_is_computed_again_never_used(loaded, tmp_path, damage):
    store = Store(tmp_path)
    first = represent(loaded, [Request(DATA, "mean")], store)[0]
    expected = everything(first)
    file = first.folder / {"manifest": "manifest.json", "rows": "rows.npy"}.get(damage, "layer-002.npy")
    content = bytearray(file.read_bytes())
    if damage == "flip":
        content[-7] ^= 1
        file.write_bytes(content)
    else:
        file.write_bytes(content[: len(content) // 2])
    assert store.find(first.folder.name) is None
    mended = everything(represent(loaded, [Request(DATA, "mean")], store)[0])
    for site in expected:
        assert np.array_equal(mended[site], expected[site])


@pytest.mark.parametrize("left", ["both notes", "one older note", "one damaged file"])
def test_a_pass_that_is_interrupted_goes_on_where_it_stopped(loaded, tmp_path, monkeypatch, left):
    monkeypatch.setattr("probescale.probing.cache.NOTE_SECONDS", 0)
    requests = [Request(DATA, "mean"), Request(DATA, "cls")]
    expected = [everything(one) for one in represent(loaded, requests, Store(tmp_path / "other"), batch_tokens=1)]
    passes, store = count_passes(loaded), Store(tmp_path / "store")
    notes = {}

    def stop(*_):
        if len(passes) == 4:
            notes.update({path: path.read_text() for path in store.root.glob("*.partial/progress.json")})
        if len(passes) == 6:
            raise KeyboardInterrupt

    handle = loaded.family.layers(loaded.model)[-1].register_forward_hook(stop)
    with pytest.raises(KeyboardInterrupt):
        represent(loaded, requests, store, batch_tokens=1)
    handle.remove()
    assert [json.loads(path.read_text())["rows"] for path in notes] == [5, 5]
    assert not list(store.root.glob("*/manifest.json"))
    one = next(iter(notes))
    if left == "one older note":  # both go on from the earlier place
        one.write_text(notes[one])
    if left == "one damaged file":
        (one.parent / "layer-003.npy").write_bytes(b"nothing")
    before = len(passes)
    found = represent(loaded, requests, store, batch_tokens=1)
    assert len(passes) - before == {"both notes": 35, "one older note": 37, "one damaged file": 40}[left]
    for features, states in zip(found, expected, strict=True):
        for site, rows in everything(features).items():
            np.testing.assert_allclose(rows, states[site], rtol=1e-5, atol=1e-6)


def probe_slowly(loaded, folder: Path, pause: float, tell: Connection) -> None:
    """In a process of its own: what it does, batch by batch, and the rows that it has in the end."""
    cache.NOTE_SECONDS = 0

    def wait(*_):
        tell.send("batch")
        time.sleep(pause)

    loaded.family.layers(loaded.model)[0].register_forward_pre_hook(wait)
    tell.send(len(represent(loaded, [Request(DATA, "mean")], Store(folder), batch_tokens=30)[0]))


def start(loaded, folder: Path, pause: float) -> tuple[BaseProcess, Connection]:
    fork = multiprocessing.get_context("fork")  # the libraries are there: importing them takes seconds
    heard, tell = fork.Pipe(duplex=False)
    process = fork.Process(target=probe_slowly, args=(loaded, folder, pause, tell))
    process.start()
    tell.close()
    return process, heard


def everything_said(heard: Connection) -> list[object]:
    said: list[object] = []
    with suppress(EOFError):
        while heard.poll(120):
            said.append(heard.recv())
    return said


@pytest.mark.slow
def test_kill_9_and_two_processes_at_once(loaded, tmp_path):
    folder = tmp_path / "store"
    killed, heard = start(loaded, folder, 0.05)
    for _ in range(12):
        assert heard.recv() == "batch"
    killed.kill()
    killed.join()
    assert [entry.name.endswith(".partial") for entry in folder.iterdir() if entry.is_dir()] == [True]

    both = [start(loaded, folder, 0.01) for _ in range(2)]
    said = [everything_said(heard) for _, heard in both]
    for process, _ in both:
        process.join()
    assert [one[-1] for one in said] == [40, 40]
    batches = sorted(one.count("batch") for one in said)
    assert batches[0] == 0, "the second process waited and computed nothing"
    assert 0 < batches[1] <= 30, "what the killed process had done was not done again"

    found = represent(loaded, [Request(DATA, "mean")], Store(folder), batch_tokens=1000)[0]
    fresh = represent(loaded, [Request(DATA, "mean")], Store(tmp_path / "fresh"), batch_tokens=1000)[0]
    assert found.folder.parent == folder
    for site, rows in everything(found).items():
        np.testing.assert_allclose(rows, everything(fresh)[site], rtol=1e-5, atol=1e-6)


def test_too_little_disk_is_said_before_the_pass(loaded, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000})())
    passes = count_passes(loaded)
    with pytest.raises(MachineError, match=r"25\.6 kB, but .* has 1\.0 kB left"):
        represent(loaded, [Request(DATA, "mean")], Store(tmp_path))
    assert not passes


def test_without_the_cache_nothing_is_kept(loaded):
    with Store.open(keep=False) as store:
        represent(loaded, [Request(DATA, "mean")], store)
        assert list(store.root.iterdir())
    assert not store.root.exists()


def test_cache_list_and_clear(cli, model_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("PROBESCALE_CACHE", str(tmp_path / "cache"))
    assert "0 entries" in cli("cache", "list").out
    train = write_csv(tmp_path / "train.csv", labelled_rows(60))
    config = tmp_path / "c.yaml"
    task = {"train": str(train)}
    settings = {"model": {"source": str(model_folder("bert"))}, "task": task, "selection": {"k": 2}}
    config.write_text(json.dumps(settings))
    assert cli("probe", config, "--out", tmp_path / "s.json").code == 0
    listed = cli("cache", "list")
    assert listed.code == 0
    assert "cls, 48 inputs" in listed.out
    assert "just now" in listed.out
    assert "kB" in listed.out
    assert len(json.loads(cli("cache", "list", "--json").out)) == 1
    (entry,) = list_entries()
    assert entry.size > 48 * 5 * 32 * 4

    assert remove_entries(older_than_days=1) == (0, 0)
    old = time.time() - 5 * 86_400
    for file in (tmp_path / "cache").rglob("*"):
        os.utime(file, (old, old))
    assert "5 days ago" in cli("cache", "list").out
    assert "removed 1 entries" in cli("cache", "clear", "--older-than", 1).out
    assert list_entries() == []


def test_the_cache_keeps_its_limit(tmp_path, monkeypatch, cli):
    monkeypatch.setenv("PROBESCALE_CACHE", str(tmp_path))
    now = time.time()
    for number, age in enumerate((10, 7200, 9000, 8000)):  # seconds since the last use
        folder = tmp_path / "features" / f"entry{number}"
        folder.mkdir(parents=True)
        (folder / "layer.npy").write_bytes(b"x" * 1000)
        os.utime(folder / "layer.npy", (now - age, now - age))
    enforce_limit(2500)
    assert sorted(path.name for path in (tmp_path / "features").iterdir() if path.is_dir()) == ["entry0", "entry1"]
    enforce_limit(0)
    assert sorted(path.name for path in (tmp_path / "features").iterdir() if path.is_dir()) == ["entry0"]  # in use
    monkeypatch.setenv("PROBESCALE_CACHE_LIMIT", "much")
    with pytest.raises(UserError, match="PROBESCALE_CACHE_LIMIT"):
        cache_limit()
