"""The figure of the paper: relevance over layers, one line per probe, with bands and floors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from probescale.errors import UserError
from probescale.probing.scores import ProbeResult, ProbeScores
from probescale.utils.files import atomic_file
from probescale.utils.outputs import Inputs, check_output_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("svg", "png")
MAKER = "probescale"  # in the metadata of every figure


def write_figure(scores: ProbeScores, stem: Path, kept: Sequence[int] = ()) -> list[Path]:
    """Write stem.svg and stem.png: every probe's score over layers, the kept layers shaded."""
    with saved_figure(stem) as (figure, paths):
        axes = figure.subplots()
        _draw(axes, scores)
        for layer in kept:
            axes.axvspan(layer - 0.5, layer + 0.5, color="0.5", alpha=0.12, linewidth=0, zorder=0)
        if kept:
            axes.set_title("shaded: kept", loc="right", fontsize=8, color="0.4")
    return paths


def check_figure_files(
    stem: Path, *, inputs: Inputs, overwrite: bool, scores: Path | None = None, field: str = "--out"
) -> None:
    """Refuse before any work if a figure cannot be written, or would replace its scores or other files."""
    for path in _figure_paths(stem):
        if path == scores:
            raise UserError(
                f'"{scores}" is where the figure goes', field=field, hint="give the scores a name like scores.json"
            )
        check_output_file(path, inputs=inputs, overwrite=overwrite, is_own=_is_own_figure, field=field)


def _figure_paths(stem: Path) -> list[Path]:
    return [stem.with_name(f"{stem.name}.{kind}") for kind in FORMATS]


def _is_own_figure(path: Path) -> bool:
    """Whether saved_figure() wrote a file."""
    with path.open("rb") as file:
        return MAKER.encode() in file.read(2000)


@contextmanager
def saved_figure(stem: Path, size: tuple[float, float] = (7.2, 4.2)) -> Iterator[tuple[Figure, list[Path]]]:
    """An empty figure, saved in every format when the block ends. The same data give the same files."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # ignore a matplotlibrc in the current folder
        matplotlib.rcParams.update({"svg.hashsalt": "probescale", "font.size": 10, "text.parse_math": False})
        figure = Figure(figsize=size, layout="constrained")
        paths = _figure_paths(stem)
        yield figure, paths
        for path, kind in zip(paths, FORMATS, strict=True):
            about = {"Date": None, "Creator": MAKER} if kind == "svg" else {"Software": MAKER}
            with atomic_file(path) as partial:
                figure.savefig(partial, format=kind, dpi=150, metadata=about)


def _draw(axes, scores: ProbeScores) -> None:  # noqa: ANN001 - matplotlib's axes
    layers = range(1, scores.layers + 1)
    colours = {name: f"C{number % 10}" for number, name in enumerate(scores.probes)}
    for name, probe in scores.probes.items():
        _draw_probe(axes, list(layers), name, probe, colours[name])
    if len(scores.probes) > 1 or scores.contribution == "marginal":
        label = "relevance" + (" (marginal)" if scores.contribution == "marginal" else "")
        axes.plot(layers, scores.relevance, color="black", linewidth=2.2, label=label)
    metrics = {"R2" if p.target == "number" and p.metric == "accuracy" else p.metric for p in scores.probes.values()}
    axes.set_xlabel("layer")
    axes.set_ylabel(" / ".join(sorted(metrics)) + " of the probe")
    axes.set_title(f"{scores.task}: what each layer knows", loc="left")
    ticks = list(layers) if scores.layers <= 16 else list(range(2, scores.layers + 1, 2))
    embeddings = any(probe.embeddings for probe in scores.probes.values())
    axes.set_xticks(([0] if embeddings else []) + ticks, (["emb."] if embeddings else []) + [str(t) for t in ticks])
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))


def _draw_probe(axes, layers: list[int], name: str, probe: ProbeResult, colour: str) -> None:  # noqa: ANN001
    axes.plot(layers, probe.scores, color=colour, marker="o", markersize=3.5, label=f"{name} (w={probe.weight:.3g})")
    curve = probe.measures.get(probe.metric)
    if curve is not None and curve.low != curve.high:
        axes.fill_between(layers, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
    if probe.embeddings and probe.metric in probe.embeddings:
        axes.plot([0, 1], [probe.embeddings[probe.metric], probe.scores[0]], color=colour, linewidth=0.8, alpha=0.6)
        axes.plot([0], [probe.embeddings[probe.metric]], color=colour, marker="s", markersize=4)
    if probe.metric != "accuracy":
        return
    for floor, style in (("majority", ":"), ("bag of words", "--")):
        if floor in probe.floors:
            axes.axhline(probe.floors[floor], color=colour, linestyle=style, linewidth=1, label=f"{name}: {floor}")
    if probe.random_weights:
        label = f"{name}: random weights"
        axes.plot(layers, probe.random_weights.values, color=colour, linestyle="-.", linewidth=1, label=label)
