"""Layer-wise relevance propagation: an optional part with a notice of its own, loaded where a method asks for it."""
