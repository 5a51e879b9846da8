"""Tiny models of every family, built from configs with real tokenizers of their kind, and a small task to learn."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports the hub client: tests make no network call

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    MPNetConfig,
    MPNetForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
    T5Config,
    T5ForTokenClassification,
    set_seed,
)

from probescale.models import proof
from probescale.models.family import Family

SHARED = Path(__file__).parents[2] / "shared"  # real data and weights; absent in most checkouts
FAMILIES = ("bert", "roberta", "mpnet", "t5")
LAYERS = 4
GOOD = ["good", "great", "fine", "lovely", "brilliant", "warm", "charming", "funny"]
BAD = ["bad", "awful", "poor", "dull", "boring", "cold", "clumsy", "tedious"]
THINGS = ["film", "plot", "story", "cast", "script", "scene", "ending", "score", "music", "hero"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first: at the end, no core waits for another one's long file."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


# A process that has stock libraries loaded and nothing of ours; every proof gets a fork of it, as new as a fresh one.
STOCK = """
import os, sys, traceback
import safetensors.torch, torch, transformers
transformers.AutoTokenizer, transformers.BertForSequenceClassification, transformers.PreTrainedTokenizerFast
for line in sys.stdin:
    scratch, start, program = line.rstrip().split(chr(9))
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    os.chdir(scratch)
    sys.argv = ["-c", program, "jobs.json"]
    os.dup2(os.open("stderr", os.O_WRONLY | os.O_CREAT), 2)
    try:
        exec(start, {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
"""


@pytest.fixture(scope="session", autouse=True)
def quick_proofs() -> Iterator[None]:
    """Most of a proof's time is the import of transformers: tests of the command line pay for it, others need not."""
    server: subprocess.Popen[str] | None = None

    def run_forked(scratch: str) -> subprocess.CompletedProcess[str]:
        nonlocal server
        server = server or subprocess.Popen([sys.executable, "-c", STOCK], stdin=PIPE, stdout=PIPE, text=True)
        assert server.stdin
        assert server.stdout
        server.stdin.write(f"{scratch}\t{proof.START}\t{proof.fresh.__file__}\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        said = Path(scratch, "stderr")
        return subprocess.CompletedProcess([], code, "", said.read_text() if said.exists() else "")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proof, "run_fresh", run_forked)
        yield
    if server:
        server.kill()
        server.wait()


def sentence(rng: random.Random, positive: bool) -> str:
    words = rng.sample(GOOD if positive else BAD, 2)
    return f"the {rng.choice(THINGS)} was {words[0]} and the {rng.choice(THINGS)} {words[1]}, unbelievably so ."


def labelled_rows(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Different sentences with their label, classes in turn."""
    rng = random.Random(seed)
    rows: dict[str, str] = {}
    while len(rows) < count:
        positive = len(rows) % 2 == 0
        rows[sentence(rng, positive)] = "positive" if positive else "negative"
    return list(rows.items())


def write_csv(path: Path, rows: list[tuple[str, str]], header: str = "text,label") -> Path:
    lines = [header, *('"{}",{}'.format(text.replace('"', '""'), label) for text, label in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing is read from or left in the user's cache."""
    os.environ["PROBESCALE_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@dataclass(frozen=True)
class TinyTask:
    train: Path
    dev: Path


@pytest.fixture(scope="session")
def task_files(tmp_path_factory: pytest.TempPathFactory) -> TinyTask:
    folder = tmp_path_factory.mktemp("task")
    rows = labelled_rows(160)
    return TinyTask(write_csv(folder / "train.csv", rows[:120]), write_csv(folder / "dev.csv", rows[120:]))


def _words(corpus: list[str]) -> list[str]:
    """All words of the corpus, but one that is spelt in pieces. Vocabularies are written down, not trained: trainers
    break ties differently in every process, and figures of tiny models would differ from run to run."""
    return sorted({word for text in corpus for word in text.replace(",", " ,").split()} - {"unbelievably"})


def _wordpiece(corpus: list[str]) -> PreTrainedTokenizerFast:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = sorted({letter for text in corpus for letter in text} - {" "})
    pieces = [*special, *letters, *(f"##{letter}" for letter in letters), "un", "##believ", "##ably", *_words(corpus)]
    numbers = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))  # type: ignore[call-arg]
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)  # type: ignore[assignment]
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # type: ignore[assignment]
    tokenizer.decoder = decoders.WordPiece()  # type: ignore[assignment]
    ends = [(token, tokenizer.token_to_id(token)) for token in ("[SEP]", "[CLS]")]
    tokenizer.post_processor = processors.BertProcessing(*ends)  # type: ignore[assignment]
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def _bpe(corpus: list[str]) -> PreTrainedTokenizerFast:
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=350, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))  # type: ignore[assignment]
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", **names)


