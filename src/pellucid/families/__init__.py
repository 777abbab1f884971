"""The families of transformers that Pellucid is checked on: tiny models, an independent oracle, and the check."""
