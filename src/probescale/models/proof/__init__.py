"""Proof that a cut model computes what the original computes with the other layers skipped."""
