"""General tools, independent of models and tasks: files, sources, processes, progress."""
