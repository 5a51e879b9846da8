"""Notes on what `model.max_length` cuts off, which no metric shows."""

from __future__ import annotations

import numpy as np

from probescale.errors import UserError
from probescale.models.loading import LoadedModel
from probescale.models.packing import pack
from probescale.recovery.inputs import build_inputs
from probescale.tasks.data import Data
from probescale.tasks.documents import Documents
from probescale.tasks.sampling import spread

LOOKED_AT = 500  # texts, from all over the data
LONGEST = 8192  # tokens that are counted of a text
WORTH_SAYING = 0.05  # share of texts that are cut, or of answers that are lost


def describe_cut(loaded: LoadedModel, train: Data, max_length: int) -> str | None:
    """A sentence about texts that are cut, where these are not few. UserError where nothing is left to learn."""
    some = train.take(spread(len(train), LOOKED_AT))
    if isinstance(some, Documents):
        return None if some.chats is None else _describe_lost_answers(loaded, some, max_length)
    lengths = build_inputs(loaded.tokenizer, some, LONGEST).tokens.lengths
    share = float((lengths > max_length).mean())
    if share < WORTH_SAYING:
        return None
    return (
        f"{share:.0%} of the texts have more than {max_length} tokens, of which only the first {max_length} are read, "
        f"in training and evaluation; {_suggest(loaded, float(np.quantile(lengths, 0.95)), max_length)}"
    )


def _describe_lost_answers(loaded: LoadedModel, some: Documents, max_length: int) -> str | None:
    """The same for conversations, whose answers are learned."""
    blocks = pack(loaded.tokenizer, some, max_length)
    lengths = pack(loaded.tokenizer, some, LONGEST).tokens.lengths
    advice = _suggest(loaded, float(np.quantile(lengths, 0.95)), max_length)
    if not len(blocks.targets):
        raise UserError(
            f"no answer begins within the first {max_length} tokens of its conversation, which are all that is read",
            field="model.max_length",
            hint=f"{advice}; or give shorter conversations",
        )
    lost = 1 - blocks.row_bytes.sum() / max(sum(len(text.encode()) for text in some.learned), 1)
    if lost < WORTH_SAYING:
        return None
    return f"{lost:.0%} of the answers lie beyond the first {max_length} tokens and are not learned; {advice}"


def _suggest(loaded: LoadedModel, wanted: float, max_length: int) -> str:
    """What to set, as far as the model can read."""
    longest = loaded.family.longest_input(loaded.model.config)
    better = min(int(2 ** np.ceil(np.log2(max(wanted, 2)))), longest or LONGEST, LONGEST)
    if better <= max_length:
        return "the model cannot read more"
    return f"model.max_length: {better} (--set model.max_length={better}) reads more, and takes longer"
