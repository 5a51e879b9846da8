"""The scaling law: value against size, as the paper's P ~ G N^alpha, in the saturating form that measurements follow.

P(N) = asymptote - gain * (N / smallest) ** -exponent
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from pydantic import Field
from scipy.stats import t as student

from probescale.errors import UserError
from probescale.utils.files import Record

Point = tuple[float, float]  # parameters, value
EXPONENTS = (0.05, 20.0)  # from nearly log-linear to a step; beyond, curves look the same within the measured sizes
DRAWS = 200
SEED = 0
_GRID, _ROUNDS = 33, 10  # each round narrows the range of exponents to a sixteenth
_FREE = 3  # free parameters of the law
_LARGEST_LOG = 700.0  # of a number that is still finite


class ScalingLaw(Record):
    """A fitted law: predicts the value of any size, with intervals."""

    asymptote: float
    gain: float = Field(ge=0)  # distance from the asymptote at the smallest size
    exponent: float = Field(gt=0)
    smallest: float = Field(gt=0)  # the smallest measured size, which is the unit of sizes
    intervals: dict[str, tuple[float, float]]  # 95 %, of the three parameters
    residual: float  # root mean square
    points: int
    floor: float | None = None  # smallest and largest possible value, where known
    ceiling: float | None = None
    # Asymptote, gain and exponent, fitted to resampled residuals; intervals of predictions are computed from them.
    draws: tuple[tuple[float, float, float], ...] = Field(repr=False)

    def predict(self, params: float) -> float:
        """The expected value of a size."""
        law = np.array([self.asymptote, self.gain, self.exponent])
        return self._clip(float(_curve(_units(params, self.smallest), law)))

    def interval(self, params: float) -> tuple[float, float]:
        """The 95 % interval of values measured at this size: uncertainty of the curve, and scatter around it."""
        curves = _curve(_units(params, self.smallest), np.array(self.draws))  # (draws,)
        freedom = _freedom(self.points)
        spread = self.residual * math.sqrt(self.points / freedom)
        scatter = spread * student.ppf((np.arange(99) + 0.5) / 99, freedom)
        low, high = _middle_95(curves[:, None] + scatter)
        return self._clip(low), self._clip(high)

    def size_for(self, value: float) -> float | None:
        """The smallest size that is expected to reach the value; None if no size reaches it."""
        missing = self.asymptote - value
        if self.gain == 0 and missing >= 0:
            return self.smallest  # all sizes are equal, and nothing smaller was measured
        if self.gain == 0 or missing <= 0:
            return None
        logarithm = math.log(self.smallest) + math.log(self.gain / missing) / self.exponent
        return math.exp(logarithm) if logarithm < _LARGEST_LOG else None

    def _clip(self, value: float) -> float:
        """The nearest possible value: below the smallest size the curve falls without limit."""
        raised = value if self.floor is None else max(value, self.floor)
        return raised if self.ceiling is None else min(raised, self.ceiling)


def fit_law(points: Sequence[Point]) -> ScalingLaw:
    """The law through measured points (parameters, value), with 95 % intervals from resampled residuals.

    >>> law = fit_law([(1e6, 0.5), (2e6, 0.7), (4e6, 0.8), (8e6, 0.85)])
    >>> round(law.asymptote, 6), round(law.gain, 6), round(law.exponent, 6)
    (0.9, 0.4, 1.0)
    >>> round(law.predict(16e6), 6)
    0.875
    """
    sizes, values = _check_points(points)
    units, (floor, ceiling) = sizes / sizes.min(), _bounds(values)
    law = _fit(units, values[None], ceiling)[0]
    expected = _curve(units, law)
    draws = _fit(units, expected + _noise(values - expected), ceiling)
    asymptote, gain, exponent = (float(each) for each in law)
    intervals = {name: _middle_95(draws[:, place]) for place, name in enumerate(("asymptote", "gain", "exponent"))}
    if gain == 0:
        intervals["exponent"] = EXPONENTS  # any exponent fits
    return ScalingLaw(
        asymptote=asymptote,
        gain=gain,
        exponent=exponent,
        smallest=float(sizes.min()),
        intervals=intervals,
        residual=float(np.sqrt(np.mean((values - expected) ** 2))),
        points=len(values),
        floor=floor if math.isfinite(floor) else None,
        ceiling=ceiling if math.isfinite(ceiling) else None,
        draws=tuple((_short(a), _short(g), _short(e)) for a, g, e in draws),
    )


def held_out_error(points: Sequence[Point]) -> dict[str, float]:
    """Mean absolute error of the law and of simpler fits, leaving out one size at a time with all of its points."""
    sizes, values = _check_points(points)
    errors: dict[str, float] = {}
    for name, predict in _FITS.items():
        missed = np.zeros_like(values)
        for size in np.unique(sizes):
            out = sizes == size
            missed[out] = np.abs(values[out] - predict(sizes[~out], values[~out], size))
        errors[name] = float(missed.mean())
    return errors


def _saturating(sizes: np.ndarray, values: np.ndarray, size: float) -> float:
    """The saturating law of this module."""
    smallest, (floor, ceiling) = sizes.min(), _bounds(values)
    law = _fit(sizes / smallest, values[None], ceiling)[0]
    return max(float(_curve(np.array(size / smallest), law)), floor)


def _power(sizes: np.ndarray, values: np.ndarray, size: float) -> float:
    """The paper's G N^alpha, fitted in logarithms; values of 0 and below have no logarithm and are left out."""
    known = values > 0
    if not known.any():
        return 0.0
    return math.exp(min(_straight(np.log(sizes[known]), np.log(values[known]), math.log(size)), _LARGEST_LOG))


