"""Whether a fine-tuned model was trained for the labels of the data, and in which order it has them."""

from __future__ import annotations

import re
from collections.abc import Sequence

GENERIC = re.compile(r"label_(\d+)", re.IGNORECASE)  # what transformers calls labels that nobody named


def match_labels(of_model: Sequence[str], of_data: Sequence[str]) -> tuple[str, ...] | None:
    """The labels of the data in the model's order; None where they are not the same labels.

    Case does not matter. LABEL_0 is the same as a label that is called 0.

    >>> match_labels(["POSITIVE", "NEGATIVE"], ["negative", "positive"])
    ('positive', 'negative')
    >>> match_labels(["LABEL_0", "LABEL_1"], ["0", "1"])
    ('0', '1')
    >>> match_labels(["LABEL_0", "LABEL_1"], ["bad", "good"])
    """
    own = {_key(name): name for name in of_data}
    keys = [_key(name) for name in of_model]
    if len(own) < len(of_data) or len(set(keys)) < len(keys) or set(keys) != set(own):
        return None
    return tuple(own[key] for key in keys)


def _key(name: str) -> str:
    generic = GENERIC.fullmatch(name.strip())
    return generic[1] if generic else name.strip().casefold()
