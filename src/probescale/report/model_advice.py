"""Advice on a model before any work: what will not work, what to know, and a configuration to start from."""

from __future__ import annotations

from collections.abc import Iterator

from probescale.config import RunConfig
from probescale.errors import UserError
from probescale.models.architecture import Architecture
from probescale.models.attention_heads import head_group_size, possible_head_counts, why_heads_are_fixed
from probescale.models.heads import HEADS, stock_class_name
from probescale.models.parameters import Parameters
from probescale.selection.budget import parse_budget
from probescale.selection.constraints import Constraints
from probescale.selection.select import select
from probescale.tasks.kinds import KINDS
from probescale.utils.yaml_files import parse_section, to_yaml


def list_problems(architecture: Architecture) -> Iterator[str]:
    """What does not work with this model, and why."""
    family, config = architecture.family, architecture.config
    if reason := family.layer_1_stays(config):
        yield f"removing layer 1: {reason}"
    for head, about in HEADS.items():
        if stock_class_name(family, config, head) is None:
            yield f"a head for {about}: transformers has no such class for {config.model_type}"
    if family.detected:
        yield "probing attention, feed-forward parts and heads: their places in a layer are unknown for this family"
    for name, kind in KINDS.items():
        if stock_class_name(family, config, kind.head) is None:
            yield f"`probescale run` with `task.kind: {name}`: it needs a head for {HEADS[kind.head]}"


def list_notes(architecture: Architecture, parameters: Parameters) -> Iterator[str]:
    """What is useful to know about this model."""
    family = architecture.family
    if family.mean_of_token_logits:
        yield "A text's logits are the mean of its tokens' logits: transformers has no sentence head for this model."
    if family.decoder is not None:
        yield "`run` selects among the encoder's layers; `extract --keep-decoder` removes layers of the decoder."
    if family.pooling == "last":
        yield "A decoder: a text is classified at its last token. Without a padding token, the end token is used."
    yield (
        f"The embeddings are {parameters.embeddings / parameters.total:.0%} of the parameters: with a single layer the "
        f"model is {parameters.total / parameters.minimum:.1f} times smaller."
    )
    yield _describe_head_cuts(architecture)
    yield (
        "An attention or feed-forward part cannot be left out alone: the classes of transformers have no layers "
        "without one of them."
    )


def _describe_head_cuts(architecture: Architecture) -> str:
    """Whether attention heads can be removed, and how many can be kept."""
    family, config = architecture.family, architecture.config
    if reason := why_heads_are_fixed(family, config):
        return f"Attention heads cannot be removed: {reason}."
    *fewer, total = map(str, possible_head_counts(config))
    size = head_group_size(config)
    together = f" in groups of {size} that share keys and values" if size > 1 else ""
    alike = " (of the encoder alone, the same ones in all layers)" if family.stack.first_block_only else ""
    return f"Attention heads can be removed{together}{alike}: `extract --heads` keeps {', '.join(fewer)} of {total}."


def write_starting_config(architecture: Architecture, parameters: Parameters) -> str:
    """YAML of a configuration that runs once train.csv and dev.csv exist."""
    longest = architecture.family.longest_input(architecture.config) or 128
    half = {"budget": "50%"} if _fits("50%", parameters) else {"k": max(1, architecture.layers // 2)}
    config = parse_section(
        {
            "model": {"source": architecture.source, "max_length": min(128, longest)},
            "task": {"train": "train.csv", "dev": "dev.csv"},
            "selection": half,
        },
        RunConfig,
    )
    comment = "# probescale run this.yaml --out runs/mine\n# train.csv and dev.csv: columns text and label\n"
    return comment + to_yaml(config, only_set=True)


def _fits(budget: str, parameters: Parameters) -> bool:
    try:
        return select([0.0] * len(parameters.layers), Constraints(parse_budget(budget), parameters)).k > 0
    except UserError:
        return False
