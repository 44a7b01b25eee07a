"""The coarse index of large families: what it finds, and that it follows the catalog."""

import faiss
import numpy as np
import pytest
from catalogs import make_indexed
from searching import search

from deltadex.records import Recipe
from deltadex.store import Catalog
from deltadex.store.derived import index

RECIPE = Recipe(name="sketch", rank=1, dim=64)


@pytest.fixture
def catalog(tmp_path, monkeypatch):
    """Families of more than 40 models count as large."""
    monkeypatch.setattr(index, "FLAT_UP_TO", 40)
    monkeypatch.setattr(index, "PERSIST_FROM", 2)
    with Catalog.open(tmp_path / "c.duckdb") as opened:
        yield opened


def _fill(catalog, start, stop):
    centres = np.random.default_rng(0).normal(size=(12, 64))
    for number in range(start, stop):
        rng = np.random.default_rng(100 + number)
        vector = centres[number % 12] + 0.3 * rng.normal(size=64)
        catalog.record(make_indexed(f"m{number:04}", vector, base="b", recipes=(RECIPE,)))


def _exact(catalog, query, k, allowed=None):
    ids, vectors = catalog.family("b", RECIPE).by_id()
    pairs = [
        (id, float(vector.astype(np.float64) @ query))
        for id, vector in zip(ids, vectors, strict=True)
        if allowed is None or id in allowed
    ]
    return sorted(pairs, key=lambda pair: (-round(pair[1], 9), pair[0]))[:k]


# `_fill` makes 12 clusters of at most 20 models: cosines of 0.9 within one, 0 ± 0.13 between two,
# where a code of four bits errs by 0.01. So the 40 candidates hold a query's whole cluster, and the
# five nearest are among them whatever the draw: 100 others missed none of 24,000 neighbours.
def _agree(catalog, number, k=5, allowed=None):
    """Share of the exact answer that the search gives, with exact scores."""
    (query,) = catalog.family("b", RECIPE).by_id([f"m{number:04}"])[1]
    (found,) = search(catalog, "b", RECIPE, query[None], k, allowed, n_candidates=40)
    exact = _exact(catalog, query.astype(np.float64), k, allowed)
    scores = dict(_exact(catalog, query.astype(np.float64), 10_000))
    assert all(score == pytest.approx(scores[id], abs=1e-6) for id, score in found)
    assert len(found) == len(exact)
    return len({id for id, _ in found} & {id for id, _ in exact}) / k


@pytest.mark.slow
def test_a_large_family_is_answered_from_a_shortlist(catalog):
    _fill(catalog, 0, 240)

    agreement = [_agree(catalog, number) for number in range(0, 240, 8)]

    assert not catalog.family("b", RECIPE).index.is_exact
    assert min(agreement) == 1.0


@pytest.mark.slow
def test_additions_and_removals_do_not_train_it_again(catalog, monkeypatch):
    _fill(catalog, 0, 120)
    _ = catalog.family("b", RECIPE).index
    monkeypatch.setattr(index, "make_index", _never)

    _fill(catalog, 120, 160)
    catalog.remove("m0007")
    catalog.remove("m0130")

    assert min(_agree(catalog, number) for number in range(0, 160, 9)) == 1.0
    assert len(catalog.family("b", RECIPE).index.keys) == 158


@pytest.mark.slow
def test_a_family_that_outgrew_its_lists_is_trained_again(catalog):
    _fill(catalog, 0, 41)
    first = catalog.family("b", RECIPE).index._index
    _fill(catalog, 41, 41 * (index.RETRAIN_AT + 1))

    second = catalog.family("b", RECIPE).index._index

    lists = [faiss.extract_index_ivf(made).nlist for made in (first, second)]
    assert lists[0] < lists[1]


def _never(*_):
    raise AssertionError("made anew")


def _made(vectors):
    """The empty index of a family of 60,000 of which each has one of these vectors."""

    def fetch(keys):
        return keys, vectors[keys % len(vectors)]

    return index.make_index(vectors.shape[1], np.arange(60_000), fetch)


def test_what_all_vectors_share_does_not_gather_them_in_one_list():
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(400, 64)) / 8
    vectors = 3.0 + centres[np.arange(8000) % 400] + rng.normal(size=(8000, 64)) / 30
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    made = _made(vectors)

    index.add(made, np.arange(8000), vectors)

    lists = faiss.extract_index_ivf(made).invlists
    sizes = [lists.list_size(one) for one in range(lists.nlist)]
    assert max(sizes) < 8000 / 40
