"""Axes of all layers against scikit-learn's PCA."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_layers import make_hidden, make_rows, permuted
from scipy.stats import spearmanr
from sklearn.decomposition import PCA

from deltadex.study.layers import layer_norms as module
from deltadex.study.layers.layer_norms import layer_pca


@pytest.mark.parametrize("unit_norm", [False, True])
def test_axes_agree_with_scikit_learn(unit_norm):
    rows = make_rows(make_hidden(layers=4, dim=9, apart=2))
    vectors = rows.vectors.astype(np.float64)
    if unit_norm:
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    oracle = PCA(n_components=5, svd_solver="full").fit(vectors)

    pca = layer_pca(rows, unit_norm=unit_norm, n_axes=5)

    signs = np.sign(np.sum(oracle.components_ * pca.axes, axis=1))
    assert pca.explained == pytest.approx(oracle.explained_variance_ratio_, rel=1e-5)
    assert pca.axes == pytest.approx(oracle.components_ * signs[:, None], abs=1e-5)
    assert pca.coordinates == pytest.approx(oracle.transform(vectors) * signs, abs=1e-5)
    assert pca.depth_correlation == pytest.approx(
        spearmanr(pca.coordinates[:, 0], rows.layer).statistic, abs=1e-6
    )


def test_the_largest_entry_of_each_axis_is_positive():
    pca = layer_pca(make_rows(make_hidden(dim=9)))

    largest = np.abs(pca.axes).argmax(axis=1)

    assert (pca.axes[np.arange(len(pca.axes)), largest] > 0).all()


def test_centroids_are_the_means_of_the_coordinates():
    rows = make_rows(make_hidden(layers=3, apart=4))

    pca = layer_pca(rows)

    for i, layer in enumerate(rows.layers):
        own = pca.coordinates[rows.layer == layer]
        assert pca.centroids[i] == pytest.approx(own.mean(axis=0), abs=1e-5)


def test_the_path_of_planted_centroids_has_its_length():
    hidden = np.zeros((4, 30, 3), dtype=np.float32)
    hidden[1:, :, 0] = 3
    hidden[2:, :, 1] = 4
    hidden[3, :, 2] = -12

    pca = layer_pca(make_rows(hidden))

    assert pca.steps == pytest.approx([3, 4, 12])
    assert pca.path_length == pytest.approx(19)
    assert all(plane <= full + 1e-9 for plane, full in zip(pca.plane_steps, pca.steps, strict=True))


def test_unit_norm_takes_scale_away():
    hidden = make_hidden(layers=3)
    grown = hidden * np.array([1, 5, 25], dtype=np.float32)[:, None, None]

    plain, grown = (layer_pca(make_rows(h), unit_norm=True) for h in (hidden, grown))

    assert grown.explained == pytest.approx(plain.explained, abs=1e-6)


@given(seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_the_order_of_rows_changes_no_axis(seed):
    rows = make_rows(make_hidden(dim=5, apart=3))
    order = np.random.default_rng(seed).permutation(len(rows.layer))

    pca, shuffled = layer_pca(rows), layer_pca(permuted(rows, order))

    assert shuffled.axes == pytest.approx(pca.axes, abs=1e-6)
    assert shuffled.steps == pytest.approx(pca.steps, abs=1e-6)
    assert shuffled.coordinates == pytest.approx(pca.coordinates[order], abs=1e-5)


def test_blocks_of_any_size_give_the_same_axes(monkeypatch):
    rows = make_rows(make_hidden())
    whole = layer_pca(rows)

    monkeypatch.setattr(module, "BLOCK_ROWS", 7)

    assert layer_pca(rows).axes == pytest.approx(whole.axes, abs=1e-9)


def test_rows_that_are_all_equal_have_no_axes_to_speak_of():
    pca = layer_pca(make_rows(np.ones((2, 20, 3), dtype=np.float32)))

    assert pca.explained == (0.0, 0.0, 0.0)
    assert pca.depth_correlation is None
    assert pca.path_length == 0


def test_there_are_no_more_axes_than_dimensions():
    pca = layer_pca(make_rows(make_hidden(dim=2)))

    assert pca.axes.shape == (2, 2)
    assert sum(pca.explained) == pytest.approx(1)
