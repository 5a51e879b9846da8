"""Tiny models, small data, fast processes and fault injection for the tests."""
