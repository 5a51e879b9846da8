"""What is cut off is said before the work."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.decoders import save_decoder
from probescale.errors import UserError
from probescale.models.loading import LoadedModel, load_classifier, load_encoder
from probescale.pipeline.lengths import describe_cut
from probescale.recovery.fine_tuning import prepare_training
from probescale.recovery.recipe import Recipe
from probescale.tasks.data import load_rows
from probescale.tasks.documents import Documents


@pytest.fixture(scope="module")
def bert(model_folder) -> LoadedModel:
    return load_encoder(str(model_folder("bert")), None)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder: Path = tmp_path_factory.mktemp("decoder") / "model"
    return load_classifier(save_decoder(folder, steps=1), None, (), 0, head="lm", keep_head=True)


def rows(long: int) -> list[tuple[str, str]]:
    return [(f"{'the film was good ' * (10 if n < long else 1)}{n}", str(n % 2)) for n in range(100)]


def chats(words: int) -> Documents:
    asked = [(("user", "the fox sees the crow " * words + str(n)), ("assistant", "at home")) for n in range(12)]
    return Documents(("",) * 12, tuple(asked))


def test_texts_that_are_longer_than_what_is_read(bert: LoadedModel):
    note = describe_cut(bert, load_rows(rows(30)), 24)
    assert note is not None
    assert note.startswith("30% of the texts have more than 24 tokens")
    assert "(--set model.max_length=64)" in note, "what 95 % of them need"
    assert describe_cut(bert, load_rows(rows(30)), 64) is None
    assert describe_cut(bert, load_rows(rows(3)), 24) is None, "a few"


def test_answers_beyond_what_is_read(decoder: LoadedModel):
    assert describe_cut(decoder, chats(1), 128) is None
    with pytest.raises(UserError, match=r"no answer begins within the first 64 tokens.*(?s:.*)max_length=128"):
        describe_cut(decoder, chats(4), 64)
    both = chats(1).joined(chats(4))
    note = describe_cut(decoder, both, 64)
    assert note is not None
    assert note.startswith("50% of the answers lie beyond the first 64 tokens")
    learned, _ = prepare_training(decoder, both, Recipe(epochs=1, learning_rate=1e-3, batch_size=4), max_length=64)
    assert list(learned.used) == list(range(12)), "conversations without an answer in reach teach nothing"
