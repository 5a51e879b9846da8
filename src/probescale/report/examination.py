"""Is this model supported? Everything that can be said of a model before work starts, and a configuration to start."""

from __future__ import annotations

from collections.abc import Iterator

from transformers import PreTrainedModel

from probescale.config import WORD_POOLINGS, RunConfig
from probescale.errors import UserError
from probescale.models.architecture import Architecture, read_architecture
from probescale.models.attention_heads import head_group_size, possible_head_counts, why_heads_are_fixed
from probescale.models.counting import count_parameters
from probescale.models.family import backbone
from probescale.models.heads import HEADS, build_on_meta, stock_class_name
from probescale.models.loading import check_local_model, weight_files
from probescale.models.parameters import Parameters
from probescale.selection.budget import parse_budget
from probescale.selection.constraints import Constraints
from probescale.selection.select import select
from probescale.utils.files import Record, format_size
from probescale.utils.sources import fetch_model_folder, is_local
from probescale.utils.yaml_files import parse_section, to_yaml

UNUSABLE = "not usable"


class ProofSummary(Record):
    """A tiny model of the same build, cut and proved."""

    cuts: int
    passed: int
    failures: tuple[str, ...]


class Examination(Record):
    model: str
    origin: str  # where the config came from
    model_type: str
    family: str
    detected: bool  # its layers were found, not described
    layers: int
    layers_at: str
    decoder_layers: int
    decoder_at: str
    parts_at: tuple[str, str]  # attention and feed-forward part in a layer; empty: not described
    longest_input: int | None
    parameters: Parameters
    components: dict[str, int]  # module of the bare model -> parameters
    tied: tuple[tuple[str, ...], ...]  # names that are one tensor, with the language modelling head
    poolings: tuple[str, ...]  # the first is what `auto` means
    heads: dict[str, str | None]  # head -> stock class
    weights: str
    problems: tuple[str, ...]  # what would not work, and why
    notes: tuple[str, ...]
    tried: ProofSummary | None
    start_from: str  # YAML


def examine(source: str, revision: str | None = None, *, prove: bool = False) -> Examination:
    what = read_architecture(source, revision)
    family, config = what.family, what.config
    bare = build_on_meta(family, config, "none", field="MODEL")
    parameters = count_parameters(bare, family)
    heads = {head: stock_class_name(family, config, head) for head in HEADS}
    decoder = family.decoder_layers(build_on_meta(family, config, "lm")) if heads["lm"] and family.decoder else None
    weights, faults = _weights(what)
    return Examination(
        model=source,
        origin=what.origin,
        model_type=config.model_type,
        family=family.name,
        detected=family.detected,
        layers=what.layers,
        layers_at=_in_class(bare, family.stack.blocks),
        decoder_layers=len(decoder) if decoder is not None else 0,
        decoder_at=family.decoder.blocks if decoder is not None and family.decoder else "",
        parts_at=(family.stack.attention_output, family.stack.feed_forward_output),
        longest_input=family.longest_input(config),
        parameters=parameters,
        components=_components(bare),
        tied=_tied(build_on_meta(family, config, "lm")) if heads["lm"] else (),
        poolings=_poolings(what),
        heads=dict(heads),
        weights=weights,
        problems=(*faults, *_problems(what)),
        notes=tuple(_notes(what, parameters)),
        tried=_try(what) if prove else None,
        start_from=_start_from(what, parameters),
    )


def _in_class(model: PreTrainedModel, path: str) -> str:
    return f"{type(backbone(model)).__name__}.{path}"


def _components(model: PreTrainedModel) -> dict[str, int]:
    """Parameters of the bare model's parts, each tensor counted where it comes first."""
    seen: set[int] = set()
    found = {}
    for name, child in backbone(model).named_children():
        own = [p for p in child.parameters() if id(p) not in seen]
        seen |= {id(p) for p in own}
        if own:
            found[name] = sum(p.numel() for p in own)
    return found


def _tied(model: PreTrainedModel) -> tuple[tuple[str, ...], ...]:
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return tuple(tuple(group) for group in names.values() if len(group) > 1)


def _poolings(what: Architecture) -> tuple[str, ...]:
    own = what.family.pooling
    others = ["mean", "max", "last"] if own == "last" else ["mean", "max"]
    special = ["cls", "sep"] if own == "cls" else []
    return tuple(dict.fromkeys((own, *special, *others, *WORD_POOLINGS)))