def _log_linear(sizes: np.ndarray, values: np.ndarray, size: float) -> float:
    """A line in log size: the same gain for every doubling."""
    return _straight(np.log(sizes), values, math.log(size))


def _mean(sizes: np.ndarray, values: np.ndarray, size: float) -> float:
    """The mean of the values, for every size."""
    return float(values.mean())


_FITS: dict[str, Callable[[np.ndarray, np.ndarray, float], float]] = {
    "saturating": _saturating,
    "power": _power,
    "log_linear": _log_linear,
    "mean": _mean,
}


def _straight(x: np.ndarray, y: np.ndarray, at: float) -> float:
    """The least-squares line, evaluated at a point; level where all x are equal."""
    centred = x - x.mean()
    slope = centred @ y / (centred @ centred) if np.ptp(x) else 0.0
    return float(y.mean() + slope * (at - x.mean()))


def _curve(units: np.ndarray, law: np.ndarray) -> np.ndarray:
    """Values of one law at all sizes, or of many laws at one size; the last axis of `law` has its three parameters."""
    asymptote, gain, exponent = law.T
    return asymptote - gain * units**-exponent


def _bounds(values: np.ndarray) -> tuple[float, float]:
    """Smallest and largest possible value: 0 unless one is negative, 1 unless one is above 1."""
    return 0.0 if values.min() >= 0 else -math.inf, 1.0 if values.max() <= 1 else math.inf


def _fit(units: np.ndarray, values: np.ndarray, ceiling: float) -> np.ndarray:
    """The best asymptote, gain and exponent for each row of values.

    For a given exponent the rest is a straight line, so only the exponent is searched, for all rows at once. That needs
    no starting point and is never singular. Where several exponents fit equally well, the smallest is taken.
    """
    base = values[:, :1]  # subtracted, so that equal values have a gain of exactly 0
    shifted, shifted_ceiling = values - base, ceiling - base
    rounding = 1e-24 * (values**2).sum(1, keepdims=True)
    low, high = (np.full(len(values), math.log(end)) for end in EXPONENTS)
    laws = np.empty((len(values), _FREE))
    for _ in range(_ROUNDS):
        grid = np.linspace(low, high, _GRID, axis=1)  # (rows, grid), of log exponents
        shapes = units ** -np.exp(grid)[..., None]  # (rows, grid, points)
        asymptotes, gains, losses = _solve(shapes, shifted[:, None], shifted_ceiling)
        best = (losses <= losses.min(1, keepdims=True) + rounding).argmax(1)[:, None]
        laws = np.hstack([_pick(each, best) for each in (asymptotes + base, gains, np.exp(grid))])
        low, high = (_pick(grid, np.clip(best + side, 0, _GRID - 1))[:, 0] for side in (-1, 1))
    return laws


def _solve(shapes: np.ndarray, values: np.ndarray, ceiling: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The best asymptotes and gains for given shapes, within their bounds, and their squared errors."""
    centre = shapes.mean(-1)
    centred = shapes - centre[..., None]
    gains = np.maximum(-(centred * values).sum(-1) / np.maximum((centred**2).sum(-1), 1e-300), 0)
    asymptotes = values.mean(-1) + gains * centre
    too_high = asymptotes > ceiling
    asymptotes = np.where(too_high, ceiling, asymptotes)
    from_ceiling = (shapes * (ceiling[..., None] - values)).sum(-1) / (shapes**2).sum(-1)
    gains = np.where(too_high, np.maximum(from_ceiling, 0), gains)
    losses = ((asymptotes[..., None] - gains[..., None] * shapes - values) ** 2).sum(-1)
    return asymptotes, gains, losses


def _pick(table: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """From each row, the entry in its column."""
    return np.take_along_axis(table, columns, axis=1)


def _noise(residuals: np.ndarray) -> np.ndarray:
    """Resampled residuals, (draws, points), enlarged for the degrees of freedom that the fit used."""
    rng = np.random.default_rng(SEED)
    freedom = _freedom(len(residuals))
    scale = np.sqrt(len(residuals) / rng.chisquare(freedom, size=(DRAWS, 1)))
    return scale * rng.choice(residuals - residuals.mean(), size=(DRAWS, len(residuals)))


def _freedom(points: int) -> int:
    """Degrees of freedom left by the three parameters, at least 1."""
    return max(points - _FREE, 1)


def _middle_95(values: np.ndarray) -> tuple[float, float]:
    """The interval of the middle 95 %."""
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def _short(value: float) -> float:
    """Rounded to nine digits, which are more than enough and keep files small."""
    return float(f"{value:.9g}")


def _units(params: float, smallest: float) -> np.ndarray:
    """A size in units of the smallest measured one."""
    if not (math.isfinite(params) and params > 0):
        raise UserError(f"{params} is not a size", field="params", hint="give a number of parameters above 0")
    return np.array(params / smallest)


def _check_points(points: Sequence[Point]) -> tuple[np.ndarray, np.ndarray]:
    """Sizes and values; refused where no law can be fitted to them."""
    for size, value in points:
        if not (math.isfinite(size) and math.isfinite(value) and size > 0):
            raise UserError(
                f"({size}, {value}) is not a measured point",
                field="points",
                hint="give sizes above 0 and finite values",
            )
    different = len({size for size, _ in points})
    if len(points) < 4 or different < 3:
        raise UserError(
            f"{len(points)} points of {different} different sizes do not show a law",
            field="points",
            hint="measure at least 4 subnetworks of at least 3 different sizes",
        )
    sizes, values = np.array(points, dtype=float).T
    return sizes, values
