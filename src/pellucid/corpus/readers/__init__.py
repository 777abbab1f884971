"""Readers of corpus files, one file per kind of format."""
