"""A tiny generative model that has learned a small language, and texts of that language."""

from __future__ import annotations

import functools
import json
import random
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

NAMES, VERBS = ("fox", "crow", "cat", "dog", "hen"), ("sees", "likes", "calls", "finds")
PLACES = ("in the wood", "on the tree", "at home", "by the sea")
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
LAYERS = 4
SPECIAL = ("<pad>", "<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>")


def sentences(count: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [
        f"the {draw.choice(NAMES)} {draw.choice(VERBS)} the {draw.choice(NAMES)} {draw.choice(PLACES)}."
        for _ in range(count)
    ]


def write_corpus(folder: Path, count: int = 600, seed: int = 0) -> Path:
    """A text file: lines of five sentences."""
    written, path = sentences(count, seed), folder / "corpus.txt"
    lines = [" ".join(written[first : first + 5]) for first in range(0, count, 5)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_other_text(path: Path, count: int = 120) -> Path:
    """A text file of another kind: sums, of which the decoder has learned nothing."""
    draw = random.Random(3)
    lines = [
        f"{draw.randint(10, 99)} + {draw.randint(10, 99)} makes a number, says no. {line}" for line in range(count)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def word_tokenizer(*, prefix: bool = False) -> PreTrainedTokenizerFast:
    """Words of the language and all bytes. `prefix`: texts begin with <s>."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    numbers = {token: number for number, token in enumerate([*SPECIAL, *alphabet])}
    tokenizer = Tokenizer(models.BPE(numbers, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    if prefix:
        from tokenizers import processors

        tokenizer.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 1)])  # type: ignore[assignment]
    own = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>",
        additional_special_tokens=list(SPECIAL[3:]),
    )  # fmt: skip
    own.chat_template = TEMPLATE
    return own


def merging_tokenizer() -> PreTrainedTokenizerFast:
    """Words of the language and of other texts, merged from bytes as GPT-2's are; with a chat template."""
    own = word_tokenizer()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=list(SPECIAL), initial_alphabet=alphabet)
    others = ["a quick question about numbers: which of them grows faster, and why?", "machines count sums quickly"]
    own.backend_tokenizer.train_from_iterator([*sentences(300, seed=7), *others * 50], trainer)
    return own


def save_merging_decoder(folder: Path, steps: int = 60) -> str:
    """The same model with the tokens of `merging_tokenizer`."""
    tokenizer = merging_tokenizer()
    model = build_decoder(len(tokenizer))
    _train(model, tokenizer, steps)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@functools.cache
def _trained_weights(steps: int) -> dict[str, torch.Tensor]:
    model = build_decoder()
    _train(model, word_tokenizer(), steps)
    return model.state_dict()


def _train(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, steps: int) -> None:
    ids = torch.tensor(tokenizer(" ".join(sentences(2000, seed=7)))["input_ids"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    draw = torch.Generator().manual_seed(0)
    for _ in range(steps):
        first = torch.randint(len(ids) - 65, (8,), generator=draw)
        batch = torch.stack([ids[start : start + 64] for start in first.tolist()])
        model(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def build_decoder(tokens: int = 263) -> LlamaForCausalLM:
    set_seed(0)
    config = LlamaConfig(
        vocab_size=tokens, hidden_size=32, intermediate_size=64, num_hidden_layers=LAYERS, num_attention_heads=2,
        max_position_embeddings=256, pad_token_id=0, bos_token_id=1, eos_token_id=2, tie_word_embeddings=True,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def save_decoder(folder: Path, steps: int = 150) -> str:
    """A folder with the trained model, its tokenizer with a chat template, and generation settings of its own."""
    model = build_decoder()
    model.load_state_dict(_trained_weights(steps))
    model.generation_config.repetition_penalty = 1.25
    model.save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    return str(folder)
