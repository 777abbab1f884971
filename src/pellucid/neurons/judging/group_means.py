"""Means of sums that were kept by document group, and their interval over the groups."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pellucid.results import Array
from pellucid.uncertainty import Interval, jackknife


def over_kept_groups(mean: Callable[[Array], Array], sizes: Array) -> tuple[Array, Interval]:
    """What `mean` gives for the numbers of all groups that have something, and its interval, each left out in turn.

    `sizes` [groups] are what each group counts.
    """
    groups = np.flatnonzero(sizes > 0)
    whole = mean(groups)
    without = [mean(groups[groups != group]) for group in groups] if len(groups) > 1 else []
    return whole, jackknife(whole, without, sizes[groups][: len(without)].tolist())
