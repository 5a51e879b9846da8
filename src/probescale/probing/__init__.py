"""One pass over the model -> pooled states per layer -> a probe per layer -> scores -> relevance."""
