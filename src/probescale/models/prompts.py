"""Prompts for a generative model: beginnings of documents, and what users of conversations say first."""

from __future__ import annotations

from typing import cast

from transformers import PreTrainedTokenizerBase

from probescale.models.packing import apply_template, find_prefix
from probescale.tasks.documents import ANSWERS, Chat, Documents
from probescale.tasks.sampling import spread

PROMPTS = 4  # as many as a person reads
PROMPT_CHARACTERS = 150  # of a text, about: not tokens, so that models with other tokens go on with the same words


def build_prompts(tokenizer: PreTrainedTokenizerBase, documents: Documents, longest: int) -> list[list[int]]:
    """The tokens of a few prompts, from documents all over the data; those longer than `longest` are left out."""
    numbers = spread(len(documents), PROMPTS)
    if documents.chats is not None:
        prompts = [_begin_chat(tokenizer, documents.chats[number]) for number in numbers]
    else:
        prompts = [_begin_text(tokenizer, documents.texts[number]) for number in numbers]
    return [prompt for prompt in prompts if 0 < len(prompt) <= longest]


def _begin_text(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """The first words of a text, at most half of it: there is something left to go on with."""
    most = min(PROMPT_CHARACTERS, -(-len(text) // 2))
    words = text[:most].rpartition(" ")[0] or text[:most]  # no word is cut; a text without spaces is
    ids = cast("list[int]", tokenizer(words, add_special_tokens=False, verbose=False)["input_ids"])
    return [*find_prefix(tokenizer), *ids]


def _begin_chat(tokenizer: PreTrainedTokenizerBase, chat: Chat) -> list[int]:
    """A conversation up to the first answer, in the chat template."""
    first = next(place for place, (role, _) in enumerate(chat) if role == ANSWERS)
    messages = [{"role": role, "content": content} for role, content in chat[:first]]
    return apply_template(tokenizer, messages, add_generation_prompt=True) if messages else []
