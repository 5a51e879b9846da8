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
from probescale.probing.represent import PassSettings, Request, compute_key, represent
from probescale.probing.sites import list_sites
from probescale.tasks.data import Examples
from probescale.utils.cache import FEATURES, PACKAGE, cache_limit, enforce_limit, list_entries, remove_entries
from probescale.utils.ownership import write_manifest

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


def load_all(features):
    return {site: features.load(site, np.arange(len(features))) for site in features.widths}


def test_a_second_request_runs_nothing_and_gives_the_same_bytes(loaded, tmp_path):
    passes, store = count_passes(loaded), Store(tmp_path)
    first = represent(loaded, [Request(DATA, "mean")], store, PassSettings(batch_tokens=100))[0]
    done = len(passes)
    again = represent(loaded, [Request(DATA, "mean")], store, PassSettings(batch_tokens=300))[0]
    assert len(passes) == done > 1
    assert list(first.widths) == SITES
    for site, rows in load_all(first).items():
        assert np.array_equal(rows, load_all(again)[site])
    arrays = np.load(first.folder / "layer-002.npy", mmap_mode="r")
    assert isinstance(arrays, np.memmap)
    assert arrays.shape == (40, 32)
    assert arrays.dtype == np.float32, "float16 overflows on T5's activations"


def test_the_key_covers_what_features_depend_on(loaded, model_folder):
    other = load_as_saved(str(model_folder("roberta")))
    sites, more = list_sites(loaded, ("layer",)), list_sites(loaded, ("head",))
    base = compute_key(loaded, Request(DATA, "mean"), 64, sites)
    relabelled = Examples(TEXTS, None, (1, 0) * 20, ("x", "y"))
    assert compute_key(loaded, Request(relabelled, "mean"), 64, sites) == base
    changed = {
        compute_key(other, Request(DATA, "mean"), 64, sites),
        compute_key(loaded, Request(DATA.take(range(39)), "mean"), 64, sites),
        compute_key(loaded, Request(DATA, "cls"), 64, sites),
        compute_key(loaded, Request(DATA, "mean"), 32, sites),
        compute_key(loaded, Request(DATA, "mean"), 64, more),
    }
    loaded.tokenizer.add_tokens(["unbelievably"])
    changed.add(compute_key(loaded, Request(DATA, "mean"), 64, sites))
    assert base not in changed
    assert len(changed) == 6


