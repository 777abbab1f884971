"""Warnings of rankings that work but say less, or something else, than they seem to."""

from __future__ import annotations


class NeuronWarning(UserWarning):
    """A result on neurons that was made, and what to know about it; Python's `warnings` can silence it."""
