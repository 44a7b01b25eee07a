"""Main axes of a family (PCA): from every pair's similarity, or from a sample of models."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..arrays import Float, Float64, Int64, Shaped

COMPONENTS = 50
"""Axes that neighbourhoods of a large family are taken in, as is usual before t-SNE (Kobak,
Berens 2019): the noise of a sketch is spread over thousands, its structure over few."""

SAMPLE = 10_000
"""Models that the axes of a large family are fitted to."""

AT_ONCE = 4_096
"""Models projected at a time."""

DENSE = 500
"""Models up to which all eigenvectors are computed: faster than to iterate for two."""

SAME_SIZE = 1e-5
"""Loadings closer than this share of themselves are equally large: processors round differently."""

NOTHING = 1e-12
"""Share of the similarity below which a variance is rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """Models on their family's main axes, the largest first; two of them at least.

    Attributes:
        explained: Share of the variance along the first two.
    """

    points: Float[np.ndarray, "models axes"] = field(compare=False)
    explained: tuple[float, float]

    @property
    def are_equal(self) -> bool:
        """Whether the models do not differ."""
        return self.explained[0] == 0


def gram_axes(
    gram: Float64[np.ndarray, "models models"], vectors: Float64[np.ndarray, "models dim"]
) -> Axes:
    """The first two, from inner products: u√λ of the doubly centred matrix (Gower 1966).

    The largest loading of each on `vectors` is positive.
    """
    n_models = len(gram)
    points, explained = np.zeros((n_models, 2)), np.zeros(2)
    if n_models > 1:
        means = gram.mean(axis=0)
        centred = gram - means[None, :] - means[:, None] + means.mean()
        total = float(np.trace(centred))
        values, axes = _largest_two(centred)
        positive = np.flatnonzero(values > NOTHING * np.trace(gram))
        explained[positive] = values[positive] / total
        points[:, positive] = axes[:, positive] * np.sqrt(values[positive])
        points *= _signs(vectors.T @ points)
    return Axes(points=points, explained=(float(explained[0]), float(explained[1])))


def _largest_two(
    matrix: Float64[np.ndarray, "models models"],
) -> tuple[Float64[np.ndarray, " axes"], Float64[np.ndarray, "models axes"]]:
    """Eigenvalues, descending, and their vectors."""
    from scipy.linalg import eigh
    from scipy.sparse.linalg import eigsh

    n_models = len(matrix)
    if n_models <= DENSE:
        values, vectors = eigh(matrix, subset_by_index=[max(0, n_models - 2), n_models - 1])
    else:
        start = np.cos(np.arange(n_models))  # any fixed one that is not an eigenvector
        values, vectors = eigsh(matrix, k=2, v0=start, tol=1e-9)
        rising = values.argsort()
        values, vectors = values[rising], vectors[:, rising]
    return values[::-1], vectors[:, ::-1]


def sampled_axes(
    vectors: Shaped[np.ndarray, "models dim"],
    order: Int64[np.ndarray, " models"],
    hashed: Int64[np.ndarray, " models"],
    seed: int,
) -> Axes:
    """Up to `COMPONENTS`, fitted to the first `SAMPLE` of `hashed` (Halko et al. 2011).

    Rows of the answer follow `order`, which `hashed` counts in.
    """
    from sklearn.decomposition import PCA

    sample = vectors[order[np.sort(hashed[:SAMPLE])]].astype(np.float32)
    points = np.zeros((len(order), COMPONENTS), np.float32)
    if np.ptp(sample, axis=0).max() == 0:
        return Axes(points=points, explained=(0.0, 0.0))
    n_axes = min(COMPONENTS, len(sample) - 1, sample.shape[1])
    pca = PCA(n_axes, svd_solver="randomized", random_state=seed).fit(sample)
    axes = (pca.components_.T * _signs(pca.components_.T)).astype(np.float32)
    middle = pca.mean_.astype(np.float32) @ axes
    for begin in range(0, len(order), AT_ONCE):
        rows = order[begin : begin + AT_ONCE]
        points[begin : begin + AT_ONCE, :n_axes] = vectors[rows].astype(np.float32) @ axes - middle
    explained = np.zeros(2)
    explained[: min(2, n_axes)] = pca.explained_variance_ratio_[:2]
    return Axes(points=points, explained=(float(explained[0]), float(explained[1])))


def _signs(loadings: Float[np.ndarray, "dim axes"]) -> Float64[np.ndarray, " axes"]:
    """±1 for each axis, that makes its largest loading positive: the first of equal ones."""
    sizes = np.abs(loadings)
    largest = (sizes >= sizes.max(axis=0) * (1 - SAME_SIZE)).argmax(axis=0)
    signs = np.where(loadings[largest, np.arange(loadings.shape[1])] < 0, -1.0, 1.0)
    return signs
