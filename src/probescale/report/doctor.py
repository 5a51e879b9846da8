"""What the doctor says, for the terminal."""

from __future__ import annotations

from probescale.models.heads import HEADS
from probescale.report.examination import UNUSABLE, Examination
from probescale.report.table import Table


def doctor_page(found: Examination) -> list[Table | str]:
    page: list[Table | str] = [_facts(found), "", _parameters(found), "", _heads(found)]
    page += ["", "Would not work"] + [f"- {line}" for line in found.problems or ("nothing that is known",)]
    page += ["", "Good to know"] + [f"- {line}" for line in found.notes]
    if found.tried:
        page += ["", f"Tried: {found.tried.passed} of {found.tried.cuts} cuts of a tiny model of this build are proved"]
        page += [f"- {line}" for line in found.tried.failures]
    return [*page, "", "A configuration to start from", "", found.start_from.rstrip()]


def _facts(found: Examination) -> Table:
    how = "found by looking at the model" if found.detected else "described"
    at = f"{found.layers} at {found.layers_at}"
    rows = [("family", f"{found.family} ({how}), model type {found.model_type}"), ("layers", at)]
    if found.decoder_layers:
        rows.append(("decoder", f"{found.decoder_layers} at {found.decoder_at}"))
    if all(found.parts_at):
        rows.append(("in a layer", "attention {}, feed-forward {}".format(*found.parts_at)))
    longest = "any length" if found.longest_input is None else f"{found.longest_input:,} tokens"
    ties = "; ".join(" = ".join(names) for names in found.tied) or "none"
    rows += [
        ("longest input", longest),
        ("poolings", f"{', '.join(found.poolings)} (auto: {found.poolings[0]})"),
        ("tied weights", ties),
        ("weights", found.weights),
    ]
    return Table(f"{found.model}: {_verdict(found)}", ("", ""), tuple(rows), words=2)


def _verdict(found: Examination) -> str:
    if found.tried and found.tried.failures:
        return "not every cut can be proved"
    return "supported build, but this folder is not usable as it is" if found.weights == UNUSABLE else "supported"


def _parameters(found: Examination) -> Table:
    total = found.parameters.total
    rows = [(name, f"{count:,}", f"{count / total:.1%}") for name, count in found.components.items()]
    sizes = sorted(set(found.parameters.layers))
    each = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    rows += [("each layer", each, f"{sizes[-1] / total:.1%}"), ("all", f"{total:,}", "100.0%")]
    return Table("Parameters, without a head", ("part", "parameters", "share"), tuple(rows))


def _heads(found: Examination) -> Table:
    rows = [(head, about, found.heads[head] or "none in transformers") for head, about in HEADS.items()]
    return Table("Heads", ("head", "answers", "stock class"), tuple(rows), words=3)
