"""Texts that a generative model goes on with: lines as they are, or questions in the chat template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from probescale.deploy.inference import InferenceModel
from probescale.deploy.texts import Line
from probescale.errors import UserError
from probescale.models.packing import apply_template
from probescale.tasks.kinds import Rendered


@dataclass(frozen=True)
class WritingOptions:
    """How a generative model goes on with texts."""

    tokens: int = 64  # at most
    chat: bool = False  # texts are questions of a user, in the model's chat template


class Prompter:
    """Gives lines to a model that writes, and takes what it writes."""

    def __init__(self, model: InferenceModel, options: WritingOptions) -> None:
        self.model, self.options = model, options
        if options.chat and not getattr(model.tokenizer, "chat_template", None):
            raise UserError(f"{model.name} has no chat template", field="--chat", hint="leave it out")

    def go_on(self, line: Line) -> tuple[Rendered | None, str]:
        """The continuation of a line, or why there is none."""
        if line.pair is not None:
            raise UserError(f"{self.model.name} goes on with one text", field="--pair", hint="leave it out")
        assert self.model.write is not None
        prompt, longest = self._encode(line.text), self.model.max_length
        if not 0 < len(prompt) < longest:
            return None, f"{len(prompt):,} tokens, and the model takes from 1 to {longest - 1:,}"
        written = self.model.write(prompt, min(self.options.tokens, longest - len(prompt)))
        text = str(self.model.tokenizer.decode(written, skip_special_tokens=True))
        return Rendered({"continuation": text}, text, text), ""

    def _encode(self, text: str) -> list[int]:
        if self.options.chat:
            question = [{"role": "user", "content": text}]
            return apply_template(self.model.tokenizer, question, add_generation_prompt=True)
        return cast("list[int]", self.model.tokenizer(text, verbose=False)["input_ids"])
