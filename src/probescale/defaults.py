"""Defaults that the command line shows without loading anything."""

STRATEGY = "contiguous"  # what the measurements in docs/selection.md support
