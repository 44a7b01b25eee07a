"""Where the models of a family stand on a map: two coordinates each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Float64, Shaped
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE

Method = Literal["pca", "tsne"]

FEWEST_FOR_TSNE = 5
"""Below this a neighbourhood is everybody, and t-SNE places points by its start alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A map of a family. For looking at: no number is to be computed from it.

    Attributes:
        method: What made it; `pca` also where too few or only equal points asked for t-SNE.
        coordinates: Centred, in units of the method.
        explained: Share of the variance along each axis, for PCA.
    """

    method: Method
    coordinates: Float64[np.ndarray, "models 2"] = field(compare=False)
    explained: tuple[float, float] | None

    def __post_init__(self) -> None:
        self.coordinates.flags.writeable = False


def place_models(
    vectors: Shaped[np.ndarray, "models dim"], method: Method = "tsne", *, seed: int = 0
) -> Layout:
    """Two coordinates a model, the same for the same vectors on every run.

    t-SNE: perplexity min(30, (n − 1)/3), started from PCA (van der Maaten & Hinton 2008).
    """
    if method not in ("pca", "tsne"):
        raise ValueError(f"method must be 'pca' or 'tsne', got {method!r}")
    pca = _principal_axes(vectors.astype(np.float64), seed)
    spread = np.ptp(pca.coordinates) if len(vectors) else 0.0
    if method == "pca" or len(vectors) < FEWEST_FOR_TSNE or spread < 1e-9:
        return pca
    tsne = TSNE(
        perplexity=min(30.0, (len(vectors) - 1) / 3),
        init=pca.coordinates / np.std(pca.coordinates[:, 0]) * 1e-4,
        learning_rate="auto",
        random_state=seed,
    )
    coordinates = tsne.fit_transform(vectors.astype(np.float64))
    coordinates = np.asarray(coordinates, dtype=np.float64)
    return Layout(method="tsne", coordinates=coordinates - coordinates.mean(axis=0), explained=None)


def _principal_axes(vectors: Float64[np.ndarray, "models dim"], seed: int) -> Layout:
    """The two directions of most variance; the largest loading of each is positive."""
    n_models, dim = vectors.shape
    coordinates = np.zeros((n_models, 2))
    explained = np.zeros(2)
    n_axes = min(2, n_models - 1, dim)
    if n_axes > 0 and np.ptp(vectors, axis=0).max() > 0:
        pca = PCA(n_components=n_axes, random_state=seed)
        scores = pca.fit_transform(vectors)
        largest = np.abs(pca.components_).argmax(axis=1)
        signs = np.sign(pca.components_[np.arange(n_axes), largest])
        coordinates[:, :n_axes] = scores * signs
        explained[:n_axes] = pca.explained_variance_ratio_
    return Layout(
        method="pca",
        coordinates=coordinates,
        explained=(float(explained[0]), float(explained[1])),
    )
