"""Judging neurons and rankings: ablation, curves, agreement, and what rankings show."""
