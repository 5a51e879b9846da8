"""Model heads: what each predicts, and which stock class has it."""

from __future__ import annotations

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel

from probescale.config import Head
from probescale.errors import UserError, first_line
from probescale.models.family import Family

HEADS: dict[Head, str] = {
    "none": "the model alone",
    "sentence": "one label per text",
    "token": "one label per token",
    "regression": "one number per text",
    "lm": "the next (or a hidden) token",
}
MOST_PARAMETERS = 10**15  # of a model; more is a mistake in its config
PROBLEM_TYPES = {"sentence": "single_label_classification", "regression": "regression"}  # as stock configs name them


def detect_head(model: PreTrainedModel, family: Family) -> Head:
    """The head of a loaded stock model, by its class; `none` for any head that answers neither texts nor tokens."""
    name, problem = type(model).__name__, model.config.problem_type
    by_token = name.endswith("ForTokenClassification")
    if name.endswith("ForSequenceClassification") or (by_token and family.mean_of_token_logits and problem is not None):
        return "regression" if problem == "regression" else "sentence"
    if family.is_decoder and model.get_output_embeddings() is not None:
        return "lm"
    return "token" if by_token else "none"


def stock_class_name(family: Family, config: PreTrainedConfig, head: Head) -> str | None:
    """The name of the stock class with this head for a model of this type; None where transformers has none."""
    from transformers.models.auto import modeling_auto as auto

    generation = auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
    causal, masked = auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    sentence = auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES  # T5 has no other
    if not family.mean_of_token_logits:
        sentence = auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
    names = {
        "none": {} if family.backbone_class != "AutoModel" else auto.MODEL_MAPPING_NAMES,
        "sentence": sentence,
        "token": auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
        "regression": sentence,
        "lm": generation if family.decoder else causal if family.pooling == "last" else masked,
    }[head]
    name = names.get(config.model_type, family.backbone_class if head == "none" else None)
    return name[0] if isinstance(name, tuple) else name


def find_stock_class(family: Family, config: PreTrainedConfig, head: Head, *, field: str) -> type[PreTrainedModel]:
    """The stock class with this head, or an error where transformers has none."""
    name = stock_class_name(family, config, head)
    if name is None:
        raise UserError(
            f'transformers has no class for "{config.model_type}" with the head "{head}"',
            field=field,
            hint="see `probescale doctor` for the heads that this model can have",
        )
    return getattr(transformers, name)


def build_on_meta(
    family: Family, config: PreTrainedConfig, head: Head = "none", classes: int = 2, *, field: str = "model.source"
) -> PreTrainedModel:
    """The stock model on the meta device: it has shapes but takes no memory."""
    stock = find_stock_class(family, config, head, field=field)
    names = {number: str(number) for number in range(1 if head == "regression" else classes)}
    labels = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    config = type(config).from_dict({**config.to_dict(), **labels})
    config._attn_implementation = "eager"  # so that every matrix product is counted
    try:
        with torch.device("meta"):
            model = stock(config).eval()
    except Exception as error:  # whatever the model class raises for sizes that do not fit together
        raise UserError(f"no model can be built from its config: {first_line(error)}", field=field) from error
    if (count := sum(parameter.numel() for parameter in model.parameters())) > MOST_PARAMETERS:
        raise UserError(f"its config describes {count:.1e} parameters", field=field, hint="correct the sizes in it")
    return model
