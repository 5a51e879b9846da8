"""The story of a run: prepare, probe, select, cut, train, evaluate, write."""
