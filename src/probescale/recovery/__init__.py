"""Turns a cut model into a good one."""
