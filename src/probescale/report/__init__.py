"""Tables, figures, pages and model cards of one run, for the terminal, Markdown and HTML."""
