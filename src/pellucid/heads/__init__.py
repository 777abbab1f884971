"""Attention heads: what each of them looks at."""

from pellucid.heads.statistics import HeadStatistics, statistics

__all__ = ["HeadStatistics", "statistics"]
