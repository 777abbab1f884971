"""Recipes that make what Pellucid ships: run from the repository, not part of the package."""
