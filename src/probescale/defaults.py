"""Defaults that the command line shows without loading anything."""

STRATEGY = "stitched"  # what the measurements in docs/results/selection.md support
