"""Which layers: budgets, and one function per strategy."""
