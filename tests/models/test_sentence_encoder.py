"""A sentence encoder's modules are copied with its cut: none from outside the folder, and no code of other packages."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from probescale.errors import UserError
from probescale.models.sentence_encoder import copy_modules, is_sentence_encoder

OWN = "sentence_transformers.models"


def encoder(folder, *modules: dict):
    folder.mkdir()
    first = {"idx": 0, "name": "0", "path": "", "type": f"{OWN}.Transformer"}
    (folder / "modules.json").write_text(json.dumps([first, *modules]))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    (folder / "1_Pooling" / "pytorch_model.bin").write_bytes(b"a pickle")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 256}')
    return folder


POOLING = {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{OWN}.Pooling"}


def test_modules_are_kept_and_pickles_are_not(tmp_path):
    source, target = encoder(tmp_path / "a", POOLING), tmp_path / "b"
    target.mkdir()
    assert is_sentence_encoder(source)
    assert copy_modules(source, target) == ["Pooling"]
    found = sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())
    assert found == ["1_Pooling/config.json", "modules.json", "sentence_bert_config.json"]
    assert json.loads((target / "modules.json").read_text())[1] == POOLING


@pytest.mark.parametrize("path", ["../up", "/etc", "1_Pooling/../../up", "..\\up", ""])
def test_a_path_out_of_the_folder_is_refused(tmp_path, path):
    (tmp_path / "up").mkdir()
    source = encoder(tmp_path / "a", POOLING | {"path": path})
    with pytest.raises(UserError, match="is outside the folder"):
        copy_modules(source, tmp_path)


@pytest.mark.parametrize(
    "name",
    ["evil.Pooling", "sentence_transformers.util.os.system", f"{OWN}.os.system", "sentence_transformers.x.Pooling"],
)
def test_code_of_others_is_refused(tmp_path, name):
    source = encoder(tmp_path / "a", POOLING | {"type": name})
    with pytest.raises(UserError, match=f"{re.escape(name)}; code that ships with a model is never executed"):
        copy_modules(source, tmp_path)


@pytest.mark.parametrize(
    "name", [f"{OWN}.Pooling.Pooling", "sentence_transformers.sentence_transformer.modules.pooling.Pooling"]
)
def test_modules_of_other_versions_are_known(tmp_path, name):
    source = encoder(tmp_path / "a", POOLING | {"type": name})
    (tmp_path / "b").mkdir()
    assert copy_modules(source, tmp_path / "b") == ["Pooling"]


@pytest.mark.parametrize("text", ["", "{}", "[]", "[3]", '[{"path": "", "type": "x"}]', "null"])
def test_what_is_no_list_of_modules_is_refused_before_anything_is_written(tmp_path, cli, model_folder, text):
    shutil.copytree(model_folder("bert"), tmp_path / "model")
    (tmp_path / "model" / "modules.json").write_text(text)
    done = cli("extract", tmp_path / "model", "--keep", "1", "--out", tmp_path / "out")
    assert done.code == 2
    assert "modules.json" in done.err
    assert not (tmp_path / "out").exists()
