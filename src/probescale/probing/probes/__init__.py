"""Kinds of probes, named by `probing.probe`. To add one, decorate a class with @probe in a file of this folder."""

from __future__ import annotations

from probescale.probing.probes.base import PROBES as PROBES
from probescale.probing.probes.base import FittedProbe as FittedProbe
from probescale.probing.probes.base import Probe as Probe
from probescale.probing.probes.base import probe as probe
from probescale.utils.registry import import_files

import_files(__name__, __path__)
