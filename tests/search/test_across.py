"""Models of two bases, compared through data sets that both know."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltadex.search.across import (
    Correspondence,
    ModelAcross,
    probabilities,
    ranked_across,
    scores_of,
)
from deltadex.search.panels import Columns, PanelScores, shared_sets

N_SETS, N_MODELS, LATENT, WIDTH = 24, 30, 6, 40


class KnownScores(PanelScores):
    """Columns and a kernel that are given."""

    kernel = None

    def __init__(self, names, columns=None, kernel=None):
        self.sets = tuple(SimpleNamespace(sha256=name) for name in names)
        self.columns, self.kernel = columns, kernel

    def probabilities(self, columns):
        return np.clip(columns.z, 0.0, 1.0)


def make_base(seed, sets, models, *, noise=0.1):
    """What a base sees of data sets and models with some latent vectors: through a random map of
    its own, with noise."""
    rng = np.random.default_rng(seed)
    map = rng.standard_normal((LATENT, WIDTH))
    gradients, updates = (
        rows @ map + noise * rng.standard_normal((len(rows), WIDTH)) for rows in (sets, models)
    )
    gradients, updates = (x / np.linalg.norm(x, axis=1)[:, None] for x in (gradients, updates))
    cosines = gradients @ updates.T
    columns = Columns(z=cosines, cosines=np.stack([cosines, cosines]))
    return KnownScores([str(place) for place in range(len(sets))], columns, gradients @ gradients.T)


@pytest.fixture(scope="module")
def bases():
    rng = np.random.default_rng(0)
    sets, models = (rng.standard_normal((n, LATENT)) for n in (N_SETS, N_MODELS))
    return make_base(1, sets, models), make_base(2, sets, models)


def test_models_of_the_same_data_are_nearest_though_no_set_of_the_panel_is_theirs(bases):
    left, right = bases

    cosines = Correspondence.of(left, right).cosines(left.columns, right.columns)

    assert (cosines.argmax(axis=1) == np.arange(N_MODELS)).mean() > 0.9
    assert (np.abs(cosines) < 1 + 1e-9).all()


@given(seed=st.integers(0, 2**32 - 1))
def test_the_order_of_data_sets_and_models_and_the_direction_change_nothing(bases, seed):
    left, right = bases
    order = np.random.default_rng(seed).permutation(N_SETS).tolist()
    models = np.random.default_rng(seed).permutation(N_MODELS)
    cosines = Correspondence.of(left, right).cosines(left.columns, right.columns)

    reordered = Correspondence.of(left, right, (order, order))
    back = Correspondence.of(right, left)

    again = reordered.cosines(left.columns, right.columns.take(models))
    np.testing.assert_allclose(again, cosines[:, models], atol=1e-8)
    np.testing.assert_allclose(back.cosines(right.columns, left.columns).T, cosines, atol=1e-8)


def test_evidence_is_the_likeliest_data_set_of_both(bases):
    left, right = bases

    evidence, which = Correspondence.of(left, right).shared_evidence(left.columns, right.columns)

    products = [
        np.outer(one, other)
        for one, other in zip(left.columns.z.clip(0), right.columns.z.clip(0), strict=True)
    ]
    np.testing.assert_allclose(evidence, np.max(products, axis=0))
    is_any = evidence > 0
    assert (which[is_any] == np.argmax(products, axis=0)[is_any]).all()


def test_shared_sets_are_told_by_their_bytes():
    left, right = KnownScores("abc"), KnownScores("xca")

    assert shared_sets([left, right]) == [[0, 2], [2, 1]]


def test_probability_rises_with_cosine_and_evidence():
    cosines = np.array([0.1, 0.5, 0.5, 0.9])
    evidence = np.array([0.0, 0.0, 0.5, 0.5])

    known = probabilities(scores_of(cosines, evidence))

    assert (np.diff(known) > 0).all()
    assert ((known > 0) & (known < 1)).all()


def make_model(model, probability, z=0.0, base="b"):
    own = dict.fromkeys(("data", "dataset", "author", "run"))
    return ModelAcross(
        rank=0,
        model=model,
        base=base,
        probability=probability,
        verdict="no model stands out",
        z=z,
        fdr=None,
        cosine=0.0,
        score=0.0,
        data_probability=0.0,
        **own,
    )


def test_bases_are_ranked_together_and_the_rate_never_falls():
    found = [
        make_model("small", None, z=9.0, base="c"),
        make_model("second", 0.5),
        make_model("first", 0.9, base="a"),
        make_model("last", 0.45),
    ]

    ranked = ranked_across(found, 4)

    assert [model.model for model in ranked] == ["first", "second", "last", "small"]
    assert [model.rank for model in ranked] == [1, 2, 3, 4]
    np.testing.assert_allclose([model.fdr for model in ranked[:3]], [0.1, 0.3, 1.15 / 3])
    assert ranked[3].fdr is None
