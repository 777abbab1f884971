"""Warnings of scores that work but say less than they seem to."""

from __future__ import annotations


class SimilarityWarning(UserWarning):
    """A score that was worked out as asked, and what is wrong with it; Python's `warnings` can silence it."""
