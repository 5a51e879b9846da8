"""What `extract` says when it is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from probescale.models.subsets import format_layers


def extract_summary(record: dict[str, Any], folder: Path) -> list[str]:
    kept, dropped = (format_layers(record[name]) for name in ("kept", "dropped"))
    after, before, proof = record["params"], record["params_original"], record["proof"]
    lines = [f"kept layers {kept}, dropped {dropped or 'none'}"]
    if "kept_decoder" in record:
        second = format_layers(record["dropped_decoder"]) or "none"
        lines.append(f"of the decoder: kept {format_layers(record['kept_decoder'])}, dropped {second}")
    if "kept_heads" in record:
        many = f"{len(record['kept_heads'][0])} of {record['heads_original']} heads"
        lines.append(f"kept {many} in every layer; probescale.json says which")
    lines.append(f"{after:,} of {before:,} parameters ({after / before:.1%}), {record['dtype']}")
    same = "to the bit" if proof["to_the_bit"] else f"within {proof['largest_difference']:.0e}"
    lines.append(
        f"proved in a fresh process: answers as {proof['route']}, {same}; the parameters on disk are as counted"
    )
    if proof["cache_difference"] is not None:
        lines.append(f"generation with and without the cache agrees within {proof['cache_difference']:.0e}")
    if modules := record.get("sentence_modules"):
        lines.append(f"still a sentence encoder: {', '.join(modules)} kept for sentence-transformers")
    return [*lines, f"{record['class']} in {folder}"]
