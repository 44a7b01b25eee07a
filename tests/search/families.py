"""Labelled families of vectors with known datasets, made from seeds."""

from dataclasses import replace

import numpy as np
from scoring.sketched import VECTORS, VectorMatrix, make_scores, unit_rows

from deltadex.search.evaluation import FamilyRetrieval, rank
from deltadex.search.labelled import LabelledModels, PairSource
from deltadex.search.layout import axes_of


def make_labelled(n, *, datasets=8, strength=1.0, seed=0, dim=64, labelled=1.0, authors=True):
    """`n` models around the directions of their datasets; every second author has two models.

    `strength` is a dataset's direction over the noise; labels stay on a share of the models.
    """
    rng = np.random.default_rng(seed)
    centres = unit_rows(rng.normal(size=(datasets, dim)))
    truth = rng.integers(datasets, size=n)
    noise = unit_rows(rng.normal(size=(n, dim)))
    kept = rng.random(n) < labelled
    family = LabelledModels(
        base="base",
        ids=tuple(f"m{i:04}" for i in range(n)),
        vectors=unit_rows(strength * centres[truth] + noise),
        labels=tuple(f"d{t}" if k else None for t, k in zip(truth, kept, strict=True)),
        authors=tuple(f"a{i % (2 * n // 3)}" if authors else None for i in range(n)),
        runs=(None,) * n,
    )
    return family, {f"m{i:04}": f"d{t}" for i, t in enumerate(truth)}


def make_family(vectors, labels, authors=None, runs=None, ids=None, base="base"):
    """Models with these columns."""
    n = len(labels)
    return LabelledModels(
        base=base,
        ids=tuple(ids or [f"model-{i:03d}" for i in range(n)]),
        vectors=np.asarray(vectors, dtype=np.float32),
        labels=tuple(labels),
        authors=tuple(authors or [None] * n),
        runs=tuple(runs or [None] * n),
    )


def ranked(family, exclude=None, **candidates):
    """What every query of a family found."""
    return rank(FamilyRetrieval.of(family, exclude, **candidates)).results


def scored(family, vectors=None):
    """The same family with normalised scores of its vectors, or of others."""
    vectors = family.vectors if vectors is None else vectors
    matrix, kinds = VectorMatrix(vectors.astype(np.float32)), ["full"] * len(family.ids)
    scores = make_scores(family.ids, kinds, VECTORS, matrix.take)
    models = scores.prepare(matrix, kinds, list(range(len(family.ids))))
    source = PairSource(scores, models.take, "normalised", ("vector",))
    return replace(family, vectors=vectors, source=source)


def first(family, n):
    """Its first models alone."""
    columns = ("ids", "vectors", "labels", "authors", "runs")
    return replace(family, **{name: getattr(family, name)[:n] for name in columns})


def main_axes(vectors):
    """What large families are laid out and clustered by."""
    every = np.arange(len(vectors))
    return axes_of(vectors, len(vectors), lambda axes: [(every, vectors @ axes)])
