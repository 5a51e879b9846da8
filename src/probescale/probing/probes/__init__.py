"""Kinds of probes, named by `probing.probe`. To add one, put a class with @probe into a file of this folder."""

from __future__ import annotations

from probescale.probing.probes import linear, mlp
from probescale.probing.probes.base import PROBES, FittedProbe, Probe, probe

__all__ = ["PROBES", "FittedProbe", "Probe", "linear", "mlp", "probe"]
