"""What is learned: built-in tasks, loading, labels, metrics, splits."""