@pytest.mark.parametrize("damage", ["flip", "truncate", "manifest", "rows"])
def test_a_damaged_entry_is_computed_again_never_used(loaded, tmp_path, damage):
    store = Store(tmp_path)
    first = represent(loaded, [Request(DATA, "mean")], store)[0]
    expected = load_all(first)
    file = first.folder / {"manifest": "manifest.json", "rows": "rows.npy"}.get(damage, "layer-002.npy")
    content = bytearray(file.read_bytes())
    if damage == "flip":
        content[-7] ^= 1
        file.write_bytes(content)
    else:
        file.write_bytes(content[: len(content) // 2])
    assert store.find(first.folder.name) is None
    mended = load_all(represent(loaded, [Request(DATA, "mean")], store)[0])
    for site in expected:
        assert np.array_equal(mended[site], expected[site])


@pytest.mark.parametrize("left", ["both notes", "one older note", "one damaged file"])
def test_an_interrupted_pass_resumes_where_it_stopped(loaded, tmp_path, monkeypatch, left):
    monkeypatch.setattr("probescale.probing.cache.PROGRESS_SECONDS", 0)
    requests = [Request(DATA, "mean"), Request(DATA, "cls")]
    one_by_one = PassSettings(batch_tokens=1)
    expected = [load_all(entry) for entry in represent(loaded, requests, Store(tmp_path / "other"), one_by_one)]
    passes, store = count_passes(loaded), Store(tmp_path / "store")
    notes = {}

    def stop(*_):
        if len(passes) == 4:
            notes.update({path: path.read_text() for path in store.root.glob("*.partial/progress.json")})
        if len(passes) == 6:
            raise KeyboardInterrupt

    handle = loaded.family.layers(loaded.model)[-1].register_forward_hook(stop)
    with pytest.raises(KeyboardInterrupt):
        represent(loaded, requests, store, one_by_one)
    handle.remove()
    assert [json.loads(path.read_text())["rows"] for path in notes] == [5, 5]
    assert not list(store.root.glob("*/manifest.json"))
    note = next(iter(notes))
    if left == "one older note":  # both resume from the earlier position
        note.write_text(notes[note])
    if left == "one damaged file":
        (note.parent / "layer-003.npy").write_bytes(b"nothing")
    before = len(passes)
    resumed = represent(loaded, requests, store, one_by_one)
    assert len(passes) - before == {"both notes": 35, "one older note": 37, "one damaged file": 40}[left]
    for features, states in zip(resumed, expected, strict=True):
        for site, rows in load_all(features).items():
            np.testing.assert_allclose(rows, states[site], rtol=1e-5, atol=1e-6)


def probe_slowly(loaded, folder: Path, pause: float, sender: Connection) -> None:
    """Runs in a process of its own; sends a message for every batch, and the number of rows at the end."""
    cache.PROGRESS_SECONDS = 0

    def wait(*_):
        sender.send("batch")
        time.sleep(pause)

    loaded.family.layers(loaded.model)[0].register_forward_pre_hook(wait)
    sender.send(len(represent(loaded, [Request(DATA, "mean")], Store(folder), PassSettings(batch_tokens=30))[0]))


def start(loaded, folder: Path, pause: float) -> tuple[BaseProcess, Connection]:
    fork = multiprocessing.get_context("fork")  # libraries are already imported, which takes seconds
    receiver, sender = fork.Pipe(duplex=False)
    process = fork.Process(target=probe_slowly, args=(loaded, folder, pause, sender))
    process.start()
    sender.close()
    return process, receiver


def receive_all(receiver: Connection) -> list[object]:
    messages: list[object] = []
    with suppress(EOFError):
        while receiver.poll(120):
            messages.append(receiver.recv())
    return messages


@pytest.mark.slow
def test_kill_9_and_two_processes_at_once(loaded, tmp_path):
    folder = tmp_path / "store"
    killed, receiver = start(loaded, folder, 0.05)
    for _ in range(12):
        assert receiver.recv() == "batch"
    killed.kill()
    killed.join()
    assert [entry.name.endswith(".partial") for entry in folder.iterdir() if entry.is_dir()] == [True]

    both = [start(loaded, folder, 0.01) for _ in range(2)]
    messages = [receive_all(receiver) for _, receiver in both]
    for process, _ in both:
        process.join()
    assert [sent[-1] for sent in messages] == [40, 40]
    batches = sorted(sent.count("batch") for sent in messages)
    assert batches[0] == 0, "the second process waited and computed nothing"
    assert 0 < batches[1] <= 30, "what the killed process had done was not done again"

    recovered = represent(loaded, [Request(DATA, "mean")], Store(folder), PassSettings(batch_tokens=1000))[0]
    fresh = represent(loaded, [Request(DATA, "mean")], Store(tmp_path / "fresh"), PassSettings(batch_tokens=1000))[0]
    assert recovered.folder.parent == folder
    for site, rows in load_all(recovered).items():
        np.testing.assert_allclose(rows, load_all(fresh)[site], rtol=1e-5, atol=1e-6)


def test_too_little_disk_space_is_reported_before_the_pass(loaded, tmp_path, monkeypatch):
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
    assert "0 entries" in " ".join(cli("cache", "list").out.split())  # a long path breaks the line
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
        write_manifest(folder, FEATURES)
        for file in folder.iterdir():
            os.utime(file, (now - age, now - age))
    enforce_limit(3000)
    assert sorted(path.name for path in (tmp_path / "features").iterdir() if path.is_dir()) == ["entry0", "entry1"]
    enforce_limit(0)
    assert sorted(path.name for path in (tmp_path / "features").iterdir() if path.is_dir()) == ["entry0"]  # in use
    monkeypatch.setenv("PROBESCALE_CACHE_LIMIT", "much")
    with pytest.raises(UserError, match="PROBESCALE_CACHE_LIMIT"):
        cache_limit()


@pytest.mark.parametrize("place", ["features", "pypi"])
def test_only_entries_with_our_manifest_are_ever_removed(tmp_path, monkeypatch, cli, place):
    monkeypatch.setenv("PROBESCALE_CACHE", str(tmp_path))
    mine, entry = tmp_path / place / "mine", tmp_path / place / "entry"
    for folder in (mine, entry):
        (folder / "deep").mkdir(parents=True)
        (folder / "deep" / "file.npy").write_bytes(b"x" * 1000)
    write_manifest(entry, FEATURES if place == "features" else PACKAGE)
    (entry / "notes.md").write_text("added by the user")
    for file in tmp_path.rglob("*"):
        os.utime(file, (0, 0))
    assert [listed.name for listed in list_entries()] == [f"{place}/entry"]
    enforce_limit(0)
    assert "removed 0 entries" in cli("cache", "clear").out
    left = sorted(str(path.relative_to(tmp_path / place)) for path in (tmp_path / place).rglob("*") if path.is_file())
    assert [name for name in left if not name.endswith(".lock")] == ["entry/notes.md", "mine/deep/file.npy"]
