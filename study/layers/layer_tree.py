"""A decision tree beside the linear classifier: whether layers differ by what is not linear."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from ...arrays import Int64
from ..report_json import JsonRecord
from .layer_rows import Split
from .layer_scores import Score, score_predictions

MAX_DEPTH = 10
MIN_LEAF_ROWS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTree(JsonRecord):
    """The size of a decision tree (CART, Gini impurity), and its limits.

    Attributes:
        max_depth: Questions on the way to a leaf, at most.
        min_leaf: Training rows of a leaf, at least.
        dims: Dimensions that it asks about.
        top_dims: Those that lower the impurity most, counted from 0, largest first.
    """

    max_depth: int
    min_leaf: int
    depth: int
    leaves: int
    dims: int
    top_dims: tuple[int, ...]


def score_tree(split: Split, *, seed: int = 0) -> tuple[Score, LayerTree]:
    """A tree of the training rows, and its score on the test rows.

    A question of a tree is whether one raw coordinate is above a threshold, so that it needs no
    standardiser.
    """
    tree = DecisionTreeClassifier(
        max_depth=MAX_DEPTH, min_samples_leaf=MIN_LEAF_ROWS, random_state=seed
    )
    tree.fit(split.train.vectors, split.train.layer)
    predicted: Int64[np.ndarray, " rows"] = tree.predict(split.test.vectors).astype(np.int64)
    score = score_predictions(
        predicted, split.test, layers=split.train.layers, n_train=len(split.train.layer)
    )
    importances = tree.feature_importances_
    used = np.flatnonzero(importances > 0)
    top = used[np.argsort(-importances[used], kind="stable")][:10]
    return score, LayerTree(
        max_depth=MAX_DEPTH,
        min_leaf=MIN_LEAF_ROWS,
        depth=int(tree.get_depth()),
        leaves=int(tree.get_n_leaves()),
        dims=len(used),
        top_dims=tuple(top.tolist()),
    )