def _weights(what: Architecture) -> tuple[str, list[str]]:
    """What lies in a local folder, and what is wrong with it."""
    if not is_local(what.source):
        return f"not looked at ({what.origin})", []
    folder = fetch_model_folder(what.source, field="MODEL")
    try:
        files = weight_files(folder, allow_pickle=False, field="weights")
        check_local_model(what.source, field="MODEL")
    except UserError as error:
        return UNUSABLE, [f"{error.message}; {error.hint}" if error.hint else error.message]
    stored = str(getattr(what.config, "dtype", None) or "float32").removeprefix("torch.")
    stored = "quantised, computed in float32" if files[0].suffix == ".gguf" else stored
    size = format_size(sum(path.stat().st_size for path in files))
    return f"{len(files)} file{'s' if len(files) > 1 else ''} ({files[0].suffix[1:]}, {stored}), {size}", []


def _problems(what: Architecture) -> Iterator[str]:
    family, config = what.family, what.config
    if reason := family.layer_1_stays(config):
        yield f"cuts without layer 1 at the front: {reason}"
    for head, about in HEADS.items():
        if stock_class_name(family, config, head) is None:
            yield f"a head for {about}: transformers has no such class for {config.model_type}"
    if family.detected:
        yield "probing attention, feed-forward parts and heads: nobody described where they are in a layer"
    if stock_class_name(family, config, "sentence") is None:
        yield "`probescale run`: it trains a sentence classifier"


def _notes(what: Architecture, parameters: Parameters) -> Iterator[str]:
    family = what.family
    if family.mean_of_token_logits:
        yield "A text is answered by the mean of its tokens' logits: no stock class puts a sentence head on it."
    if family.decoder is not None:
        yield "`run` selects among the encoder's layers; `extract --keep-decoder` cuts the decoder too."
    if family.pooling == "last":
        yield "A decoder: a text is read at its last token; where there is no padding token, the end token serves."
    yield (
        f"The embeddings are {parameters.embeddings / parameters.total:.0%} of the parameters: with a single layer it "
        f"is {parameters.total / parameters.minimum:.1f} times smaller."
    )
    yield _about_heads(what)
    yield (
        "Attention or feed-forward parts cannot be left out alone: the stock class has no place for a layer without "
        "them."
    )


def _about_heads(what: Architecture) -> str:
    """Whether attention heads can be dropped, and how many."""
    family, config = what.family, what.config
    if reason := why_heads_are_fixed(family, config):
        return f"Attention heads cannot be dropped: {reason}."
    *fewer, all_of_them = map(str, possible_head_counts(config))
    size = head_group_size(config)
    together = f" in groups of {size}, which share keys and values" if size > 1 else ""
    alike = ", of the encoder alone, the same ones in all layers" if family.stack.first_block_only else ""
    return (
        f"Attention heads can be dropped{together}{alike}: `extract --heads` keeps {', '.join(fewer)} of {all_of_them}."
    )


def _try(what: Architecture) -> ProofSummary:
    from probescale.models.rehearsal import rehearse
    from probescale.utils.progress import spinner

    with spinner("cutting a tiny model of the same build"):
        (trials,) = rehearse([(what.config, what.family)])
    failures = [f"{t.head}, {t.cut}: {getattr(t.outcome, 'message', t.outcome)}" for t in trials if not t.passed]
    return ProofSummary(cuts=len(trials), passed=len(trials) - len(failures), failures=tuple(failures))


def _start_from(what: Architecture, parameters: Parameters) -> str:
    """A configuration that runs as soon as the two files are there."""
    longest = what.family.longest_input(what.config) or 128
    half = {"budget": "50%"} if _fits("50%", parameters) else {"k": max(1, what.layers // 2)}
    config = parse_section(
        {
            "model": {"source": what.source, "max_length": min(128, longest)},
            "task": {"train": "train.csv", "dev": "dev.csv"},
            "selection": half,
        },
        RunConfig,
    )
    head = "# probescale run this.yaml --out runs/mine\n# train.csv and dev.csv: columns text and label\n"
    return head + to_yaml(config, only_set=True)


def _fits(budget: str, parameters: Parameters) -> bool:
    try:
        return select([0.0] * len(parameters.layers), Constraints(parse_budget(budget), parameters)).k > 0
    except UserError:
        return False
