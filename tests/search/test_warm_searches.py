"""Searches of a catalog that has not changed: answered from memory, and as brute force answers."""

import numpy as np
import pytest
from catalogs import PLAIN, make_catalog, make_indexed

from deltadex.search import StoredQuery, find_similar, prepare_search
from deltadex.search.labelled import PooledMeans
from deltadex.store.session import Session

BOTH_KINDS = ("full", "adapter")


@pytest.fixture
def catalog(tmp_path):
    rng = np.random.default_rng(5)
    known = [{"kind": BOTH_KINDS[n % 2], "dataset": f"d{n % 3}"} for n in range(40)]
    models = [
        make_indexed(f"m{n:02}", rng.normal(size=4), recipes=(PLAIN,), **known[n])
        for n in range(40)
    ]
    with make_catalog(tmp_path / "c.duckdb", *models) as made:
        yield made


def _ask(catalog, id="m03", **options):
    found = find_similar(catalog, StoredQuery(id, "base"), k=5, recipe="mean-factors", **options)
    return [(one.model, one.dataset, round(one.cosine, 9)) for one in found.neighbours]


def _statements(patch):
    """The statements that sessions execute from now on."""
    seen = []
    for name in ("execute", "arrow"):
        method = getattr(Session, name)

        def listed(self, sql, values=None, method=method):
            seen.append(sql)
            return method(self, sql, values)

        patch.setattr(Session, name, listed)
    return seen


def test_a_warm_search_executes_no_statement(catalog, monkeypatch):
    prepare_search(catalog, "base", PLAIN)
    first = _ask(catalog)
    seen = _statements(monkeypatch)

    assert _ask(catalog) == first
    assert _ask(catalog, "m08") != first
    assert seen == []


def test_means_are_taken_out_by_kind():
    rng = np.random.default_rng(0)
    vectors, kinds = rng.normal(size=(9, 4)), [BOTH_KINDS[i % 2] for i in range(9)]
    means = PooledMeans({"full": rng.normal(size=4), "adapter": rng.normal(size=4)})

    centred = means.centred([*kinds, "other"], np.concatenate([vectors, vectors[:1]]))

    for row, kind in enumerate(kinds):
        rest = vectors[row] - means.by_kind[kind]
        np.testing.assert_allclose(centred[row], rest / np.linalg.norm(rest), atol=1e-12)
    np.testing.assert_allclose(centred[9], vectors[0] / np.linalg.norm(vectors[0]), atol=1e-12)
