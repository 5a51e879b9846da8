"""What `probescale doctor` prints: an examination of a model."""

from __future__ import annotations

from probescale.models.heads import HEADS
from probescale.report.examination import UNUSABLE, Examination
from probescale.report.table import Table


def doctor_page(examination: Examination) -> list[Table | str]:
    """Tables and lines, from top to bottom."""
    page: list[Table | str] = [_facts(examination), "", _parameters(examination), "", _heads(examination)]
    page += ["", "Does not work"] + [f"- {line}" for line in examination.problems or ("no known problem",)]
    page += ["", "Good to know"] + [f"- {line}" for line in examination.notes]
    if proofs := examination.tried:
        page += ["", f"Proved: {proofs.passed} of {proofs.cuts} cuts of a tiny model of this architecture"]
        page += [f"- {line}" for line in proofs.failures]
    return [*page, "", "A configuration to start from", "", examination.start_from.rstrip()]


def _facts(examination: Examination) -> Table:
    """Where the layers are, input length, poolings, tied weights, weight files."""
    how = "layers detected" if examination.detected else "built in"
    at = f"{examination.layers} at {examination.layers_at}"
    rows = [("family", f"{examination.family} ({how}), model type {examination.model_type}"), ("layers", at)]
    if examination.decoder_layers:
        rows.append(("decoder", f"{examination.decoder_layers} at {examination.decoder_at}"))
    if all(examination.parts_at):
        rows.append(("in a layer", "attention {}, feed-forward {}".format(*examination.parts_at)))
    longest = "any length" if examination.longest_input is None else f"{examination.longest_input:,} tokens"
    ties = "; ".join(" = ".join(names) for names in examination.tied) or "none"
    rows += [
        ("longest input", longest),
        ("poolings", f"{', '.join(examination.poolings)} (auto: {examination.poolings[0]})"),
        ("tied weights", ties),
        ("weights", examination.weights),
    ]
    return Table(f"{examination.model}: {_verdict(examination)}", ("", ""), tuple(rows), words=2)


def _verdict(examination: Examination) -> str:
    if examination.tried and examination.tried.failures:
        return "not every cut can be proved"
    return "supported architecture, but this folder is not usable" if examination.weights == UNUSABLE else "supported"


def _parameters(examination: Examination) -> Table:
    """Parameters by module."""
    total = examination.parameters.total
    rows = [(name, f"{count:,}", f"{count / total:.1%}") for name, count in examination.components.items()]
    sizes = sorted(set(examination.parameters.layers))
    per_layer = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    rows += [("each layer", per_layer, f"{sizes[-1] / total:.1%}"), ("all", f"{total:,}", "100.0%")]
    return Table("Parameters, without a head", ("part", "parameters", "share"), tuple(rows))


def _heads(examination: Examination) -> Table:
    """The stock class for each kind of head."""
    rows = [(head, about, examination.heads[head] or "none in transformers") for head, about in HEADS.items()]
    return Table("Heads", ("head", "answers", "stock class"), tuple(rows), words=3)
