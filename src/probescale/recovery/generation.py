"""What generative models write: the original and the small one go on with the same beginnings of dev documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from probescale.models.loading import LoadedModel
from probescale.models.prompts import build_prompts
from probescale.models.token_speed import TokenSpeeds, measure_token_speeds
from probescale.recovery.harness import HarnessScore, run_harness
from probescale.tasks.documents import Documents
from probescale.utils.files import Record
from probescale.utils.progress import progress

NEW_TOKENS = 48
# Settings of the checkpoint, such as a repetition penalty, would hide what the small model has unlearned.
GREEDY: dict[str, Any] = {
    "do_sample": False,
    "num_beams": 1,
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "min_new_tokens": 0,
    "temperature": None,
    "top_p": None,
    "top_k": None,
}


class Writing(Record):
    """What one model writes after every prompt, and how fast."""

    prompts: tuple[str, ...]
    continuations: tuple[str, ...]  # greedy
    speeds: TokenSpeeds
    scores: tuple[HarnessScore, ...] = ()


class Generation(Record):
    """Continuations of the same prompts by both models, and how fast they write. Saved as generation.json."""

    prompts: tuple[str, ...]
    original: tuple[str, ...]
    small: tuple[str, ...]
    original_speeds: TokenSpeeds
    small_speeds: TokenSpeeds
    original_scores: tuple[HarnessScore, ...] = ()  # on `task.harness`
    small_scores: tuple[HarnessScore, ...] = ()

    @classmethod
    def of_both(cls, original: Writing, small: Writing) -> Generation:
        """Both models beside each other."""
        return cls(
            prompts=original.prompts,
            original=original.continuations,
            small=small.continuations,
            original_speeds=original.speeds,
            small_speeds=small.speeds,
            original_scores=original.scores,
            small_scores=small.scores,
        )


def measure_writing(
    original: LoadedModel, model: LoadedModel, dev: Documents, length: int, harness: Sequence[str] = ()
) -> Writing:
    """Let a model go on with beginnings of dev documents, time it beside the original, and score it on tasks."""
    longest = model.family.longest_input(model.model.config)
    prompts = build_prompts(model.tokenizer, dev, longest - 1 if longest else length)
    written: list[str] = []
    with torch.inference_mode(), progress("writing", len(prompts)) as advance:
        for prompt in prompts:
            written.append(_write(model, prompt, min(NEW_TOKENS, (longest or len(prompt) + NEW_TOKENS) - len(prompt))))
            advance(1)
    return Writing(
        prompts=tuple(str(model.tokenizer.decode(prompt, skip_special_tokens=True)) for prompt in prompts),
        continuations=tuple(written),
        speeds=measure_token_speeds(original, model, length),
        scores=run_harness(model, harness) if harness else (),
    )


def _write(model: LoadedModel, prompt: list[int], tokens: int) -> str:
    """The likeliest continuation, token by token, up to the end token."""
    ids = torch.tensor([prompt], device=model.model.device)
    padding = model.tokenizer.pad_token_id
    generator: Any = model.model
    written = generator.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, pad_token_id=padding, **GREEDY
    )
    return str(model.tokenizer.decode(written[0, len(prompt) :], skip_special_tokens=True))
