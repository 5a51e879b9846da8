"""GGUF: a converter from outside runs only on the user's word, and what it writes is read back before it is kept."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from helpers.decoders import save_decoder
from helpers.gguf_writer import write_checkout
from helpers.real import real_weights
from probescale.deploy.export import export
from probescale.deploy.gguf_converter import PACKAGE
from probescale.errors import ProofFailed, UserError
from probescale.utils.source_packages import SourcePackage, unpack_parts

pytestmark = pytest.mark.slow
LLAMA_CPP = "PROBESCALE_LLAMA_CPP"  # names a checkout of llama.cpp, or says pypi


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(save_decoder(tmp_path_factory.mktemp("decoder") / "model", steps=20))


def test_the_file_says_what_the_model_says(decoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_TOKEN", "not for others")
    checkout = str(write_checkout(tmp_path / "llama.cpp"))
    record = export(str(decoder), tmp_path / "out", "gguf", converter=checkout)
    small = export(str(decoder), tmp_path / "small", "gguf", int8=True, converter=checkout)
    assert record.largest_difference < 1e-4
    assert small.int8
    ids = AutoTokenizer.from_pretrained(tmp_path / "out")("the fox sees", return_tensors="pt")["input_ids"]
    wanted = AutoModelForCausalLM.from_pretrained(decoder)(input_ids=ids).logits
    whole, rounded = (
        AutoModelForCausalLM.from_pretrained(tmp_path / name, gguf_file="model.gguf")(input_ids=ids).logits
        for name in ("out", "small")
    )
    torch.testing.assert_close(whole, wanted, atol=1e-4, rtol=1e-4)
    assert 0 < (rounded - wanted).abs().max() < 0.2
    assert (tmp_path / "small" / "model.gguf").stat().st_size < 0.5 * (tmp_path / "out" / "model.gguf").stat().st_size


def test_bits_per_byte_are_compared(text_run: Path, tmp_path: Path, cli):
    checkout = write_checkout(tmp_path / "llama.cpp")
    command = ("export", text_run / "run", "--to", "gguf", "--int8", "--converter", checkout)
    done = cli(*command, "--out", tmp_path / "out")
    assert done.code == 0, done.err
    assert "bits_per_byte on dev: " in done.out
    strict = cli(*command, "--out", tmp_path / "strict", "--tolerance", 0)
    assert strict.code == 0 or ("by more than 0" in strict.err and not (tmp_path / "strict").exists())
    written = cli("predict", tmp_path / "out", text_run / "second.txt")
    assert written.code == 2
    assert "is a file for llama.cpp" in written.err


def test_a_wrong_file_is_not_kept(decoder: Path, tmp_path: Path):
    checkout = write_checkout(tmp_path / "llama.cpp", factor=1.2)
    with pytest.raises(ProofFailed, match="outputs differ from the model's"):
        export(str(decoder), tmp_path / "out", "gguf", converter=str(checkout))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("fails", "says"),
    [
        ("BPE pre-tokenizer was not recognized - update it", "does not know this tokenizer"),
        ("No module named 'sentencepiece'", "needs a package that is not installed: sentencepiece"),
        ("Model Xyz is not supported", "converter failed: Model Xyz is not supported"),
    ],
)
def test_a_converter_that_fails_is_explained(decoder: Path, tmp_path: Path, fails: str, says: str):
    checkout = write_checkout(tmp_path / "llama.cpp", fails=fails)
    with pytest.raises(UserError, match=says):
        export(str(decoder), tmp_path / "out", "gguf", converter=str(checkout))
    assert not (tmp_path / "out").exists()


def test_nothing_runs_without_the_users_word(decoder: Path, tmp_path: Path, cli, model_folder):
    silent = cli("export", decoder, "--to", "gguf", "--out", tmp_path / "out")
    assert silent.code == 2
    assert "runs only if you name it" in silent.err
    assert "--converter pypi" in " ".join(silent.err.split())
    wrong = cli("export", decoder, "--to", "gguf", "--out", tmp_path / "out", "--converter", tmp_path)
    assert wrong.code == 2
    assert "has no convert_hf_to_gguf.py" in wrong.err
    checkout = write_checkout(tmp_path / "llama.cpp")
    encoder = cli("export", model_folder("bert"), "--to", "gguf", "--out", tmp_path / "out", "--converter", checkout)
    assert encoder.code == 2
    assert "GGUF is for generative models" in encoder.err
    needless = cli("export", model_folder("bert"), "--out", tmp_path / "out", "--converter", checkout)
    assert needless.code == 2
    assert "onnx needs no converter" in needless.err
    (decoder / "modeling.py").write_text("print('mine')", encoding="utf-8")
    code = cli("export", decoder, "--to", "gguf", "--out", tmp_path / "out", "--converter", checkout)
    (decoder / "modeling.py").unlink()
    assert code.code == 2
    assert "has code of its own (modeling.py)" in code.err
    assert not (tmp_path / "out").exists()


def test_only_the_needed_files_are_unpacked(tmp_path: Path):
    package = SourcePackage("toy", "1", "0" * 64, "vendor/tool", ("run.py", "lib"))
    archive, files = tmp_path / "toy.tar.gz", ("vendor/tool/run.py", "vendor/tool/lib/a.py", "setup.py")
    with tarfile.open(archive, "w:gz") as opened:
        for name in (*files, "vendor/tool/lib/../../../../stolen.py"):
            member = tarfile.TarInfo(f"toy-1/{name}")
            member.size = 2
            opened.addfile(member, io.BytesIO(b"a\n"))
        link = tarfile.TarInfo("toy-1/vendor/tool/lib/link.py")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        opened.addfile(link)
    unpack_parts(archive, package, tmp_path / "out", field="--converter")
    found = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert found == {"run.py", "lib/a.py"}
    assert {path.name for path in tmp_path.iterdir()} == {"toy.tar.gz", "out"}
    archive.write_bytes(archive.read_bytes()[:40])
    with pytest.raises(UserError, match="cannot be unpacked"):
        unpack_parts(archive, package, tmp_path / "again", field="--converter")
    assert len(PACKAGE.sha256) == 64


@pytest.mark.real
@pytest.mark.skipif(LLAMA_CPP not in os.environ, reason=f"{LLAMA_CPP} names no checkout of llama.cpp")
def test_llama_cpp_converts_tokenizers_that_it_knows(decoder: Path, tmp_path: Path):
    """A tiny model with the tokenizer of a real one; the tokenizer of the tests is unknown, and refused by name."""
    pytest.importorskip("sentencepiece")
    converter, known = os.environ[LLAMA_CPP], AutoTokenizer.from_pretrained(real_weights("stories"))
    config = LlamaConfig(
        vocab_size=len(known), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=256, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    for part in (LlamaForCausalLM(config), known):
        part.save_pretrained(tmp_path / "model")
    record = export(str(tmp_path / "model"), tmp_path / "out", "gguf", int8=True, converter=converter)
    assert record.int8
    assert record.largest_difference < 1e-4
    with pytest.raises(UserError, match="does not know this tokenizer"):
        export(str(decoder), tmp_path / "unknown", "gguf", converter=converter)
