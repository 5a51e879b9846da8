"""Tools that know nothing of models or tasks: files, sources, processes, progress."""
