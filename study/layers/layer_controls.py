"""Controls of the layer classifier: its accuracy when something is taken from the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from ...arrays import Float32, Float64, Int64
from ...results import JsonRecord
from .layer_classifier import (
    LayerClassifier,
    Score,
    contributions,
    fit_classifier,
    score_classifier,
    score_predictions,
)
from .layer_norms import row_norms, unit_rows
from .layer_rows import COLUMNS, LayerRows, PunctuationTokens, Split

Change = Callable[[LayerRows], LayerRows]

RANDOM_DRAWS = 5
"""Sets of random dimensions; the accuracy is pooled over them."""


@dataclass(frozen=True, slots=True)
class Control(JsonRecord):
    """One accuracy of the study; its document has the fields of its score beside its own.

    Attributes:
        name: Stable, for machines.
        title: For people, short enough for a plot.
        retrained: Whether a classifier was trained for it; else the study's own is applied.
    """

    name: str
    title: str
    score: Score = field(repr=False)
    retrained: bool

    def to_json(self) -> dict[str, Any]:
        return JsonRecord.to_json(self) | self.score.to_json()


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


def tree_control(split: Split, *, seed: int = 0) -> tuple[Control, LayerTree]:
    """A decision tree in place of the linear classifier, and its size.

    It asks whether one raw coordinate is above a threshold, so that it needs no standardiser.
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
    title = f"decision tree, depth up to {MAX_DEPTH}"
    return Control("decision-tree", title, score, retrained=True), LayerTree(
        max_depth=MAX_DEPTH,
        min_leaf=MIN_LEAF_ROWS,
        depth=int(tree.get_depth()),
        leaves=int(tree.get_n_leaves()),
        dims=len(used),
        top_dims=tuple(top.tolist()),
    )


def simple_controls(
    split: Split, classifier: LayerClassifier, *, seed: int = 0
) -> Iterator[Control]:
    """The controls without options: norms, random vectors, means, centroids."""
    random = norm_matched_random(split, seed=seed)
    centred = score_retrained(split, mean_removal(split.train))
    length = float(row_norms(split.train.vectors).mean())
    like_unit = classifier.of_unit_rows(length) if length > 0 else None
    for name, title, score in (
        ("unit-norm", "unit norm", score_retrained(split, unit_norm, start=like_unit)),
        ("norm-only", "norm only", score_retrained(split, norm_only)),
        ("mean-removed", "own layer's mean removed", centred),
        ("nearest-centroid", "nearest centroid", score_nearest_centroid(split, classifier)),
        ("random-retrained", "random directions, retrained", score_split(random)),
    ):
        yield Control(name, title, score, retrained=True)
    score = score_classifier(classifier, random.test)
    yield Control("random-applied", "random directions, norms kept", score, retrained=False)


def score_split(split: Split, *, start: LayerClassifier | None = None) -> Score:
    return score_classifier(fit_classifier(split.train, start=start), split.test)


def score_retrained(split: Split, change: Change, *, start: LayerClassifier | None = None) -> Score:
    return score_split(Split(change(split.train), change(split.test)), start=start)


def unit_norm(rows: LayerRows) -> LayerRows:
    return rows.with_vectors(unit_rows(rows.vectors))


def norm_only(rows: LayerRows) -> LayerRows:
    """One feature, ln ‖x‖; a zero row counts as the smallest float32."""
    norms = np.maximum(row_norms(rows.vectors), float(np.finfo(np.float32).tiny))
    return rows.with_vectors(np.log(norms)[:, None].astype(np.float32))


def mean_removal(train: LayerRows) -> Change:
    """A change that takes its own layer's training mean from each row.

    It is a diagnostic, as it uses the label that is to be predicted. A classifier trained on
    these rows is at chance whatever they are: at zero weights the gradient of the logistic loss
    depends on the layers' means only, which are equal now. It shows what a linear classifier
    reads (a constant vector for each layer), and says nothing about the network.
    """
    means, layers = train.layer_means(), train.layers

    def change(rows: LayerRows) -> LayerRows:
        own = means[np.searchsorted(layers, rows.layer)]
        return rows.with_vectors((rows.vectors - own).astype(np.float32))

    return change


def norm_matched_random(split: Split, *, seed: int = 0) -> Split:
    """Directions drawn evenly from the sphere, with norms drawn from the same layer's rows.

    Training rows get norms of training rows, test rows get norms of test rows.
    """
    rng = np.random.default_rng(seed)
    return Split(_random_rows(split.train, rng), _random_rows(split.test, rng))


def _random_rows(rows: LayerRows, rng: np.random.Generator) -> LayerRows:
    norms = row_norms(rows.vectors)
    vectors = rng.standard_normal(rows.vectors.shape, dtype=np.float32)
    drawn = np.empty_like(norms)
    for layer in rows.layers:
        own = rows.layer == layer
        drawn[own] = rng.choice(norms[own], size=int(own.sum()))
    scale = (drawn / row_norms(vectors)).astype(np.float32)
    return rows.with_vectors(vectors * scale[:, None])


