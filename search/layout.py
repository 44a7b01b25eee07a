"""Two coordinates for each model of a family: by its main axes (PCA), by t-SNE or by UMAP.

t-SNE and UMAP start from the main axes: an informative start keeps the large arrangement for
either (Kobak, Linderman 2021). A family that is too large for t-SNE gets landmarks: t-SNE places
some models, and all others are placed among them.
"""

from __future__ import annotations

import heapq
import importlib.util
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ..arrays import Float, Float64, Int64
from ..errors import RequestError
from ..records import Layout
from .evidence import Square
from .family_scores import Codes, Vectors, id_digest

Points = Float[np.ndarray, "models axes"]
Places = Float64[np.ndarray, "models 2"]
Landmarks = Int64[np.ndarray, " landmarks"]

COMPONENTS = 50
"""Axes that neighbourhoods of a large family are taken in before t-SNE (Kobak, Berens 2019)."""

SAMPLE = 10_000
AT_ONCE = 4_096
POINT_DECIMALS = 6
"""Of points on the axes, of unit vectors: sums in another order differ by 1e-16."""

DENSE = 500
"""Models up to which all eigenvectors are computed: faster than to iterate for two."""

SAME_SIZE = 1e-5
"""Loadings closer than this share of themselves are equally large: processors round differently."""

NOTHING = 1e-12
"""Share of the similarity below which a variance is rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """Models on their family's main axes, the largest first, two of them at least, and the share of
    the variance along the first two."""

    points: Points = field(compare=False)
    explained: tuple[float, float]

    @property
    def are_equal(self) -> bool:
        return self.explained[0] == 0


def gram_axes(gram: Square, vectors: Float64[np.ndarray, "models dim"]) -> Axes:
    """The first two, from inner products: u√λ of the doubly centred matrix (Gower 1966). The
    largest loading of each on `vectors` is positive."""
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
    matrix: Square,
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


def sample_places(ids: Sequence[str], size: int) -> Codes:
    """Places, rising, of at most so many models: any first of their digests are a fair sample."""
    digests = [id_digest(id) for id in ids]
    return np.array(sorted(heapq.nsmallest(size, range(len(ids)), key=digests.__getitem__)), int)


def axes_of(
    sample: Vectors,
    n_models: int,
    project: Callable[[Float64[np.ndarray, "dim axes"]], Iterable[tuple[Codes, Points]]],
) -> Axes:
    """The main axes of a sample, and on them all models: `project` gives the products of their
    vectors with the axes in double precision, in blocks, with their places.

    Points are rounded: a product's last bits depend on who else is in a block.
    """
    from sklearn.decomposition import PCA

    points = np.zeros((n_models, COMPONENTS), np.float32)
    if len(sample) == 0 or np.ptp(sample, axis=0).max() == 0:
        return Axes(points=points, explained=(0.0, 0.0))
    n_axes = min(COMPONENTS, len(sample) - 1, sample.shape[1])
    pca = PCA(n_axes, svd_solver="randomized", random_state=0).fit(sample.astype(np.float32))
    axes = (pca.components_.T * _signs(pca.components_.T)).astype(np.float64)
    middle = pca.mean_.astype(np.float64) @ axes
    for places, products in project(axes):
        points[places, :n_axes] = np.round(products - middle, POINT_DECIMALS)
    explained = np.zeros(2)
    explained[: min(2, n_axes)] = pca.explained_variance_ratio_[:2]
    return Axes(points=points, explained=(float(explained[0]), float(explained[1])))


def _signs(loadings: Float[np.ndarray, "dim axes"]) -> Float64[np.ndarray, " axes"]:
    """±1 for each axis, that makes its largest loading positive: the first of equal ones."""
    sizes = np.abs(loadings)
    largest = (sizes >= sizes.max(axis=0) * (1 - SAME_SIZE)).argmax(axis=0)
    signs = np.where(loadings[largest, np.arange(loadings.shape[1])] < 0, -1.0, 1.0)
    return signs


FEWEST_NEIGHBOURS = 5
"""Models below which a neighbourhood is all models, and its layout shows only its start."""

EVERY_PAIR = 4_000
"""Models up to which every pair's similarity is held (128 MB) and `auto` places them all alike."""

LARGEST_TSNE = 20_000
"""Models that `tsne` places all alike, in minutes; beyond, it too goes by landmarks."""

PERPLEXITY = 30.0
NEIGHBOURS = 15
START_SPREAD = 1e-4
"""Of t-SNE's start, where its gradients are largest."""

NEAREST_LANDMARKS = 15
LANDMARK_PERPLEXITY = 5.0
"""Of the few landmarks that place a model, as openTSNE's default for new points."""

