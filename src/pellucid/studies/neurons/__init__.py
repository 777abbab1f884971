"""The study of neurons: published findings about which neurons carry linguistic concepts, judged on any models."""
