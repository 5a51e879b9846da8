"""Which column of a table is the text, the second text, the label: by names, by contents, or an error that asks."""
