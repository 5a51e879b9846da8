"""A run that learns embeddings, from a file of texts to a folder that sentence-transformers loads."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from helpers.data import BAD, GOOD, THINGS
from probescale.api import compress
from probescale.deploy.compressed import Compressed
from probescale.errors import UserError
from probescale.models.loading import load_encoder
from probescale.recovery.embedder import Embedder
from probescale.tasks.columns import find_layout

SETTINGS = {
    "model.max_length": 32,
    "probing.penalties": [0.01],
    "probing.selectivity": False,
    "probing.max_examples": 100,
    "selection.strategy": "uniform_k",
    "selection.k": 2,
    "selection.sample": 50,
    "shrink": "none",
    "recovery.epochs": 6,
    "recovery.learning_rate": 1e-3,
    "recovery.batch_size": 16,
    "recovery.augment": 0,
}


LINES = ["the plot was lovely", "a hero so dull and cold"]


def write_texts(path, count):
    rng = random.Random(0)
    words = [*GOOD, *BAD, *THINGS, "the", "and", "was", "so"]
    texts = {" ".join(rng.choices(words, k=rng.randint(4, 12))) for _ in range(count)}
    path.write_text("\n".join(sorted(texts)) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory, model_folder):
    """The folder of a run beside another encoder, which learns vectors of 32 numbers and their first 8."""
    folder = tmp_path_factory.mktemp("embedding")
    other = {"model": str(model_folder("mpnet")), "name": "published"}
    settings = {**SETTINGS, "compare": [other], "recovery.dimensions": [8]}
    texts = write_texts(folder / "corpus.txt", 400)
    compress(str(model_folder("bert")), texts, budget="60%", out=folder / "run", settings=settings)
    return folder / "run"


@pytest.mark.slow
def test_held_out_texts_are_compared_with_the_vectors_of_the_original(tmp_path, model_folder):
    """With `recovery.validation`, the epoch that is nearest to the original is kept, not the first."""
    settings = {**SETTINGS, "recovery.validation": 0.2, "recovery.learning_rate": 1e-3}
    texts = write_texts(tmp_path / "corpus.txt", 200)
    small = compress(str(model_folder("bert")), texts, budget="60%", out=tmp_path / "run", settings=settings)
    assert len(small.result.subnetwork.losses) > 2


@pytest.mark.slow
@pytest.mark.long
def test_a_ladder_of_encoders(tmp_path, model_folder):
    """The smaller rung is tried as a cut of the larger one, too, with its pooling."""
    texts = write_texts(tmp_path / "corpus.txt", 300)
    settings = {name: value for name, value in SETTINGS.items() if name != "selection.k"}
    small = compress(str(model_folder("bert")), texts, ladder=["1.5x", "2.5x"], out=tmp_path / "run", settings=settings)
    assert list(small.rungs) == ["1.5x", "2.5x"]
    sources = json.loads((tmp_path / "run" / "rungs" / "2.5x" / "source.json").read_text())["sources"]
    assert len(sources) == 2
    assert all(0 < source["loss"] < 10 for source in sources)


@pytest.mark.slow
def test_from_texts_to_sentence_transformers(run):
    from sentence_transformers import SentenceTransformer

    small = Compressed(run)
    result = small.result
    assert (result.metric, result.original.value) == ("spearman", 1.0)
    assert result.failure is None
    assert result.subnetwork.value > 0.6
    assert result.examples > 1000, "pairs, not texts"
    stock = SentenceTransformer(str(run / "model"), device="cpu").encode(LINES)
    own = np.array([answer.record()["embedding"] for answer in small.predict(LINES)])
    assert own == pytest.approx(stock, abs=1e-5)
    assert np.linalg.norm(own, axis=1) == pytest.approx([1, 1], abs=1e-4)
    assert 0.2 < result.subnetwork.first[8] < result.subnetwork.value
    short = SentenceTransformer(str(run / "model"), device="cpu", truncate_dim=8).encode(LINES)
    assert short == pytest.approx(own[:, :8], abs=1e-5)


@pytest.mark.slow
def test_what_a_search_pays_is_shown(run):
    result = Compressed(run).result
    published = result.other_models["published"]
    assert published.losses == (), "measured as it is"
    assert -1 <= published.value < result.subnetwork.value, "its similarities are not the original's"
    for model in (result.original, result.subnetwork, published):
        assert model.vectors
        assert (model.vectors.width, model.vectors.index_megabytes) == (32, 128)
        assert model.vectors.texts_per_second > 0
    pages = [(run / name).read_text(encoding="utf-8") for name in ("model/README.md", "report.md", "report.html")]
    assert "library_name: sentence-transformers" in pages[0]
    assert "SentenceTransformer(" in pages[0]
    assert all("published" in page and "What a search pays" in page and "truncate_dim=8" in page for page in pages)
    for page in pages[:2]:
        assert "| this model | 32 | 128.0 MB |" in page
        assert "| this model, the first 8 | 8 | 32.0 MB |" in page


@pytest.mark.slow
def test_the_export_has_the_pooling_in_its_graph(run, tmp_path):
    from probescale.deploy.export import export
    from probescale.deploy.open_model import open_model

    record = export(str(run), tmp_path / "onnx")
    assert record.kind == "embedding"
    assert record.value == pytest.approx(record.value_pytorch, abs=1e-3)
    exported = open_model(str(tmp_path / "onnx"))
    batch = dict(exported.tokenizer(LINES, padding=True, return_tensors="np"))
    own = np.array([answer.record()["embedding"] for answer in Compressed(run).predict(LINES)])
    assert exported.run(batch) == pytest.approx(own, abs=1e-4)


@pytest.mark.slow
def test_a_model_that_learned_pairs_gives_every_text_a_vector_of_its_own(tmp_path, model_folder, cli):
    pytest.importorskip("onnxruntime", reason='pip install "probescale[onnx]"')
    texts = write_texts(tmp_path / "corpus.txt", 240).read_text(encoding="utf-8").splitlines()
    pairs = zip(texts[::2], texts[1::2], strict=True)
    (tmp_path / "pairs.csv").write_text("question,passage\n" + "".join(f"{one},{other}\n" for one, other in pairs))
    settings = {**SETTINGS, "recovery.epochs": 1}
    small = compress(
        str(model_folder("bert")),
        tmp_path / "pairs.csv",
        "60%",
        kind="embedding",
        out=tmp_path / "run",
        settings=settings,
    )
    assert cli("export", tmp_path / "run", "--out", tmp_path / "onnx").code == 0
    expected = np.array([answer.record()["embedding"] for answer in small.predict(LINES)])
    with pytest.raises(UserError, match="reads one text at a time"):
        small.predict(LINES, pairs=LINES)
    tables = {name: f"{name}\n{{}}\n{{}}\n" for name in ("question", "text")}
    tables["both"] = "question,passage\n{},a hero\n{},a plot\n"
    for folder in (tmp_path / "run" / "model", tmp_path / "onnx"):
        record = json.loads((folder / "probescale.json").read_text())
        assert record["columns"] == {"text": "question", "pair": None, "header": True}
        for name, table in tables.items():
            (tmp_path / f"{name}.csv").write_text(table.format(*LINES))
            done = cli("predict", folder, tmp_path / f"{name}.csv", "--format", "jsonl")
            assert done.code == 0, done.err
            found = np.array([json.loads(line)["embedding"] for line in done.out.splitlines()])
            assert found == pytest.approx(expected, abs=1e-4), name


def test_the_layout_of_texts(tmp_path):
    found = find_layout(str(write_texts(tmp_path / "corpus.txt", 50)), kind="embedding")
    assert (found.kind, found.pair) == ("embedding", None)
    assert found.describe().endswith("texts without labels: the original's embeddings are learned")
    conll = tmp_path / "tags.txt"
    conll.write_text("a DT\ndog NN\n\nit PRP\nruns VB\n" * 20, encoding="utf-8")
    assert find_layout(str(conll)).kind == "tags"


def test_a_file_of_one_line(tmp_path, model_folder):
    file = tmp_path / "one.txt"
    file.write_text("a single line of text\n", encoding="utf-8")
    with pytest.raises(UserError, match="too few different texts to learn embeddings from: 1"):
        compress(str(model_folder("bert")), file, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("mode", ["mean", "cls", "max", "lasttoken"])
@pytest.mark.parametrize("normalised", [True, False])
def test_poolings_are_those_of_sentence_transformers(tmp_path, model_folder, mode, normalised):
    from sentence_transformers import SentenceTransformer

    from probescale.models.pooling import SentencePooling, write_pooling
    from probescale.models.saving import write_model

    loaded = load_encoder(str(model_folder("bert")), None)
    prompts = {"prompts": {"query": "query: ", "passage": "passage: "}}
    loaded.pooling = SentencePooling(mode, normalised, loaded.model.config.hidden_size, prompts)
    folder = tmp_path / "encoder"
    folder.mkdir()
    write_model(loaded, folder)
    write_pooling(loaded.pooling, folder, 32)
    lines = ["the plot was lovely", "a hero", "so dull and cold and the music was boring"]
    again = load_encoder(str(folder), None)
    assert again.pooling == loaded.pooling
    stock = SentenceTransformer(str(folder), device="cpu")
    assert Embedder(again, 32)(lines) == pytest.approx(stock.encode(lines), abs=1e-5)
    asked = stock.encode(lines, prompt_name="query")
    assert Embedder(again, 32)([f"query: {line}" for line in lines]) == pytest.approx(asked, abs=1e-5)


def test_dimensions_that_the_vectors_do_not_have(tmp_path, model_folder):
    texts = write_texts(tmp_path / "corpus.txt", 60)
    with pytest.raises(UserError, match="32 is not less than the 32 numbers of the original's vectors") as error:
        compress(str(model_folder("bert")), texts, out=tmp_path / "run", settings={"recovery.dimensions": [16, 32]})
    assert "recovery.dimensions: " in str(error.value)
    assert not (tmp_path / "run").exists()


def test_a_strategy_that_needs_labels(tmp_path, model_folder):
    texts = write_texts(tmp_path / "texts.txt", 60)
    with pytest.raises(UserError, match="drop_loss needs labels, and texts have none") as refused:
        compress(model_folder("bert"), texts, kind="embedding", settings={"selection.strategy": "drop_loss"})
    assert "use tried or stitched" in str(refused.value)


def test_classes_have_no_dimensions(tmp_path, model_folder, task_files):
    settings = {"recovery.dimensions": [16]}
    with pytest.raises(UserError, match=r"recovery\.dimensions: only embeddings have dimensions"):
        compress(str(model_folder("bert")), str(task_files.train), out=tmp_path / "run", settings=settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"type": "evil.module.Pooling"}, "code that ships with a model is never executed"),
        ({"type": "sentence_transformers.models.LSTM"}, "has the modules LSTM"),
        ({"word_embedding_dimension": 7}, "is for embeddings of 7 numbers"),
        ({"pooling_mode": "weightedmean"}, 'has the pooling "weightedmean"'),
    ],
)
def test_modules_that_do_not_fit(tmp_path, model_folder, change, says):
    from probescale.models.pooling import SentencePooling, write_pooling
    from probescale.models.saving import write_model

    loaded = load_encoder(str(model_folder("bert")), None)
    write_model(loaded, tmp_path)
    write_pooling(SentencePooling(states=loaded.model.config.hidden_size), tmp_path, 32)
    path = tmp_path / ("modules.json" if "type" in change else "1_Pooling/config.json")
    content = json.loads(path.read_text(encoding="utf-8"))
    if "type" in change:
        content = [content[0], {**content[1], **change}]
    else:
        content |= change
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError) as error:
        load_encoder(str(tmp_path), None)
    assert says in str(error.value)


def test_retrieval_and_scores():
    from probescale.tasks.metrics import METRICS
    from probescale.tasks.passages import Passages

    vectors = np.eye(4)[[0, 1, 0, 1, 2]] + 0.1 * np.eye(5, 4)
    found = Passages(("q1", "q2", "p1", "p2", "p3"), ((0, 2), (1, 4)), retrieval=True)
    ranks = found.compare(vectors)
    assert ranks.tolist() == [1, 2]
    assert METRICS["recall_at_10"](found.gold, ranks) == 1
    assert METRICS["ndcg_at_10"](found.gold, ranks) == pytest.approx((1 + 1 / np.log2(3)) / 2)
    scored = Passages(("a", "b", "c"), ((0, 1), (1, 2)), (0.5, 4.0))
    assert scored.gold.tolist() == [0.5, 4.0]
    assert scored.take([1, 2]).links == ((0, 1),)
    assert scored.take([1, 2]).scores == (4.0,)
