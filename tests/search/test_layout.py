from typing import get_args

import numpy as np
import pytest
from families import main_axes
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness

from deltadex.errors import RequestError
from deltadex.records import Layout
from deltadex.search import layout
from deltadex.search.layout import choose_landmarks, place_models

METHODS = get_args(Layout)


def make_clusters(seed=0, size=8, n_clusters=3, dim=20, spread=0.3):
    rng = np.random.default_rng(seed)
    vectors = np.repeat(rng.normal(size=(n_clusters, dim)), size, axis=0) * 3
    vectors += rng.normal(size=vectors.shape) * spread
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def names(vectors):
    return [f"model-{i:05d}" for i in range(len(vectors))]


def placed(vectors, method="auto", **options):
    axes = main_axes(vectors) if len(vectors) > layout.EVERY_PAIR else None
    return place_models(names(vectors), vectors, method, axes=axes, **options)


@pytest.fixture
def few_pairs(monkeypatch):
    """Families of more than 60 models are large, and have 60 landmarks."""
    monkeypatch.setattr(layout, "EVERY_PAIR", 60)
    monkeypatch.setattr(layout, "LARGEST_TSNE", 100)


BY_METHOD = pytest.mark.parametrize(
    "method", [pytest.param(m, marks=[pytest.mark.slow] * (m == "umap")) for m in METHODS]
)


@BY_METHOD
@pytest.mark.parametrize("n", range(8))
def test_any_number_of_models_is_placed(method, n):
    made = placed(make_clusters()[:n], method)

    assert made.coordinates.shape == (n, 2)
    assert np.isfinite(made.coordinates).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [1, 7, 70])
@pytest.mark.usefixtures("few_pairs")
def test_equal_models_stand_on_one_spot(method, n):
    made = placed(np.full((n, 4), 0.5, np.float32), method)

    assert np.ptp(made.coordinates) == 0
    assert made.method == "pca"


# dense, by iteration, and of a family whose pairs are too many
@pytest.mark.parametrize(
    ("size", "every_pair", "dtype", "error"),
    [(8, 4_000, "d", 1e-9), (200, 4_000, "d", 1e-6), (50, 60, "f", 1e-4)],
)
def test_pca_agrees_with_scikit_learn_up_to_sign(monkeypatch, size, every_pair, dtype, error):
    monkeypatch.setattr(layout, "EVERY_PAIR", every_pair)
    vectors = make_clusters(size=size).astype(dtype)
    oracle = PCA(2, svd_solver="full").fit(vectors.astype("d"))

    made = placed(vectors, "pca")

    expected = np.abs(oracle.transform(vectors.astype("d")))
    assert np.abs(made.coordinates) == pytest.approx(expected, abs=error)
    assert made.explained == pytest.approx(tuple(oracle.explained_variance_ratio_), abs=error)


@BY_METHOD
def test_better_scores_are_what_is_laid_out(method):
    vectors = make_clusters(size=6, spread=0.0)
    groups = np.arange(18) % 3  # across the vectors' clusters
    scores = np.where(groups[:, None] == groups[None, :], 0.9, 0.1) + 0.1 * np.eye(18)

    coordinates = placed(vectors, method, scores=scores).coordinates

    distances = np.linalg.norm(coordinates[:, None] - coordinates[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    assert (groups[distances.argmin(axis=1)] == groups).all()


@pytest.mark.usefixtures("few_pairs")
def test_landmarks_keep_neighbourhoods():
    vectors = make_clusters(size=40, n_clusters=8, dim=60, spread=1.0)

    by_landmarks = trustworthiness(vectors, placed(vectors).coordinates, n_neighbors=10)
    by_axes = trustworthiness(vectors, placed(vectors, "pca").coordinates, n_neighbors=10)

    assert by_landmarks > by_axes
    assert by_landmarks > 0.85


def test_without_umap_learn_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(layout.importlib.util, "find_spec", lambda name: None)

    with pytest.raises(RequestError, match=r"pip install 'deltadex\[umap\]'"):
        placed(make_clusters(), "umap")


def test_a_small_group_far_from_the_sample_gets_a_landmark():
    points = np.random.default_rng(0).normal(size=(300, 5)).astype(np.float32)
    points[290:] += 100
    hashed = np.arange(300)  # the sample is the first, and misses the group

    chosen = choose_landmarks(points, hashed, 40)

    assert (chosen >= 290).any()
