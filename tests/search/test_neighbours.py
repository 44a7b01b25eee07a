from dataclasses import replace

import numpy as np
import pytest
from catalogs import PLAIN, SKETCH, make_catalog, make_indexed, refused

from deltadex.errors import BadFilter, EmptyCatalog, RequestError, UnknownModel, UnknownRecipe
from deltadex.search import FreshQuery, StoredQuery, explain_pair, find_similar, neighbours
from deltadex.search.labelled import PooledMeans
from deltadex.search.neighbours import candidates_of, nearest, resolve
from deltadex.store import Filters

OF_A_SKETCH = 0.25
"""How far cosines of sketches of 2 × 64 numbers are from those of the vectors."""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    made = make_catalog(
        tmp_path_factory.mktemp("neighbours") / "catalog.duckdb",
        make_indexed("a", [1, 0, 0, 0], dataset="sst2", author="x"),
        make_indexed("a-twin", [1, 0, 0, 0], dataset="cola", author="y", run="r"),
        make_indexed("b", [1, 1, 0, 0], dataset="sst2", author="y", recipes=(SKETCH, PLAIN)),
        make_indexed("c", [0, 1, 0, 0], author="x"),
        make_indexed("d", [-1, 0, 0, 0], dataset="cola"),
        make_indexed("a", [0, 0, 1, 0], base="other"),
        make_indexed("e", [0, 0, 1, 1], base="other"),
        refused("bad"),
    )
    with made:
        yield made


def fresh(vector, base="base", recipe=SKETCH):
    made = make_indexed("./new", vector, recipes=(recipe,))
    (fingerprint,) = made.fingerprints
    return FreshQuery(
        model="./new", base=base, fingerprint=fingerprint, dataset="mnli", slots=made.slots
    )


def names(found):
    return [one.model for one in found.neighbours]


def test_a_stored_model_leaves_out_itself_and_no_twin(catalog):
    found = find_similar(catalog, StoredQuery("a", "base"), k=10)

    assert names(found) == ["a-twin", "b", "c", "d"]
    assert [one.cosine for one in found.neighbours] == pytest.approx(
        [1, 0.5**0.5, 0, -1], abs=OF_A_SKETCH
    )
    assert [one.z for one in found.neighbours] == sorted(
        (one.z for one in found.neighbours), reverse=True
    )
    assert [one.rank for one in found.neighbours] == [1, 2, 3, 4]


def test_a_fresh_model_meets_every_stored_one_and_ties_come_by_id(catalog):
    found = find_similar(catalog, fresh([1, 0, 0, 0]), k=3)

    assert names(found) == ["a", "a-twin", "b"]
    assert (found.model, found.dataset) == ("./new", "mnli")
    assert len(catalog.models(base="base", status="indexed")) == 5


def test_a_model_that_is_removed_meanwhile_is_no_answer(tmp_path):
    vectors = {"a": [1, 0, 0, 0], "a-twin": [1, 0, 0, 0], "b": [1, 1, 0, 0], "c": [0, 1, 0, 0]}
    models = (make_indexed(id, vector) for id, vector in vectors.items())
    with make_catalog(tmp_path / "c.duckdb", *models) as catalog:
        view, query = resolve(catalog, StoredQuery("a", "base"), None)
        before = nearest(view, query, k=10)
        assert (names(before), before.compared) == (["a-twin", "b", "c"], 3)

        catalog.remove("a-twin")

        after = nearest(view, query, k=10)
        assert (names(after), after.compared) == (["b", "c"], 2)
        assert after.calibration == before.calibration
        assert {one.model: one.z for one in after.neighbours}.items() <= {
            one.model: one.z for one in before.neighbours
        }.items()
        assert names(nearest(view, query, k=1)) == ["b"]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"dataset": "cola"}, ["a-twin", "d"]),
        ({"author": "x"}, ["c"]),
        ({"dataset": "cola", "author": "y"}, ["a-twin"]),
        ({"where": "dataset IS NULL"}, ["c"]),
        ({"where": "run = 'r' OR author = 'x'"}, ["a-twin", "c"]),
        ({"dataset": "mnli"}, []),
    ],
)
def test_filters_decide_who_may_answer(catalog, filters, expected):
    found = find_similar(catalog, StoredQuery("a", "base"), k=2, filters=Filters(**filters))

    assert names(found) == expected


