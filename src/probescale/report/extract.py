"""What `probescale extract` prints when it is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from probescale.models.subsets import format_layers


def extract_summary(record: dict[str, Any], folder: Path) -> list[str]:
    """Lines about what was kept, how large it is, and how the cut was proved."""
    kept, dropped = (format_layers(record[name]) for name in ("kept", "dropped"))
    after, before, proof = record["params"], record["params_original"], record["proof"]
    lines = [f"kept layers {kept}, dropped {dropped or 'none'}"]
    if "kept_decoder" in record:
        second = format_layers(record["dropped_decoder"]) or "none"
        lines.append(f"decoder: kept {format_layers(record['kept_decoder'])}, dropped {second}")
    if "kept_heads" in record:
        heads = f"{len(record['kept_heads'][0])} of {record['heads_original']} heads"
        lines.append(f"kept {heads} in every layer (listed in probescale.json)")
    lines.append(f"{after:,} of {before:,} parameters ({after / before:.1%}), {record['dtype']}")
    accuracy = "bit for bit" if proof["to_the_bit"] else f"to within {proof['largest_difference']:.0e}"
    lines.append(
        f"proved in a fresh process: same outputs as {proof['route']}, {accuracy}; same parameter count on disk"
    )
    if proof["cache_difference"] is not None:
        lines.append(f"generation with and without the cache agrees to within {proof['cache_difference']:.0e}")
    if modules := record.get("sentence_modules"):
        lines.append(f"still a sentence encoder: {', '.join(modules)} kept for sentence-transformers")
    return [*lines, f"{record['class']} in {folder}"]
