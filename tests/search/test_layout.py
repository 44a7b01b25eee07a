import numpy as np
import pytest

from deltadex.search.layout import place_models


def make_clusters(seed=0, size=8):
    rng = np.random.default_rng(seed)
    vectors = np.repeat(rng.normal(size=(3, 20)), size, axis=0) * 3
    vectors += rng.normal(size=vectors.shape) * 0.3
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("method", ["pca", "tsne"])
@pytest.mark.parametrize("n", range(8))
def test_any_number_of_models_is_placed(method, n):
    placed = place_models(make_clusters()[:n], method)

    assert placed.coordinates.shape == (n, 2)
    assert np.isfinite(placed.coordinates).all()


@pytest.mark.parametrize("method", ["pca", "tsne"])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_equal_models_stand_on_one_spot(method, n):
    placed = place_models(np.ones((n, 4), np.float32), method)

    assert np.ptp(placed.coordinates) == 0


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_clusters_stay_together(method):
    coordinates = place_models(make_clusters(), method).coordinates

    distances = np.linalg.norm(coordinates[:, None] - coordinates[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    assert (distances.argmin(axis=1) // 8 == np.arange(24) // 8).all()


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_the_same_vectors_give_the_same_map(method):
    first = place_models(make_clusters(), method).coordinates

    assert np.array_equal(place_models(make_clusters(), method).coordinates, first)


def test_pca_agrees_with_the_singular_value_decomposition_up_to_sign():
    vectors = make_clusters().astype(np.float64)
    u, sigma, _ = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)

    placed = place_models(vectors, "pca")

    assert np.abs(placed.coordinates) == pytest.approx(np.abs(u[:, :2] * sigma[:2]), abs=1e-9)
    assert placed.explained == pytest.approx(tuple(sigma[:2] ** 2 / (sigma**2).sum()))


def test_pca_signs_do_not_hang_on_the_order_of_models():
    vectors = make_clusters()
    order = np.random.default_rng(1).permutation(len(vectors))

    shuffled = place_models(vectors[order], "pca").coordinates

    assert shuffled == pytest.approx(place_models(vectors, "pca").coordinates[order], abs=1e-6)


def test_an_unknown_method_is_refused():
    with pytest.raises((ValueError, TypeError)):
        place_models(make_clusters(), "umap")
