"""Neurons: what moves single units."""

from pellucid.neurons.contexts import SelectiveUnits, selective

__all__ = ["SelectiveUnits", "selective"]
