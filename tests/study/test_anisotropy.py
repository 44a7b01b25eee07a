"""Shares of the largest σ² against full SVDs, streamed, and of a few rows."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deltadex.study.geometry import moments
from deltadex.study.geometry.moments import Moments, RowSums, anisotropy


def make_rows(n, dim, *, offset=0.0, decay=0.9, seed=0):
    rng = np.random.default_rng(seed)
    spread = rng.standard_normal((n, dim)) * decay ** np.arange(dim)
    return spread + offset * rng.standard_normal(dim)


def share_by_svd(rows):
    sigma = torch.linalg.svdvals(torch.from_numpy(rows.astype(np.float64))).numpy()
    return sigma[0] ** 2 / (sigma**2).sum()


def stream(rows, cuts):
    moments, sums = Moments(rows.shape[1]), RowSums(rows.shape[1])
    for part in np.split(rows, cuts):
        moments.update(part)
        sums.update(part)
    return moments, sums


@given(
    n=st.integers(2, 60),
    dim=st.integers(2, 12),
    offset=st.sampled_from([0.0, 1.0, 1e4]),  # where sums about the origin lose seven digits
    cuts=st.lists(st.integers(0, 60), max_size=4),
    seed=st.integers(0, 99),
)
@settings(deadline=None)
def test_streamed_equals_svd_however_it_is_cut(n, dim, offset, cuts, seed):
    rows = make_rows(n, dim, offset=offset, seed=seed)

    found = anisotropy(*stream(rows, sorted(cuts)))

    assert found.centred == pytest.approx(share_by_svd(rows - rows.mean(axis=0)), rel=1e-11)
    assert found.uncentred == pytest.approx(share_by_svd(rows), rel=1e-9)
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    of_pairs = (units @ units.T)[~np.eye(n, dtype=bool)]
    assert found.mean_cosine == pytest.approx(of_pairs.mean(), abs=1e-12)
    assert (found.rows, found.cosine_rows) == (n, n)


def test_large_gram_matrices_go_by_lanczos_to_the_same_digits(monkeypatch):
    gram = np.cov(make_rows(100, 60, decay=0.99).T)
    values, vectors = moments.top_eigenpairs(gram, 3)

    monkeypatch.setattr(moments, "LARGE_SIDE", 10)
    again, others = moments.top_eigenpairs(gram, 3)

    np.testing.assert_allclose(again, values, rtol=1e-12)
    np.testing.assert_allclose(np.abs(np.sum(vectors * others, axis=0)), 1.0, atol=1e-9)


@pytest.mark.parametrize("rows", [np.zeros((0, 4)), np.ones((1, 4)), np.zeros((9, 4))])
def test_what_has_no_spread_has_no_anisotropy(rows):
    found = anisotropy(*stream(rows, []))

    assert (found.centred, found.uncentred, found.mean_cosine) == (None, None, None)


def test_equal_rows_point_one_way_and_have_no_centred_anisotropy():
    rows = np.tile(np.random.default_rng(0).standard_normal(90), (1000, 1))

    found = anisotropy(*stream(rows, []))

    assert found.centred is None
    assert found.uncentred == pytest.approx(1.0, rel=1e-6)
    assert found.mean_cosine == pytest.approx(1.0)
