"""Layouts that keep neighbours together: t-SNE and UMAP, both started from the main axes.

An informative start keeps the large arrangement for either (Kobak, Linderman 2021).
"""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass, field

import numpy as np

from ..arrays import Float, Float64
from ..errors import RequestError

PERPLEXITY = 30.0
NEIGHBOURS = 15
"""umap-learn's own default."""

TINY = 1e-4
"""Spread of t-SNE's start, where its gradients are largest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What is laid out.

    Attributes:
        points: On the family's main axes; the first two are where the layout starts.
        distances: Between all pairs; None = between the points.
    """

    points: Float[np.ndarray, "models axes"] = field(compare=False)
    distances: Float64[np.ndarray, "models models"] | None = field(default=None, compare=False)

    @property
    def features(self) -> Float[np.ndarray, "models features"]:
        return self.points if self.distances is None else self.distances

    @property
    def metric(self) -> str:
        return "euclidean" if self.distances is None else "precomputed"


def place_by_tsne(start: Start, seed: int) -> Float64[np.ndarray, "models 2"]:
    """t-SNE with perplexity min(30, (n − 1)/3) (van der Maaten, Hinton 2008)."""
    from sklearn.manifold import TSNE

    points = start.points[:, :2]
    made = TSNE(
        perplexity=min(PERPLEXITY, (len(points) - 1) / 3),
        metric=start.metric,
        init=points / np.std(points[:, 0]) * TINY,
        learning_rate="auto",
        random_state=seed,
    ).fit_transform(start.features)
    return np.asarray(made, dtype=np.float64)


def require_umap() -> None:
    """Refuse where umap-learn is not installed.

    Raises:
        RequestError: naming the extra that brings it.
    """
    if importlib.util.find_spec("umap") is None:
        raise RequestError("layout umap needs umap-learn: pip install 'deltadex[umap]'")


def place_by_umap(start: Start, seed: int) -> Float64[np.ndarray, "models 2"]:
    """UMAP of the 15 nearest (McInnes et al. 2018), in one thread, as a seed asks for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # notes on inverse transforms and on Numba
        from umap import UMAP

        made = UMAP(
            n_neighbors=min(NEIGHBOURS, len(start.points) - 1),
            metric=start.metric,
            init=start.points[:, :2].astype(np.float32),
            random_state=seed,
            n_jobs=1,
        ).fit_transform(start.features)
    return np.asarray(made, dtype=np.float64)
