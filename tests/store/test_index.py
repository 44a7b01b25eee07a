import logging

import numpy as np
import pytest
from catalogs import make_indexed
from searching import search

from deltadex.errors import StoreError
from deltadex.records import Recipe
from deltadex.store import Catalog
from deltadex.store.derived import index
from deltadex.store.files import index_folder

RECIPE = Recipe(name="sketch", rank=1, dim=5)


def _record(catalog, id, vector):
    known = {"base": "b", "signature": str(vector)}
    catalog.record(make_indexed(id, vector, recipes=(RECIPE,), **known))


def _brute_force(catalog, query, k):
    ids, vectors = catalog.family("b", RECIPE).by_id()
    scores = vectors.astype(np.float64) @ query.astype(np.float64)
    pairs = zip(ids, scores.tolist(), strict=True)
    return sorted(pairs, key=lambda pair: (-round(pair[1], 9), pair[0]))[:k]


@pytest.fixture
def catalog(tmp_path, monkeypatch):
    monkeypatch.setattr(index, "PERSIST_FROM", 2)
    with Catalog.open(tmp_path / "c.duckdb") as opened:
        yield opened


def _fill(catalog, n, seed=0):
    rng = np.random.default_rng(seed)
    for number in range(n):
        _record(catalog, f"m{number:03}", rng.normal(size=5))


@pytest.mark.parametrize("harm", ["delete", "truncate", "flip", "swap", "note"])
def test_a_harmed_index_file_is_made_again(catalog, harm, caplog):
    _fill(catalog, 6)
    query = np.ones(5, dtype=np.float32)
    before = search(catalog, "b", RECIPE, query[None, :], 3)
    (data,) = index_folder(catalog.path).glob("*.faiss")
    note = data.with_suffix(".npz")
    content = bytearray(data.read_bytes())
    if harm == "delete":
        data.unlink()
    elif harm == "truncate":
        data.write_bytes(content[: len(content) // 2])
    elif harm == "flip":
        content[-3] ^= 1
        data.write_bytes(content)
    elif harm == "swap":
        data.write_bytes(b"IxFI" + bytes(40))
    else:
        note.write_text("nonsense")

    with caplog.at_level(logging.INFO, logger="deltadex"):
        after = search(catalog, "b", RECIPE, query[None, :], 3)

    assert after == before
    assert len(caplog.records) <= 1


def test_the_index_follows_additions_removals_and_changes(catalog):
    _fill(catalog, 5)
    query = np.ones(5, dtype=np.float32)
    _ = catalog.family("b", RECIPE).index
    _record(catalog, "new", np.ones(5))
    assert search(catalog, "b", RECIPE, query[None, :], 1)[0][0][0] == "new"
    catalog.remove("m002")
    _record(catalog, "new", -np.ones(5))

    assert len(catalog.family("b", RECIPE)) == 5
    assert search(catalog, "b", RECIPE, query[None, :], 5)[0] == [
        (id, pytest.approx(score)) for id, score in _brute_force(catalog, query, 5)
    ]


@pytest.mark.parametrize(
    "query", [np.full((1, 5), np.nan), np.zeros((1, 5)), np.ones((1, 4)), np.full((1, 5), np.inf)]
)
def test_queries_without_direction_are_refused(catalog, query):
    _fill(catalog, 3)

    with pytest.raises(ValueError, match="quer"):
        search(catalog, "b", RECIPE, query.astype(np.float32), 1)


def test_an_empty_family_has_no_neighbours(catalog):
    assert search(catalog, "b", RECIPE, np.ones((1, 5), np.float32), 3) == [[]]


def test_a_model_that_is_gone_gets_no_study(catalog):
    _record(catalog, "m", np.eye(5)[0])
    key = catalog.model("m").key
    catalog.remove("m")

    with pytest.raises(StoreError, match="removed or re-indexed"):
        catalog.studies(key).save("rank", {}, {})
