"""From a checkpoint to a smaller one by hand: load, cut, prove, write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from probescale.files import check_output_folder, whole_folder, write_json
from probescale.models.families import family_of
from probescale.models.loading import load_as_saved, read_config
from probescale.models.memory import give_back
from probescale.models.parent import parents_answers
from probescale.models.proof import folder_check
from probescale.models.surgery import RECORD, extract, prove, record_of, write_model
from probescale.progress import waiting
from probescale.provenance import provenance


def cut_to_folder(
    source: str,
    kept: Sequence[int],
    folder: Path | str,
    *,
    decoder: Sequence[int] | None = None,
    encoder_only: bool = False,
    revision: str | None = None,
    allow_pickle: bool = False,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Cut a checkpoint, prove the cut, and write it; returns what probescale.json says.

    Memory: the parent's weights once, as they are stored. The cut shares them, and both are gone before the proof.
    """
    folder = check_output_folder(Path(folder), overwrite=overwrite, markers=[RECORD])
    config = read_config(source, revision, field="MODEL")
    family_of(config, field="MODEL").check_kept(kept, config)  # before anything large is fetched
    parent = load_as_saved(source, revision, encoder_only=encoder_only, allow_pickle=allow_pickle, dtype="auto")
    with waiting("asking the parent"):
        child = extract(parent, kept, decoder, share=True)
        wanted = parents_answers(parent.model, parent.family, kept, decoder)
    record: dict[str, Any] = record_of(parent, kept, child, decoder) | {"provenance": provenance(parent)}
    with whole_folder(folder) as partial:
        check = folder_check(child, wanted, record["params"], partial)
        write_model(child, partial)
        del parent, child
        give_back()
        record["proof"] = prove(check).model_dump(mode="json")
        write_json(partial / RECORD, record)
    return record