HALVINGS = 50
BLOCK = 4_096

AXES_DONE, LANDMARKS_DONE, TSNE_DONE = 25, 30, 90
"""Percent of a large family's layout that is done after each stage; placing is the rest."""

Report = Callable[[int], object]
"""Hears which percentage of a layout is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyMap:
    """A map of a family, to be looked at: do not compute numbers from it.

    Coordinates are centred, in units of the method, which is `pca` also for too few or equal
    models; `explained` is the share of the variance along PCA's axes; `landmarks` of the models
    t-SNE placed, and the others among them.
    """

    method: Literal["pca", "tsne", "umap"]
    coordinates: Places = field(compare=False)
    explained: tuple[float, float] | None = None
    landmarks: int | None = None

    def __post_init__(self) -> None:
        self.coordinates.flags.writeable = False


def place_models(
    ids: Sequence[str],
    vectors: Vectors,
    method: Layout = "auto",
    *,
    scores: Square | None = None,
    axes: Axes | None = None,
    seed: int = 0,
    report: Report = bool,
) -> FamilyMap:
    """Two coordinates per model, whose ids rise, equal for equal models, seed and method; identical
    models get the same, or nearly: there is no jitter.

    The number of threads does not matter: sums are taken in one. `auto` is t-SNE. Scores are every
    pair's cosine, where there is a better estimate than the vectors'. Of families of more than
    `EVERY_PAIR` models neither is read, but their main `axes`; of these, `report` hears of each
    stage. RequestError for `umap` without umap-learn.

    Peak beside the input: twice the pairs' similarities up to `EVERY_PAIR` models.
    """
    from threadpoolctl import threadpool_limits

    if method == "umap" and importlib.util.find_spec("umap") is None:
        raise RequestError("layout umap needs umap-learn: pip install 'deltadex[umap]'")
    with threadpool_limits(limits=1):
        if axes is None:
            return _place_all(vectors, method, scores, seed)
        return _place_many(ids, axes, method, seed, report)


def _place_all(vectors: Vectors, method: Layout, scores: Square | None, seed: int) -> FamilyMap:
    """From every pair's similarity."""
    vectors = vectors.astype(np.float64)
    gram = vectors @ vectors.T if scores is None else scores
    axes = gram_axes(gram, vectors)
    if method == "pca" or len(vectors) < FEWEST_NEIGHBOURS or axes.are_equal:
        return place_axes(axes)
    return _placed(method, axes.points, _distances(gram), seed)


def _place_many(
    ids: Sequence[str], axes: Axes, method: Layout, seed: int, report: Report
) -> FamilyMap:
    """From the main axes of the family, where pairs are too many."""
    if method == "pca" or axes.are_equal:
        return place_axes(axes)
    if method == "umap" or (method == "tsne" and len(ids) <= LARGEST_TSNE):
        return _placed(method, axes.points, None, seed)
    report(AXES_DONE)
    # any first so many are a fair sample
    digests = [id_digest(id) for id in ids]
    hashed = np.array(sorted(range(len(ids)), key=digests.__getitem__), dtype=np.int64)
    chosen = choose_landmarks(axes.points, hashed, EVERY_PAIR)
    report(LANDMARKS_DONE)
    places = _coordinates("tsne", axes.points[chosen], None, seed)
    report(TSNE_DONE)
    coordinates = place_among(axes.points, chosen, places)
    return FamilyMap(
        method="tsne", coordinates=coordinates - coordinates.mean(axis=0), landmarks=len(chosen)
    )


def place_axes(axes: Axes) -> FamilyMap:
    """The map on the first two axes."""
    points = axes.points[:, :2].astype(np.float64)
    return FamilyMap(method="pca", coordinates=points, explained=axes.explained)


def _placed(method: Layout, points: Points, distances: Square | None, seed: int) -> FamilyMap:
    coordinates = _coordinates(method, points, distances, seed)
    return FamilyMap(
        method="umap" if method == "umap" else "tsne",
        coordinates=coordinates - coordinates.mean(axis=0),
    )


def _distances(gram: Square) -> Square:
    """Euclidean, from inner products: √(2 − 2 cos) of unit vectors."""
    squares = np.diag(gram)
    distances = squares[:, None] + squares[None, :] - gram - gram.T
    np.maximum(distances, 0.0, out=distances)
    np.fill_diagonal(distances, 0.0)
    return np.asarray(np.sqrt(distances, out=distances))


