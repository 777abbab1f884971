"""Gini importance class by class: what the splits of a forest at each neuron gain for each class."""

from __future__ import annotations

from typing import Any

import numpy as np

from pellucid.results import Array


def class_importances(forest: Any, classes: int) -> Array:
    """The importance of every neuron for every class, [classes, neurons], in a forest of scikit-learn.

    Gini impurity is Σ_c p_c(1 − p_c), so what a split gains is a sum over classes, and no class can lose by it. As
    there, the gains of a tree are shares of their sum, and the forest has the mean over trees that split at all: summed
    over classes this is `feature_importances_`. A class that the forest was not shown has 0.
    """
    found = np.zeros((classes, int(forest.n_features_in_)))
    for each in forest.estimators_:
        found[np.asarray(forest.classes_, dtype=np.int64)] += _of_tree(each.tree_, found.shape[1])
    total = found.sum()
    return found / total if total > 0 else found


def _of_tree(tree: Any, neurons: int) -> Array:
    """The shares of one tree's gain, [classes shown, neurons]; 0 where it never splits."""
    split = np.flatnonzero(tree.children_left >= 0)
    share = tree.value[:, 0]  # [nodes, classes]: shares, or numbers of words before scikit-learn 1.3
    share = share / share.sum(axis=1, keepdims=True)
    mixed = tree.weighted_n_node_samples[:, None] * share * (1 - share)
    gain = mixed[split] - mixed[tree.children_left[split]] - mixed[tree.children_right[split]]
    found = np.zeros((share.shape[1], neurons))
    np.add.at(found.T, tree.feature[split], np.maximum(gain, 0.0))  # rounding alone goes below 0
    total = found.sum()
    return found / total if total > 0 else found
