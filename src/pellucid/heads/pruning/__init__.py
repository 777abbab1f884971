"""Doing without heads: learned gates, curves, and models that are really smaller."""
