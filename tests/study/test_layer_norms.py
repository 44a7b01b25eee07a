"""Norms, growth and axes of layers against NumPy, SciPy and scikit-learn on everything at once."""

import numpy as np
import pytest
from planted_layers import make_hidden, make_rows
from scipy.stats import spearmanr
from sklearn.decomposition import PCA

from deltadex.study.layers.layer_rows import fit_growth, layer_pca, row_norms, unit_rows


@pytest.mark.parametrize(
    ("rate", "verdict", "exponential"),
    [(1.045, "grow", True), (0.951, "shrink", True), (1.0, "flat", False)],
)
def test_a_planted_trend_is_named(rate, verdict, exponential):
    growth = fit_growth(range(8), [3 * rate**layer for layer in range(8)])

    assert growth.rate == pytest.approx(rate)
    assert growth.at(5) == pytest.approx(3 * rate**5)
    assert growth.rate_interval == pytest.approx((rate, rate))
    assert (growth.verdict, growth.exponential) == (verdict, exponential)
    assert growth.r2 == pytest.approx(float(exponential))


def test_equal_steps_are_not_exponential_three_layers_leave_doubt_and_two_have_no_trend():
    linear = fit_growth(range(40), [1 + 2.0 * layer for layer in range(40)])
    short = fit_growth(range(3), [1.0, 1.3, 1.45])

    assert (linear.verdict, linear.exponential) == ("grow", False)
    assert linear.to_json()["verdict"] == "grow"
    assert short.r2 > 0.85  # it is .93, and Student's t of one degree of freedom 12.7
    assert short.verdict == "flat"
    for means in ([1.0, 2.0], [1.0, 0.0, 2.0]):  # nor one with a norm of zero
        assert fit_growth(range(len(means)), means) is None


def test_unit_rows_have_length_one_zero_stays_zero_and_large_norms_do_not_overflow_in_float32():
    vectors = make_hidden(layers=1, tokens=5)[0].copy()
    vectors[2] = 0

    lengths = np.linalg.norm(unit_rows(vectors), axis=1)

    assert lengths == pytest.approx([1, 1, 0, 1, 1])
    assert row_norms(np.full((2, 4), 2e19, dtype=np.float32)) == pytest.approx([4e19, 4e19])


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
    assert (pca.axes[np.arange(5), np.abs(pca.axes).argmax(axis=1)] > 0).all()
    for i, layer in enumerate(rows.layers):
        own = pca.coordinates[rows.layer == layer]
        assert pca.centroids[i] == pytest.approx(own.mean(axis=0), abs=1e-5)
