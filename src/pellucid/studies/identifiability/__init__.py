"""The study of identifiability: whether attention is unique, tokens can be told from states, and how far they mix."""
