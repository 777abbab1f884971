"""What a score loses when tokens, heads or neurons are taken away, one at a time or in groups."""
