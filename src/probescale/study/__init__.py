"""Many runs in one folder: models x tasks x strategies x budgets x seeds, with their tables, figures and page."""
