"""ProbeScale: probe the layers of a pre-trained model, keep the ones worth their parameters, train it back.

The public names are imported on first use, so that `import probescale` and `probescale --help` cost nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from probescale.config import RecoveryConfig as RecoveryConfig
    from probescale.config import RunConfig as RunConfig
    from probescale.errors import ProbeScaleError as ProbeScaleError
    from probescale.errors import UserError as UserError
    from probescale.models.architecture import compute_facts as compute_facts
    from probescale.models.architecture import read_architecture as read_architecture
    from probescale.models.counting import count_parameters as count_parameters
    from probescale.models.loading import load_as_saved as load_as_saved
    from probescale.models.loading import load_classifier as load_classifier
    from probescale.models.saving import save_model as save_model
    from probescale.models.surgery import keep_layers as keep_layers
    from probescale.pipeline.cut import cut_to_folder as cut_to_folder
    from probescale.pipeline.run import run as run
    from probescale.pipeline.smallest import smallest as smallest
    from probescale.pipeline.validate import load_config as load_config
    from probescale.probing.cache import Store as Store
    from probescale.probing.probe import probe as probe
    from probescale.probing.represent import Request as Request
    from probescale.probing.represent import represent as represent
    from probescale.probing.score_files import load_scores as load_scores
    from probescale.probing.scores import ProbeScores as ProbeScores
    from probescale.probing.scores import relevance as relevance
    from probescale.recovery.fine_tuning import fine_tune as fine_tune
    from probescale.recovery.predict import predict as predict
    from probescale.recovery.result import RunResult as RunResult
    from probescale.report.examination import examine as examine
    from probescale.selection.budget import parse_budget as parse_budget
    from probescale.selection.calibration import calibrate as calibrate
    from probescale.selection.constraints import Constraints as Constraints
    from probescale.selection.correlation import rank_correlation as rank_correlation
    from probescale.selection.evidence import Evidence as Evidence
    from probescale.selection.evidence import combine_evidence as combine_evidence
    from probescale.selection.evidence import combine_scores as combine_scores
    from probescale.selection.planning import plan as plan
    from probescale.selection.result import Selection as Selection
    from probescale.selection.scaling import fit_law as fit_law
    from probescale.selection.select import select as select
    from probescale.selection.structure import Structure as Structure
    from probescale.tasks.task import load_task as load_task

_HOMES = {
    "compute_facts": "models.architecture",
    "read_architecture": "models.architecture",
    "plan": "selection.planning",
    "examine": "report.examination",
    "cut_to_folder": "pipeline.cut",
    "load_config": "pipeline.validate",
    "RecoveryConfig": "config",
    "RunConfig": "config",
    "ProbeScaleError": "errors",
    "UserError": "errors",
    "count_parameters": "models.counting",
    "load_as_saved": "models.loading",
    "load_classifier": "models.loading",
    "keep_layers": "models.surgery",
    "save_model": "models.saving",
    "run": "pipeline.run",
    "Store": "probing.cache",
    "probe": "probing.probe",
    "Request": "probing.represent",
    "represent": "probing.represent",
    "ProbeScores": "probing.scores",
    "load_scores": "probing.score_files",
    "relevance": "probing.scores",
    "predict": "recovery.predict",
    "fine_tune": "recovery.fine_tuning",
    "RunResult": "recovery.result",
    "parse_budget": "selection.budget",
    "Constraints": "selection.constraints",
    "Selection": "selection.result",
    "select": "selection.select",
    "calibrate": "selection.calibration",
    "rank_correlation": "selection.correlation",
    "Evidence": "selection.evidence",
    "combine_evidence": "selection.evidence",
    "combine_scores": "selection.evidence",
    "fit_law": "selection.scaling",
    "Structure": "selection.structure",
    "smallest": "pipeline.smallest",
    "load_task": "tasks.task",
}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
