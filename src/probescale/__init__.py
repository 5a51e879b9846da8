"""ProbeScale: probe the layers of a pre-trained model, keep the ones worth their parameters, train it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from probescale.api import bench as bench
    from probescale.api import compress as compress
    from probescale.api import cut as cut
    from probescale.api import doctor as doctor
    from probescale.api import export as export
    from probescale.api import load_config as load_config
    from probescale.api import plan as plan
    from probescale.api import predict as predict
    from probescale.api import probe as probe
    from probescale.api import run as run
    from probescale.api import run_study as run_study
    from probescale.api import select as select
    from probescale.api import smallest as smallest
    from probescale.errors import UserError as UserError

_FUNCTIONS = (
    "bench", "compress", "cut", "doctor", "export", "load_config", "plan",
    "predict", "probe", "run", "run_study", "select", "smallest",
)  # fmt: skip
__all__ = [*_FUNCTIONS, "UserError"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    """Import a public name on first use: `import probescale` and `probescale --help` cost nothing."""
    if name in _FUNCTIONS:
        from probescale import api

        return getattr(api, name)
    if name == "UserError":
        from probescale.errors import UserError

        return UserError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