@pytest.mark.parametrize("recipe", [SKETCH, PLAIN])
def test_copies_count_in_no_rate_whichever_way_the_query_comes(tmp_path, recipe):
    rng = np.random.default_rng(4)
    vectors = rng.normal(size=(3, 4)).repeat(8, axis=0) + 0.4 * rng.normal(size=(24, 4))
    known = {"recipes": (recipe,)}
    models = [
        make_indexed(f"m{i:02d}", v, dataset=f"d{i // 8}", **known) for i, v in enumerate(vectors)
    ]
    copies = [make_indexed(f"copy{i}", vectors[0], **known) for i in range(3)]

    def rows(catalog, query):
        found = find_similar(catalog, query, k=30).neighbours
        rates = [one.fdr for one in found]
        assert rates == sorted(rates)
        return [(one.model, one.z, one.fdr, one.verdict) for one in found if one.verdict != "copy"]

    with make_catalog(tmp_path / "c.duckdb", *models) as catalog:
        stored = rows(catalog, StoredQuery("m00"))
        assert rows(catalog, fresh(vectors[0], recipe=recipe)) == stored
        for copy in copies:
            catalog.record(copy)
        again = [rows(catalog, query) for query in (StoredQuery("m00"), StoredQuery("copy1"))]
        assert again[0] == again[1] == rows(catalog, fresh(vectors[0], recipe=recipe))
    assert "copy" not in {verdict for *_, verdict in stored}
    assert min(fdr for _, _, fdr, _ in stored) < 1.0


@pytest.fixture(scope="module")
def two_kinds(tmp_path_factory):
    """40 models of two kinds, a few adapters among them."""
    vectors = np.random.default_rng(0).normal(size=(40, 4)) + 0.5
    models = [
        make_indexed(f"m{i:02d}", v, author=f"a{i % 2}", kind="adapter" if i % 4 == 0 else "full")
        for i, v in enumerate(vectors)
    ]
    with make_catalog(tmp_path_factory.mktemp("k") / "c.duckdb", *models) as catalog:
        yield catalog


@pytest.mark.parametrize("kind", ["full", "adapter"])
@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("author", [None, "a1"])
def test_of_a_large_family_the_nearest_of_each_kind_are_scored(
    two_kinds, monkeypatch, kind, k, author
):
    monkeypatch.setattr(neighbours, "COMPARED_WHOLE", 15)
    monkeypatch.setattr(neighbours, "CANDIDATES", 8)
    query = replace(fresh([1, 2, 3, 4]), kind=kind)
    view, resolved = resolve(two_kinds, query, None)
    allowed = None if author is None else view.rows_where(Filters(author=author))

    rows = candidates_of(view, resolved, k, allowed)

    centred = PooledMeans.of(view).centred([kind], resolved.vector[None, :])[0]
    scores = view.vectors(view.keys).astype(float) @ centred
    expected = []
    for of_kind in ("full", "adapter"):
        allowed_rows = range(40) if allowed is None else allowed.tolist()
        own = [row for row in allowed_rows if view.kinds[row] == of_kind]
        expected += sorted(own, key=lambda row: -scores[row])[: max(8, 2 * k)]
    assert rows.tolist() == sorted(expected)


def test_a_recipe_without_sketches_compares_vectors(catalog):
    (found,) = find_similar(catalog, fresh([1, 0, 0, 0], recipe=PLAIN), k=9).neighbours

    assert (found.model, found.cosine) == ("b", pytest.approx(0.5**0.5))


OF_PLAIN = {"recipe": "mean-factors"}


@pytest.mark.parametrize(
    ("query", "options", "error", "message"),
    [
        (StoredQuery("nowhere"), {}, UnknownModel, "nowhere"),
        (StoredQuery("bad"), {}, RequestError, "not indexed .truncated: short."),
        (StoredQuery("b"), {"recipe": "none-such"}, UnknownRecipe, "none-such.*sketch"),
        (StoredQuery("c"), OF_PLAIN, UnknownRecipe, "c has no mean-factors"),
        (fresh([1, 0, 0, 0]), OF_PLAIN, RequestError, "under sketch, not mean-factors"),
        (fresh([1, 0, 0, 0], base="nobody"), {}, EmptyCatalog, "no model of nobody has a sketch"),
        (StoredQuery("b"), {"filters": Filters(where="1 = 1; DROP")}, BadFilter, "where"),
    ],
)
def test_what_cannot_be_answered_is_refused_by_name(catalog, query, options, error, message):
    with pytest.raises(error, match=message):
        find_similar(catalog, query, **({"k": 3} | options))


def test_a_stored_and_a_fresh_query_explain_alike(catalog):
    by_name = explain_pair(catalog, StoredQuery("b"), "c")
    by_weights = explain_pair(catalog, fresh([1, 1, 0, 0]), "c")

    assert by_name["similarity"] == pytest.approx(0.5**0.5, abs=OF_A_SKETCH)
    assert by_name["slots"] == by_weights["slots"]
    assert (by_name["query"], by_weights["query"]) == ("b", "./new")
