"""What `compress` refuses of sentence encoders and of several labels per text: one message, nothing written."""

from __future__ import annotations

import json
import shutil

import pytest

from helpers.data import labelled_rows


def change_modules(folder):
    path = folder / "modules.json"
    modules = json.loads(path.read_text(encoding="utf-8"))
    modules[1]["type"] = "my_package.MyPooling"
    path.write_text(json.dumps(modules), encoding="utf-8")


def change_size(folder):
    path = folder / "1_Pooling" / "config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(settings | {"word_embedding_dimension": 7}), encoding="utf-8")


def check_refusal(done, tmp_path, *said):
    assert done.code == 2
    assert all(part in " ".join(done.err.split()) for part in said), done.err
    assert "Traceback" not in done.err
    left = [path.name for path in tmp_path.iterdir() if path.name.startswith("out")]
    assert not left, "nothing half-written"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (change_modules, ("my_package.MyPooling", "never executed", "known are the modules", "Pooling, Normalize")),
        (change_size, ("for embeddings of 7 numbers", "its states have 32", "save the model again")),
    ],
)
def test_modules_of_an_encoder(tmp_path, cli, encoder, change, said):
    shutil.copytree(encoder, tmp_path / "encoder")
    change(tmp_path / "encoder")
    texts = tmp_path / "texts.txt"
    lines = [text if number % 2 else f"so {text}" for number, (text, _) in enumerate(labelled_rows(60))]
    texts.write_text("\n".join(lines), encoding="utf-8")
    done = cli("compress", tmp_path / "encoder", texts, "--out", tmp_path / "out")
    check_refusal(done, tmp_path, "model.source", *said)


def test_a_file_of_one_line(tmp_path, cli, encoder):
    (tmp_path / "one.txt").write_text("a single line of text\n", encoding="utf-8")
    done = cli("compress", encoder, tmp_path / "one.txt", "--out", tmp_path / "out")
    check_refusal(done, tmp_path, "task.train", "too few different texts", ": 1", "at least 10 different texts")


def write_flags(path, music):
    rows = [
        f"{text.replace(',', '')},{int(label == 'positive')},{int(label != 'positive')},{music}"
        for text, label in labelled_rows(60)
    ]
    path.write_text("\n".join(["text,praise,blame,music", *rows]) + "\n", encoding="utf-8")
    return path


def test_a_label_that_never_occurs(tmp_path, cli, model_folder):
    table = write_flags(tmp_path / "flags.csv", music=0)
    done = cli("compress", model_folder("bert"), table, "--label", "praise,blame,music", "--out", tmp_path / "out")
    said = ("task.train.label", 'no text has the label "music"', "leave its column out", "praise, blame")
    check_refusal(done, tmp_path, *said)


@pytest.mark.parametrize("form", ["columns", "one column"])
def test_all_labels_empty(tmp_path, cli, model_folder, form):
    texts = [text.replace(",", "") for text, _ in labelled_rows(60)]
    table = tmp_path / "empty.csv"
    head, cells, label = ("text,a,b", ",0,0", "a,b") if form == "columns" else ("text,topics", ",", "topics")
    table.write_text("\n".join([head, *(f"{text}{cells}" for text in texts)]) + "\n", encoding="utf-8")
    done = cli("compress", model_folder("bert"), table, "--kind", "labels", "--label", label, "--out", tmp_path / "out")
    said = ("no text has any label: the columns a, b hold 0", "1 in the column") if form == "columns" else ("topics",)
    check_refusal(done, tmp_path, "label", *said)
