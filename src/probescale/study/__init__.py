"""Studies: models x tasks x strategies x budgets x seeds, every cell a run folder."""
