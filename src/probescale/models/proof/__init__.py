"""Prove that a cut model computes what the original computes with the dropped layers skipped."""