def score_nearest_centroid(split: Split, classifier: LayerClassifier) -> Score:
    """The score of choosing the layer with the nearest training mean, in standardised units."""
    centroids = classifier.standardise(split.train.layer_means().astype(np.float32))
    test = classifier.standardise(split.test.vectors)
    distances = (centroids**2).sum(axis=1) - 2 * test @ centroids.T  # less ‖x‖², equal for all
    nearest: Int64[np.ndarray, " rows"] = np.array(classifier.layers)[distances.argmin(axis=1)]
    return score_predictions(
        nearest, split.test, layers=classifier.layers, n_train=classifier.n_train
    )


def punctuation_controls(
    split: Split, classifier: LayerClassifier, punctuation: PunctuationTokens | None
) -> Iterator[Control]:
    """The classifier on words only, and one that is also trained on words only.

    There is none without punctuation, or where a side has nothing else.
    """
    if punctuation is None:
        return
    marks = [punctuation.among(rows.token) for rows in (split.train, split.test)]
    if not any(mark.any() for mark in marks) or any(mark.all() for mark in marks):
        return
    words = Split(split.train.only(~marks[0]), split.test.only(~marks[1]))
    score = score_classifier(classifier, words.test)
    yield Control("punctuation-untested", "punctuation not scored", score, retrained=False)
    score = score_split(words, start=classifier)
    yield Control("no-punctuation", "punctuation removed", score, retrained=True)


def mask_sizes(dim: int) -> tuple[int, ...]:
    """The numbers of dimensions that are masked by default: 4, 32 and half of them."""
    return tuple(sorted({k for k in (4, 32, dim // 2) if 1 <= k < dim}))


def mask_controls(
    split: Split, classifier: LayerClassifier, sizes: Sequence[int], *, seed: int = 0
) -> Iterator[Control]:
    """For each size: the top dimensions set to their mean and to 0, the same for random
    dimensions, and a classifier trained without the top dimensions.

    The classifier reads the training mean as 0. It does not read a raw 0 so, which moves every
    row in the same direction.
    """
    ranked = contributions(classifier).ranked()
    fills = {"mean": classifier.mean, "zero": np.zeros_like(classifier.mean)}
    rng = np.random.default_rng(seed)
    for k in sizes:
        if not 1 <= k < len(ranked):
            raise ValueError(f"can mask 1 to {len(ranked) - 1} dimensions, got {k}")
        top = ranked[:k]
        drawn = [rng.permutation(len(ranked))[:k] for _ in range(RANDOM_DRAWS)]
        for which, sets in (("top", [top]), ("random", drawn)):
            for fill, values in fills.items():
                vectors = (masked(split.test.vectors, dims, values) for dims in sets)
                predicted = np.concatenate([classifier.predict(filled) for filled in vectors])
                score = classifier.score_of(predicted, split.test)
                name, title = f"mask-{which}-{k}-{fill}", f"{which} {k} dims set to {fill}"
                yield Control(name, title, score, retrained=False)
        score = score_retrained(split, partial(without, dims=top), start=classifier.without(top))
        yield Control(f"without-top-{k}", f"without top {k} dims", score, retrained=True)


def masked(
    vectors: Float32[np.ndarray, "rows dim"],
    dims: Int64[np.ndarray, " k"],
    values: Float64[np.ndarray, " dim"],
) -> Float32[np.ndarray, "rows dim"]:
    """The vectors with some dimensions set to the given values, the same for all rows."""
    filled = vectors.copy()
    filled[:, dims] = values[dims]
    return filled


def without(rows: LayerRows, dims: Int64[np.ndarray, " k"]) -> LayerRows:
    return rows.with_vectors(np.delete(rows.vectors, dims, axis=1))


def transfer_controls(here: Split, other: Split, classifier: LayerClassifier) -> Iterator[Control]:
    """Transfer both ways, within the other texts, and from both, always on held-back texts.

    Every classifier standardises by its own training rows. To standardise by the new texts would
    measure something else.
    """
    theirs = fit_classifier(other.train, start=classifier)
    both = fit_classifier(joined(here.train, other.train), start=classifier)
    for name, title, trained, test in (
        ("transfer-to-other", "these texts → other", classifier, other.test),
        ("transfer-from-other", "other texts → these", theirs, here.test),
        ("other-in-domain", "other texts → other", theirs, other.test),
        ("mixed-here", "both texts → these", both, here.test),
        ("mixed-other", "both texts → other", both, other.test),
    ):
        score = score_classifier(trained, test)
        yield Control(name, title, score, retrained=trained is not classifier)


def joined(here: LayerRows, other: LayerRows) -> LayerRows:
    """All rows of both; texts of the other are numbered after these."""
    other = replace(other, text=other.text + int(here.text.max()) + 1)
    pairs = {name: (getattr(here, name), getattr(other, name)) for name in COLUMNS}
    columns = {name: np.concatenate(pair) for name, pair in pairs.items()}
    return LayerRows(**columns, n_seen=here.n_seen + other.n_seen)
