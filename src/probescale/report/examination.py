"""Is this model supported? `examine` collects what is known of a model before any work."""

from __future__ import annotations

from transformers import PreTrainedModel

from probescale.config import WORD_POOLINGS
from probescale.errors import UserError
from probescale.models.architecture import Architecture, read_architecture
from probescale.models.checkpoint import refuse_not_finite_files, weight_files
from probescale.models.counting import count_parameters
from probescale.models.family import backbone
from probescale.models.heads import HEADS, build_on_meta, stock_class_name
from probescale.models.loading import check_local_model
from probescale.models.parameters import Parameters
from probescale.report.model_advice import list_notes, list_problems, write_starting_config
from probescale.utils.files import Record, format_size
from probescale.utils.sources import fetch_model_folder, is_local

UNUSABLE = "not usable"


class ProofSummary(Record):
    """How many cuts of a tiny model with the same architecture were proved."""

    cuts: int
    passed: int
    failures: tuple[str, ...]


class Examination(Record):
    """What `probescale doctor` reports, and prints with --json."""

    model: str
    origin: str  # where the config came from
    model_type: str
    family: str
    detected: bool  # the family is not built in: its layers were detected
    layers: int
    layers_at: str
    decoder_layers: int
    decoder_at: str
    parts_at: tuple[str, str]  # attention and feed-forward part in a layer; empty: not known
    longest_input: int | None
    parameters: Parameters
    components: dict[str, int]  # module of the bare model -> parameters
    tied: tuple[tuple[str, ...], ...]  # names that share one tensor, in the model with a language modelling head
    poolings: tuple[str, ...]  # the first is what `auto` means
    heads: dict[str, str | None]  # head -> stock class
    weights: str
    problems: tuple[str, ...]  # what does not work, and why
    notes: tuple[str, ...]
    tried: ProofSummary | None
    start_from: str  # YAML of a configuration to start from


def examine(source: str, revision: str | None = None, *, prove: bool = False) -> Examination:
    """Examine a model by its config, without loading it. `prove`: also cut a tiny model of the same architecture."""
    architecture = read_architecture(source, revision)
    family, config = architecture.family, architecture.config
    bare = build_on_meta(family, config, "none", field="MODEL")
    parameters = count_parameters(bare, family)
    heads = {head: stock_class_name(family, config, head) for head in HEADS}
    decoder = family.decoder_layers(build_on_meta(family, config, "lm")) if heads["lm"] and family.decoder else None
    weights, faults = _describe_weights(architecture)
    return Examination(
        model=source,
        origin=architecture.origin,
        model_type=config.model_type,
        family=family.name,
        detected=family.detected,
        layers=architecture.layers,
        layers_at=f"{type(backbone(bare)).__name__}.{family.stack.blocks}",
        decoder_layers=len(decoder) if decoder is not None else 0,
        decoder_at=family.decoder.blocks if decoder is not None and family.decoder else "",
        parts_at=(family.stack.attention_output, family.stack.feed_forward_output),
        longest_input=family.longest_input(config),
        parameters=parameters,
        components=_components(bare),
        tied=_tied(build_on_meta(family, config, "lm")) if heads["lm"] else (),
        poolings=_poolings(architecture),
        heads=dict(heads),
        weights=weights,
        problems=(*faults, *list_problems(architecture)),
        notes=tuple(list_notes(architecture, parameters)),
        tried=_prove_cuts(architecture) if prove else None,
        start_from=write_starting_config(architecture, parameters),
    )


def _components(model: PreTrainedModel) -> dict[str, int]:
    """Parameters of every module of the bare model; a shared tensor counts where it comes first."""
    seen: set[int] = set()
    counts = {}
    for name, child in backbone(model).named_children():
        own = [p for p in child.parameters() if id(p) not in seen]
        seen |= {id(p) for p in own}
        if own:
            counts[name] = sum(p.numel() for p in own)
    return counts


def _tied(model: PreTrainedModel) -> tuple[tuple[str, ...], ...]:
    """Groups of names that share one parameter."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return tuple(tuple(group) for group in names.values() if len(group) > 1)


def _poolings(architecture: Architecture) -> tuple[str, ...]:
    """Poolings that suit the model, the family's own first."""
    own = architecture.family.pooling
    others = ["mean", "max", "last"] if own == "last" else ["mean", "max"]
    special = ["cls", "sep"] if own == "cls" else []
    return tuple(dict.fromkeys((own, *special, *others, *WORD_POOLINGS)))


def _describe_weights(architecture: Architecture) -> tuple[str, list[str]]:
    """The weight files of a local folder, and what is wrong with them."""
    if not is_local(architecture.source):
        return f"not checked ({architecture.origin})", []
    folder = fetch_model_folder(architecture.source, field="MODEL")
    try:
        files = weight_files(folder, allow_pickle=False, field="weights")
        check_local_model(architecture.source, field="MODEL")
        refuse_not_finite_files(files, folder, field="MODEL")
    except UserError as error:
        return UNUSABLE, [f"{error.message}; {error.hint}" if error.hint else error.message]
    stored = str(getattr(architecture.config, "dtype", None) or "float32").removeprefix("torch.")
    stored = "quantised, computed in float32" if files[0].suffix == ".gguf" else stored
    size = format_size(sum(path.stat().st_size for path in files))
    return f"{len(files)} file{'s' if len(files) > 1 else ''} ({files[0].suffix[1:]}, {stored}), {size}", []


def _prove_cuts(architecture: Architecture) -> ProofSummary:
    """Cut a tiny model of the same architecture in many ways, and prove every cut."""
    from probescale.models.rehearsal import rehearse
    from probescale.utils.progress import spinner

    with spinner("cutting a tiny model of the same architecture"):
        (rehearsals,) = rehearse([(architecture.config, architecture.family)])
    failures = [f"{t.head}, {t.cut}: {getattr(t.outcome, 'message', t.outcome)}" for t in rehearsals if not t.passed]
    return ProofSummary(cuts=len(rehearsals), passed=len(rehearsals) - len(failures), failures=tuple(failures))
