"""How much each layer knows: one forward pass, pooled states, a probe per layer, scores, relevance."""
