"""The coarse index of large families: what it finds, and that it follows the catalog."""

import faiss
import numpy as np
import pytest
from catalogs import make_indexed

from deltadex.records import Recipe
from deltadex.store import Catalog
from deltadex.store.derived import index

RECIPE = Recipe(name="sketch", rank=1, dim=64)


def _fill(catalog, start, stop):
    centres = np.random.default_rng(0).normal(size=(12, 64))
    for number in range(start, stop):
        rng = np.random.default_rng(100 + number)
        vector = centres[number % 12] + 0.3 * rng.normal(size=64)
        catalog.record(make_indexed(f"m{number:04}", vector, base="b", recipes=(RECIPE,)))


# `_fill` makes 12 clusters of at most 20 models: cosines of 0.9 within one, 0 ± 0.13 between two,
# where a code of four bits errs by 0.01. So the 40 candidates hold a query's whole cluster, and the
# five nearest are among them whatever the draw: 100 others missed none of 24,000 neighbours.
def _agree(view, row, k=5):
    """Share of the nearest by brute force that are among the candidates."""
    vectors = view.vectors()
    exact = np.argsort(-(vectors @ vectors[row]), kind="stable")[:k]
    return len(np.intersect1d(view.candidates(vectors[row], 40), exact)) / k


@pytest.mark.slow
def test_a_large_family_is_answered_from_a_shortlist_that_is_trained_as_it_grows(path, monkeypatch):
    monkeypatch.setattr(index, "FLAT_UP_TO", 40)
    monkeypatch.setattr(index, "PERSIST_FROM", 2)
    with Catalog.open(path) as catalog:
        _fill(catalog, 0, 41)
        few_lists = faiss.extract_index_ivf(catalog.family("b", RECIPE).index._index).nlist
        _fill(catalog, 41, 41 * (index.RETRAIN_AT + 1))
        view = catalog.family("b", RECIPE)

        assert not view.index.is_exact
        assert min(_agree(view, row) for row in range(0, len(view), 8)) == 1.0
        assert faiss.extract_index_ivf(view.index._index).nlist > few_lists

        # additions and removals do not train it again
        monkeypatch.setattr(index, "make_index", None)
        _fill(catalog, len(view), 240)
        catalog.remove("m0007")
        catalog.remove("m0130")
        view = catalog.family("b", RECIPE)

        assert min(_agree(view, row) for row in range(0, len(view), 9)) == 1.0
        assert view.index.keys.tolist() == view.keys.tolist()
