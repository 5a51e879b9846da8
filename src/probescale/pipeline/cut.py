"""From a checkpoint to a smaller one by hand: load, cut, prove, write."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from probescale.errors import UserError
from probescale.models.attention_heads import check_head_count, choose_heads, keep_heads
from probescale.models.config_reading import read_config
from probescale.models.counting import count_parameters
from probescale.models.families import find_family
from probescale.models.loading import LoadedModel, load_as_saved
from probescale.models.memory import release_memory
from probescale.models.proof.comparison import prepare_proof, prove_folder
from probescale.models.proof.reference import compute_head_reference, compute_layer_reference
from probescale.models.saving import METADATA_FILE, MODEL_KIND, describe_cut, write_model
from probescale.models.sentence_encoder import check_modules, copy_modules, is_sentence_encoder
from probescale.models.surgery import keep_layers
from probescale.pipeline.provenance import provenance
from probescale.probing.score_files import load_scores
from probescale.probing.scores import ProbeScores
from probescale.utils.files import atomic_folder, write_json
from probescale.utils.outputs import check_output_folder
from probescale.utils.progress import spinner
from probescale.utils.resources import report_shortage
from probescale.utils.sources import fetch_model_folder

PROBE_HEADS = "`probescale probe CONFIG --set probing.granularity=[layer,head]` scores the heads of a model"


def cut_to_folder(
    source: str,
    kept: Sequence[int],
    folder: Path | str,
    *,
    decoder: Sequence[int] | None = None,
    heads: int | None = None,
    head_scores: Path | ProbeScores | None = None,
    encoder_only: bool = False,
    revision: str | None = None,
    allow_pickle: bool = False,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Cut a checkpoint, prove the cut, and write it; returns what probescale.json says.

    `heads`: how many every layer keeps, the best by `head_scores`, which are of the whole model.
    Memory: the parent's weights once, as they are stored. The cut shares them, and both are gone before the proof.
    """
    inputs = [source, *([head_scores] if isinstance(head_scores, Path) else [])]
    folder = check_output_folder(Path(folder), kind=MODEL_KIND, inputs=inputs, overwrite=overwrite)
    config = read_config(source, revision, field="MODEL")
    family = find_family(config, field="MODEL")
    kept = family.check_kept(kept, config)  # before anything large is fetched
    scores = _scores(heads, head_scores)
    chosen: dict[int, tuple[int, ...]] = {}  # layer -> its heads; empty: all of them
    if heads is not None and scores is not None:
        check_head_count(heads, family, config)
        rows = head_rows(scores, family.count_layers(config), config.num_attention_heads)
        chosen = dict(zip(kept, choose_heads([rows[layer - 1] for layer in kept], heads, family, config), strict=True))
    place = fetch_model_folder(source, revision, field="MODEL", allow_pickle=allow_pickle)
    encoder = place if is_sentence_encoder(place) else None
    if encoder:
        check_modules(encoder)
    parent = load_as_saved(
        source, revision, encoder_only=encoder_only, reads_texts=False, allow_pickle=allow_pickle, dtype="auto"
    )
    with spinner("running the original"):
        child = keep_layers(parent, kept, decoder, share=True)
        if chosen:
            child = keep_heads(child, [chosen[layer] for layer in kept], share=True)
            _check_same_model(scores, parent)
            wanted = compute_head_reference(parent.model, family, kept, chosen)
        else:
            wanted = compute_layer_reference(parent.model, family, kept, decoder)
    record: dict[str, Any] = describe_cut(parent, kept, child, decoder) | {"provenance": provenance(parent)}
    if chosen:
        record["params"] = count_parameters(child.model, family).total
        record["kept_heads"] = [list(chosen[layer]) for layer in kept]
        record["heads_original"] = config.num_attention_heads
    with report_shortage(folder), atomic_folder(folder, MODEL_KIND) as partial:
        check = prepare_proof(child, wanted, record["params"], partial)
        write_model(child, partial)
        del parent, child
        release_memory()
        record["proof"] = prove_folder(check).model_dump(mode="json")
        if encoder:
            record["sentence_modules"] = copy_modules(encoder, partial)
        write_json(partial / METADATA_FILE, record)
    return record


def _scores(heads: int | None, source: Path | ProbeScores | None) -> ProbeScores | None:
    """The scores by which heads are chosen; None where all heads stay."""
    if heads is not None and source is None:
        raise UserError("heads are chosen by their scores, and none are given", field="--scores", hint=PROBE_HEADS)
    if heads is None and source is not None:
        raise UserError("scores choose heads, and their number is not given", field="--heads", hint="say how many stay")
    if not isinstance(source, Path):
        return source
    try:
        return load_scores(source)
    except UserError as error:
        raise UserError(error.message, field="--scores", hint=PROBE_HEADS) from error


def head_rows(scores: ProbeScores, layers: int, heads: int) -> list[list[float]]:
    """The score of every head, layer 1 first: the sum over all probes, by their weights."""
    counted = {name: probe for name, probe in scores.probes.items() if probe.weight}
    if without := [name for name, probe in counted.items() if probe.heads is None]:
        raise UserError(f'probe "{without[0]}" has no scores of heads', field="--scores", hint=PROBE_HEADS)
    tables = [(probe.weight, probe.heads) for probe in counted.values() if probe.heads is not None]
    for _, table in tables:
        if len(table) != layers or {len(row) for row in table} != {heads}:
            raise UserError(
                f"scores of {len(table)} layers with {len(table[0]) if table else 0} heads are of another model: this "
                f"one has {layers} with {heads}",
                field="--scores",
                hint=PROBE_HEADS,
            )
    return [
        [math.fsum(weight * table[layer][head] for weight, table in tables) for head in range(heads)]
        for layer in range(layers)
    ]


def _check_same_model(scores: ProbeScores | None, parent: LoadedModel) -> None:
    made = scores.provenance if scores else {}
    if made.get("model_sha256", parent.fingerprint) != parent.fingerprint:
        message = f"the scores are of other weights than these, from {made.get('model')}"
        raise UserError(message, field="--scores", hint=PROBE_HEADS)
