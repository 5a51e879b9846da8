"""A batch that does not fit into memory is split into parts, and nothing else changes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers.data import labelled_rows
from probescale.deploy.inference import wrap_pytorch
from probescale.deploy.predict import predict_lines
from probescale.deploy.texts import Line
from probescale.errors import MachineError
from probescale.models import memory
from probescale.models.loading import load_as_saved, load_classifier
from probescale.models.memory import BatchSplitter
from probescale.probing.cache import Store
from probescale.probing.represent import PassSettings, Request, represent
from probescale.recovery import fine_tuning
from probescale.recovery.predict import predict
from probescale.recovery.recipe import Recipe
from probescale.recovery.teacher import record_teacher_outputs
from probescale.tasks.data import Examples, TaggedSentences

ROWS = labelled_rows(40)
DATA = Examples(tuple(text for text, _ in ROWS), None, tuple(int(label == "positive") for _, label in ROWS), ("a", "b"))
WORDS = tuple(tuple(text.split()) for text in DATA.texts)
TAGGED = TaggedSentences(WORDS, tuple(tuple(len(word) % 2 for word in words) for words in WORDS), ("odd", "even"))


@pytest.fixture(autouse=True)
def not_announced_yet():
    memory._announce.cache_clear()


def fail_above(model: torch.nn.Module, rows: int) -> list[int]:
    """Raise the allocator's own error in the middle of a pass with more rows; returns the list of batch sizes seen."""
    tried: list[int] = []

    def refuse(_module, args, _output):
        tried.append(len(args[0]))
        if len(args[0]) > rows:
            torch.empty(1 << 50)

    layers = [module for name, module in model.named_modules() if name.endswith("layer.2.output")]
    layers[0].register_forward_hook(refuse)
    return tried


def states(features) -> dict[str, np.ndarray]:
    return {site: features.load(site, np.arange(len(features))) for site in features.widths}


@pytest.mark.parametrize("pooling", ["mean", "token"])
def test_representations(model_folder, tmp_path, capsys, pooling):
    data = TAGGED if pooling == "token" else DATA
    loaded = load_as_saved(str(model_folder("bert")))
    whole = represent(loaded, [Request(data, pooling)], Store(tmp_path / "whole"), PassSettings(batch_tokens=300))[0]
    tried = fail_above(loaded.model, 5)
    parts = represent(loaded, [Request(data, pooling)], Store(tmp_path / "parts"), PassSettings(batch_tokens=300))[0]
    assert tried[:3] == [18, 9, 5], "halved until it fits"
    assert max(tried[3:]) <= 5, "and larger batches are not tried again"
    for site, rows in states(whole).items():
        np.testing.assert_allclose(states(parts)[site], rows, rtol=1e-5, atol=1e-5)
    assert capsys.readouterr().err.count("batches are split into parts") == 1


def test_a_single_text_that_is_too_long_is_named(model_folder, tmp_path):
    loaded = load_as_saved(str(model_folder("bert")))
    fail_above(loaded.model, 0)
    longest = replace(DATA, texts=(*DATA.texts[:7], "good " * 60, *DATA.texts[8:]))
    with pytest.raises(MachineError, match="text 8 alone, 62 tokens") as found:
        represent(loaded, [Request(longest, "mean")], Store(tmp_path), PassSettings(batch_tokens=300))
    assert found.value.field == "model.max_length"


def test_answers(model_folder):
    loaded = load_classifier(str(model_folder("bert")), None, ("a", "b"), 0)
    ready = wrap_pytorch(loaded)
    lines = [Line(number, text) for number, text in enumerate(DATA.texts, 1)]
    whole, told = predict(loaded, DATA), [one.record()["probability"] for one in predict_lines(ready, lines)]
    fail_above(loaded.model, 3)
    assert np.array_equal(predict(loaded, DATA), whole)
    assert [one.record()["probability"] for one in predict_lines(ready, lines)] == pytest.approx(told, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["texts", "words"])
def test_training_takes_the_same_steps(model_folder, tmp_path, kind):
    """With labels, a teacher's logits and its states; parts weigh by their rows."""
    data, head = (DATA, "sentence") if kind == "texts" else (TAGGED, "token")
    recipe = Recipe(epochs=1, batch_size=8, learning_rate=1e-3, dropout=0.0, states=0.5)
    source = str(model_folder("bert"))
    teacher = load_classifier(source, None, data.names, 1, head=head)
    outputs = record_teacher_outputs(teacher, data, None, tmp_path / "teacher", states=True)
    results = []
    for rows in (8, 3):
        loaded = load_classifier(source, None, data.names, 0, head=head)
        tried = fail_above(loaded.model, rows)
        losses = fine_tuning.fine_tune(loaded, data, recipe, teacher=outputs, kept=(1, 2, 3, 4))
        results.append((losses, {name: value.clone() for name, value in loaded.model.state_dict().items()}))
    assert tried[:3] == [8, 4, 2]
    assert max(tried[3:]) == 2
    (losses, weights), (again, others) = results
    assert again == pytest.approx(losses, rel=1e-4)
    for name, value in weights.items():
        torch.testing.assert_close(others[name], value, rtol=1e-3, atol=2e-4)


def test_an_error_of_another_kind_is_not_caught():
    def wrong(_part):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="shapes"):
        BatchSplitter().run([0, 1], 5, wrong)


LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np, torch
torch.set_num_threads(1)
from probescale.models.loading import load_as_saved
from probescale.probing.cache import Store
from probescale.probing.represent import PassSettings, Request, represent
from probescale.tasks.data import Examples
loaded = load_as_saved(sys.argv[1])
data = Examples(tuple(Path(sys.argv[2]).read_text().splitlines()), None, (0, 1) * 750, ("a", "b"))
large = PassSettings(batch_tokens=10**6)
states = lambda name: represent(loaded, [Request(data, "mean")], Store(Path(sys.argv[3], name)), large)[0]
load = lambda found: found.load("layer-004", np.arange(len(found)))
few = represent(loaded, [Request(data, "mean")], Store(Path(sys.argv[3], "few")), PassSettings(batch_tokens=2048))[0]
now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + 32 * 2**20,) * 2)
print("largest difference", np.abs(load(states("limited")) - load(few)).max())
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_under_a_real_memory_limit(model_folder, tmp_path):
    """One batch of 4,000 texts takes much more than the limit, and than what happens to be free in mapped memory."""
    texts = tmp_path / "texts"
    texts.write_text("\n".join(f"{text} {text} {text}" for text, _ in labelled_rows(4000)))
    words = [sys.executable, "-c", LIMITED, str(model_folder("bert")), str(texts), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert "batches are split into parts" in done.stderr
    assert float(done.stdout.split()[-1]) < 1e-5
