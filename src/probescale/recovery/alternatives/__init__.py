"""What one could use instead of the subnetwork: simpler models for the same task, one file each."""

from __future__ import annotations

from probescale.recovery.alternatives.measure import measure_alternatives as measure_alternatives