def _coordinates(method: Layout, points: Points, distances: Square | None, seed: int) -> Places:
    """t-SNE with perplexity min(30, (n − 1)/3) (van der Maaten, Hinton 2008), or UMAP of the 15
    nearest (McInnes et al. 2018), in a single thread, which a seed requires.

    Both start from the first two of `points`; `distances` of None are those between the points.
    """
    metric, start = "euclidean" if distances is None else "precomputed", points[:, :2]
    numbers = points if distances is None else distances
    if method == "umap":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # notes on inverse transforms and on Numba
            from umap import UMAP

            coordinates = UMAP(
                n_neighbors=min(NEIGHBOURS, len(points) - 1),
                metric=metric,
                init=start.astype(np.float32),
                random_state=seed,
                n_jobs=1,
            ).fit_transform(numbers)
    else:
        from sklearn.manifold import TSNE

        coordinates = TSNE(
            perplexity=min(PERPLEXITY, (len(points) - 1) / 3),
            metric=metric,
            init=start / np.std(start[:, 0]) * START_SPREAD,
            learning_rate="auto",
            random_state=seed,
        ).fit_transform(numbers)
    return np.asarray(coordinates, dtype=np.float64)


def choose_landmarks(points: Points, hashed: Codes, n_landmarks: int) -> Landmarks:
    """Rows, ascending: half of them the first of `hashed`, half from where those are far.

    The second half is one round of k-means‖ (Bahmani et al. 2012), without replacement: with
    chances as the squared distance to the nearest of the first. The ranks in `hashed` are its
    random numbers.
    """
    first, rest = hashed[: n_landmarks // 2], hashed[n_landmarks // 2 :]
    squares, _ = _nearest(points[rest], points[first], 1)
    uniform = (np.arange(len(rest)) + 0.5) / len(rest)
    # the smallest of exponential variables at these rates (Efraimidis, Spirakis 2006)
    waits = -np.log1p(-uniform) / np.maximum(squares[:, 0], 1e-30)
    soonest = np.argsort(waits, kind="stable")[: n_landmarks - len(first)]
    return np.asarray(np.sort(np.concatenate([first, rest[soonest]])))


def place_among(
    points: Points, landmarks: Landmarks, places: Float64[np.ndarray, "landmarks 2"]
) -> Places:
    """Each model at the mean of its `NEAREST_LANDMARKS`, weighted by their t-SNE affinities, as
    openTSNE starts new points (Poličar et al. 2019, section 2); landmarks stay where they are."""
    coordinates = np.empty((len(points), 2))
    for begin in range(0, len(points), BLOCK):
        squares, nearest = _nearest(
            points[begin : begin + BLOCK], points[landmarks], NEAREST_LANDMARKS
        )
        weights = _affinities(squares)
        coordinates[begin : begin + BLOCK] = np.einsum("mk,mkc->mc", weights, places[nearest])
    coordinates[landmarks] = places
    return coordinates


def _nearest(
    points: Points, landmarks: Float[np.ndarray, "landmarks axes"], k: int
) -> tuple[Float64[np.ndarray, "models k"], Int64[np.ndarray, "models k"]]:
    """Squared distances to the nearest landmarks, and which they are."""
    lengths = np.square(landmarks).sum(axis=1)
    squares = np.empty((len(points), k))
    nearest = np.empty((len(points), k), dtype=np.int64)
    for begin in range(0, len(points), BLOCK):
        block = points[begin : begin + BLOCK]
        distances = np.square(block).sum(axis=1)[:, None] + lengths - 2 * block @ landmarks.T
        columns = np.argpartition(distances, k - 1, axis=1)[:, :k]
        nearest[begin : begin + BLOCK] = columns
        squares[begin : begin + BLOCK] = np.take_along_axis(distances, columns, axis=1)
    return np.maximum(squares, 0.0), nearest


def _affinities(squares: Float64[np.ndarray, "models k"]) -> Float64[np.ndarray, "models k"]:
    """Gaussian weights of each row, of sum 1 and `LANDMARK_PERPLEXITY` (t-SNE's equation 1)."""
    beyond = squares - squares.min(axis=1, keepdims=True)
    scale = np.maximum(beyond.mean(axis=1, keepdims=True), 1e-30)
    low, high = np.full(scale.shape, -20.0), np.full(scale.shape, 20.0)  # ln of the precision
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        weights: Float64[np.ndarray, "models k"] = np.exp(-beyond / scale * np.exp(middle))
        weights /= weights.sum(axis=1, keepdims=True)
        entropy = -(weights * np.log(np.maximum(weights, 1e-300))).sum(axis=1, keepdims=True)
        wide = entropy > np.log(LANDMARK_PERPLEXITY)
        low, high = np.where(wide, middle, low), np.where(wide, high, middle)
    return weights
