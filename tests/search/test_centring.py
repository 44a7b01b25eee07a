"""Mean removal: what it takes out, what it leaves, and that all paths agree on it."""

from dataclasses import replace

import numpy as np
import pytest
from catalogs import make_catalog, make_indexed
from hypothesis import given, settings
from hypothesis import strategies as st

from deltadex.records import Recipe
from deltadex.search import FreshQuery, StoredQuery, family_views, find_similar, labelled_models
from deltadex.search.centring import (
    REFERENCE,
    SHRINKAGE,
    PooledMeans,
    centre_scores,
    references,
    shrinkage,
)

CENTRED = Recipe(
    name="sketch",
    rank=2,
    dim=4,
    params=(("centring", "kind"), ("slot_blocks", "update:2,output:2")),
)


def _unit_rows(seed, n, dim=6):
    rows = np.random.default_rng(seed).normal(size=(n, dim))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(0, 12))
def test_scores_from_cosines_are_those_of_centred_vectors(seed, n_full, n_adapters):
    vectors = _unit_rows(seed, n_full + n_adapters)
    kinds = ["full"] * n_full + ["adapter"] * n_adapters
    ids = [f"m{i}" for i in range(len(kinds))]

    centred = PooledMeans.of(ids, kinds, vectors).centred(kinds, vectors)

    scores = centre_scores(vectors @ vectors.T, ids, kinds)
    assert scores == pytest.approx(centred @ centred.T, abs=1e-6)


def test_a_shared_direction_no_longer_makes_strangers_alike():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(60, 200)) / 200**0.5
    vectors = noise + 2 * _unit_rows(1, 1, 200)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    kinds, ids = ["full"] * 60, [str(i) for i in range(60)]
    cosines = vectors @ vectors.T
    others = ~np.eye(60, dtype=bool)

    centred = centre_scores(cosines, ids, kinds)

    assert cosines[others].mean() > 0.7
    assert abs(centred[others].mean()) < 0.05


def test_every_kind_has_its_own_mean():
    vectors = _unit_rows(3, 8)
    kinds = ["full"] * 4 + ["adapter"] * 4
    shifted = vectors.copy()
    shifted[4:] += 5.0
    shifted /= np.linalg.norm(shifted, axis=1, keepdims=True)
    ids = [str(i) for i in range(8)]

    means = PooledMeans.of(ids, kinds, shifted)

    for kind, rows in (("full", slice(0, 4)), ("adapter", slice(4, 8))):
        assert means.by_kind[kind] == pytest.approx(4 / (4 + SHRINKAGE) * shifted[rows].mean(0))


def test_one_model_alone_keeps_its_direction():
    vectors = _unit_rows(0, 1)

    centred = PooledMeans.of(["a"], ["full"], vectors).centred(["full"], vectors)

    assert centred == pytest.approx(vectors)
    assert shrinkage(0) == 0.0


@given(st.integers(1, 600), st.randoms(use_true_random=False))
def test_the_reference_depends_on_the_models_and_not_on_their_order(n, random):
    ids = [f"m{i}" for i in range(n)]
    mixed = ids[:]
    random.shuffle(mixed)

    first = {ids[row] for row in references(ids, ["full"] * n)["full"]}
    second = {mixed[row] for row in references(mixed, ["full"] * n)["full"]}

    assert first == second
    assert len(first) == min(n, REFERENCE)


@pytest.fixture
def catalog(tmp_path):
    rng = np.random.default_rng(4)
    models = [
        make_indexed(
            f"{kind}-{i}",
            rng.normal(size=4) + (2.0 if kind == "full" else -1.0),
            recipes=(CENTRED,),
            kind=kind,
            dataset=f"d{i % 2}",
        )
        for kind in ("full", "adapter")
        for i in range(5)
    ]
    return make_catalog(tmp_path / "c.duckdb", *models)


def test_search_and_evaluation_score_alike(catalog):
    family = labelled_models(*family_views(catalog, None, None))
    for row, name in enumerate(family.ids):
        (scores,) = family.score_block(np.array([row]))
        expected = {other: scores[i] for i, other in enumerate(family.ids) if i != row}

        answer = find_similar(catalog, StoredQuery(name), k=20)

        found = {one.model: one.score for one in answer.neighbours}
        assert found == pytest.approx(expected, abs=2e-3)
        assert [one.score for one in answer.neighbours] == sorted(found.values(), reverse=True)


def test_without_sketches_the_pooled_vectors_are_centred(tmp_path):
    rng = np.random.default_rng(5)
    models = [
        replace(make_indexed(f"m{i}", rng.normal(size=4) + 2, recipes=(CENTRED,)), slots=())
        for i in range(6)
    ]
    catalog = make_catalog(tmp_path / "p.duckdb", *models)
    ids, vectors = catalog.family("base", CENTRED).by_id()
    expected = centre_scores(vectors.astype(float) @ vectors.T, ids, ["full"] * 6)

    answer = find_similar(catalog, StoredQuery("m0"), k=5)

    found = {one.model: one.score for one in answer.neighbours}
    assert found == pytest.approx({n: expected[0, i] for i, n in enumerate(ids) if i}, abs=1e-6)


def test_a_copy_of_the_other_kind_shows_in_the_plain_cosine(catalog):
    copied = make_indexed("copy", [3, 1, -2, 1], recipes=(CENTRED,), kind="adapter")
    catalog.record(copied)
    (fingerprint,) = copied.fingerprints
    query = FreshQuery(
        model="new", base="base", fingerprint=fingerprint, kind="full", slots=copied.slots
    )

    by_name = {one.model: one for one in find_similar(catalog, query, k=20).neighbours}

    assert by_name["copy"].cosine == pytest.approx(1.0, abs=1e-3)
    assert by_name["copy"].score < 1.0