def _unigram(corpus: list[str]) -> PreTrainedTokenizerFast:
    special = ["<pad>", "</s>", "<unk>"]
    letters = sorted({letter for text in corpus for letter in text} - {" "})
    longer = ["▁un", "believ", "ably", *(f"▁{word}" for word in _words(corpus))]
    pieces = [(piece, 0.0) for piece in special]
    pieces += [(piece, -8.0) for piece in ["▁", *letters] if piece not in longer]
    pieces += [(piece, -4.0 - 0.01 * number) for number, piece in enumerate(dict.fromkeys(longer))]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()  # type: ignore[assignment]
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    tokenizer.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", eos_token="</s>", extra_ids=0
    )


def tiny_tokenizer(family: str) -> PreTrainedTokenizerFast:
    corpus = [text for text, _ in labelled_rows(200, seed=7)]
    return {"bert": _wordpiece, "roberta": _bpe, "mpnet": _wordpiece, "t5": _unigram}[family](corpus)


def tiny_config(family: str, vocabulary: int, layers: int = LAYERS) -> PreTrainedConfig:
    size: dict[str, Any] = {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_attention_heads": 4,
    }
    if family == "bert":
        return BertConfig(**size, num_hidden_layers=layers, max_position_embeddings=128, pad_token_id=0)
    if family == "roberta":
        return RobertaConfig(**size, num_hidden_layers=layers, max_position_embeddings=130, pad_token_id=1)
    if family == "mpnet":
        return MPNetConfig(**size, num_hidden_layers=layers, max_position_embeddings=130, pad_token_id=0)
    return T5Config(
        vocab_size=vocabulary, d_model=32, d_ff=64, d_kv=8, num_heads=4, num_layers=layers,
        relative_attention_num_buckets=8, is_encoder_decoder=False, use_cache=False, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip


def tiny_model(family: str, layers: int = LAYERS) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """A classifier with random weights, larger than the usual start so that layers differ visibly."""
    classes = {
        "bert": BertForSequenceClassification,
        "roberta": RobertaForSequenceClassification,
        "mpnet": MPNetForSequenceClassification,
        "t5": T5ForTokenClassification,
    }
    tokenizer = tiny_tokenizer(family)
    set_seed(1)
    model = classes[family](tiny_config(family, len(tokenizer), layers))  # type: ignore[arg-type]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 and family != "t5":
                parameter.mul_(4)
            if "relative_attention_bias" in name:
                parameter.normal_(0, 2)
    return model.eval(), tokenizer


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """family -> folder of a saved tiny model, made once."""
    made: dict[str, Path] = {}

    def folder(family: str) -> Path:
        if family not in made:
            model, tokenizer = tiny_model(family)
            made[family] = tmp_path_factory.mktemp("models") / family
            model.save_pretrained(made[family])
            tokenizer.save_pretrained(made[family])
        return made[family]

    return folder


@contextmanager
def layers_skipped(model: PreTrainedModel, family: Family, kept: tuple[int, ...]) -> Iterator[None]:
    """The independent route to a cut: the parent itself, with dropped blocks handing on what they were given."""

    def skip(_module, args, output):
        return (args[0], *output[1:]) if isinstance(output, tuple) else args[0]

    handles = [block.register_forward_hook(skip) for i, block in enumerate(family.layers(model), 1) if i not in kept]
    yield
    for handle in handles:
        handle.remove()


def real_weights(name: str) -> Path:
    """The folder of a real model, or a skip that says how to get it."""
    places = [SHARED / "weights" / name, Path(__file__).parents[1] / ".cache" / "real-weights" / name]
    for place in places:
        if (place / "config.json").exists():
            return place
        if files := sorted(place.rglob("*.gguf")):
            return files[0]
    pytest.skip(f"the weights of {name} are not here; `make real-weights` fetches them")


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run the command line in this process, as `probescale ARGS` would."""
    from probescale.cli import main

    def invoke(*args: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["probescale", *map(str, args)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        said = capsys.readouterr()
        return Outcome(code, said.out, said.err)

    return invoke
