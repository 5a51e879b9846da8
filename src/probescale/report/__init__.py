"""Tables for the terminal and for Markdown."""
