"""Candidates from Qdrant against brute force, also where the export is not the catalog's."""

import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qdrant_client import models
from qdrant_families import (
    BASE,
    RECIPE,
    export,
    insert,
    integer_vectors,
    make_catalog,
    unit_vectors,
)
from qdrant_server import qdrant_server

from deltadex.errors import EngineError, RecipeMismatch, RequestError
from deltadex.store import Catalog, use_exported
from deltadex.store.qdrant import index as index_module
from deltadex.store.qdrant.index import QdrantIndex


def as_good(view, query, n, allowed):
    """Keys of the models whose inner product is not below the n-th best of those allowed."""
    vectors = view.vectors(view.keys)
    scores = {int(k): float(v @ query) for k, v in zip(view.keys, vectors, strict=True)}
    scores = {key: score for key, score in scores.items() if key in set(allowed.tolist())}
    least = sorted(scores.values(), reverse=True)[:n][-1:]
    return {key for key, score in scores.items() if least and score >= least[0]}


def assert_as_brute_force(catalog, seed):
    view, rng = catalog.family(BASE, RECIPE), np.random.default_rng(seed)
    index = view.index
    assert isinstance(index, QdrantIndex)
    assert np.array_equal(index.keys, view.keys)
    for n in (5, len(view) + 9):
        query = rng.integers(-1, 2, RECIPE.dim).astype(np.float32)
        query[0] += 0.5
        allowed = view.keys[rng.random(len(view)) < rng.random()]

        found = index.nearest(query, n)
        of_allowed = index.nearest(query, n, allowed)

        assert len(found) == len(set(found.tolist()))
        assert set(found.tolist()) == as_good(view, query, n, view.keys)
        assert set(of_allowed.tolist()) == as_good(view, query, n, allowed)


@settings(max_examples=3, deadline=None)
@given(st.integers(1, 70), st.integers(0, 99), st.integers(0, 12), st.integers(0, 12))
def test_nearest_are_those_of_brute_force_with_ties_filters_and_an_older_export(
    tmp_path_factory, n, seed, n_added, n_gone
):
    path = tmp_path_factory.mktemp("q") / "c.duckdb"
    make_catalog(path, n, seed=seed, vectors=integer_vectors)
    with qdrant_server() as server, Catalog.open(path) as catalog:
        export(catalog, server.target())
        for key in range(1, min(n_gone, n - 1) + 1):
            catalog.remove(f"m{key}")
        if n_added:
            insert(catalog, range(n + 1, n + n_added + 1), integer_vectors(n_added, seed + 1))
        use_exported(catalog, server.target())

        assert_as_brute_force(catalog, seed)
        assert len(catalog.family(BASE, RECIPE).index._known[1]) == n_added


@pytest.fixture
def target(server):
    return server.target()


@pytest.fixture
def catalog(path, target):
    with Catalog.open(make_catalog(path, 90)) as opened:
        export(opened, target)
        yield opened


@pytest.fixture
def view(catalog, target):
    """Its family, searched in the export."""
    use_exported(catalog, target)
    return catalog.family(BASE, RECIPE)


@pytest.mark.usefixtures("catalog")
def test_points_of_another_catalog_are_not_taken_for_models(target, tmp_path):
    make_catalog(tmp_path / "other.duckdb", 40, seed=9)
    with Catalog.open(tmp_path / "other.duckdb") as other:
        use_exported(other, target)

        assert len(other.family(BASE, RECIPE).index._known[1]) == 40
        assert_as_brute_force(other, 1)


def test_likely_candidates_pass_the_filter_and_hold_most_of_the_nearest(view, monkeypatch):
    monkeypatch.setattr(index_module, "EXACT_UP_TO", 0)
    allowed = view.keys[::3]
    assert not view.index.is_exact
    hits = []
    for query in unit_vectors(20, 7):
        found = view.index.nearest(query, 10, allowed)
        assert np.isin(found, allowed).all()
        hits.append(len(as_good(view, query, 10, allowed) & set(found[:10].tolist())))

    assert np.mean(hits) >= 9


def test_models_that_the_export_lacks_are_counted_aloud_up_to_a_number(
    catalog, target, caplog, monkeypatch
):
    use_exported(catalog, target)
    assert len(catalog.family(BASE, RECIPE).index._known[1]) == 0
    monkeypatch.setattr(index_module, "IDS_AT_ONCE", 7)  # a filter of many keys is asked in parts
    insert(catalog, range(91, 96), unit_vectors(5, 3))
    with caplog.at_level(logging.WARNING, logger="deltadex"):
        assert_as_brute_force(catalog, 3)

    assert "lacks 5 of 95 models, compared in memory" in caplog.text
    assert f"deltadex export --to {target}" in caplog.text
    monkeypatch.setattr(index_module, "MOST_MISSING", 5)
    insert(catalog, [96], unit_vectors(1, 4))
    with pytest.raises(EngineError, match=r"lacks 6 of 96 models: run `deltadex export"):
        _ = catalog.family(BASE, RECIPE).index


def test_points_that_are_removed_while_a_catalog_is_open_are_compared_in_memory(view, server):
    assert len(view.index.nearest(unit_vectors(1)[0], 90)) == 90
    server.local.delete("models", models.PointIdsList(points=[3, 4, 5]))

    found = view.index.nearest(view.vectors(np.array([4]))[0], 90)

    assert found[0] == 4
    assert set(found.tolist()) == set(view.keys.tolist())


def test_an_engine_is_the_last_export_a_target_or_none(catalog, server, tmp_path):
    make_catalog(tmp_path / "other.duckdb", 3)
    with Catalog.open(tmp_path / "other.duckdb") as other:
        with pytest.raises(RequestError, match="no export of this catalog"):
            use_exported(other, "qdrant")
        other.remove("m1")
        insert(other, [1], unit_vectors(1), base="another/base")
        for id in ("m2", "m3"):
            other.remove(id)
        with pytest.raises(RecipeMismatch, match="not vectors of this catalog"):
            use_exported(other, server.target())

    use_exported(catalog, "qdrant")
    assert isinstance(catalog.family(BASE, RECIPE).index, QdrantIndex)
