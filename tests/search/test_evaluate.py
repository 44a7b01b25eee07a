import pytest
from catalogs import PLAIN, SKETCH, make_catalog, make_indexed

from deltadex.records import ModelRecord, Refused
from deltadex.search import evaluate, explain_pair
from deltadex.search.neighbours import FreshQuery, StoredQuery

BOTH = (SKETCH, PLAIN)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    made = make_catalog(
        tmp_path_factory.mktemp("evaluated") / "catalog.duckdb",
        make_indexed("a1", [1, 0, 0, 0], dataset="a", author="x", recipes=BOTH),
        make_indexed("a2", [1, 0.1, 0, 0], dataset="a", author="x", recipes=BOTH),
        make_indexed("b1", [0, 1, 0, 0], dataset="b", author="y", recipes=BOTH),
        make_indexed("b2", [0.9, 0.1, 0, 0], dataset="b", author="z", run="r"),
        make_indexed("u", [0, 0, 1, 0], recipes=BOTH),
        make_indexed("c1", [1, 0, 0, 0], dataset="c", base="other"),
        make_indexed("c2", [1, 0, 0, 0], dataset="c", base="other"),
        Refused(
            model=ModelRecord(id="bad", base="base", dataset="a"),
            code="truncated",
            reason="",
        ),
    )
    with made:
        yield made


def test_only_indexed_models_of_each_family_count(catalog):
    found = evaluate(catalog)

    assert (found["recipe"], found["models"], found["queries"]) == ("sketch", 7, 6)
    base, other = found["by_base"]["base"], found["by_base"]["other"]
    # b1's nearest is b2, and b2 is a copy of those of a
    assert {name: group["purity"] for name, group in base["by_dataset"].items()} == {
        "a": 1.0,
        "b": 0.5,
    }
    assert {name: group["purity"] for name, group in other["by_dataset"].items()} == {"c": 1.0}


def test_a_stored_and_a_fresh_query_explain_alike(catalog):
    model = make_indexed("new", [0, 1, 0, 0])
    (fingerprint,) = model.fingerprints
    fresh = FreshQuery(model="new", base="base", fingerprint=fingerprint, slots=model.slots)

    by_name = explain_pair(catalog, StoredQuery("b1"), "b2")
    by_weights = explain_pair(catalog, fresh, "b2")

    # 64 numbers a block, of two bits: three standard errors
    assert by_name["similarity"] == pytest.approx(0.1 / (0.81 + 0.01) ** 0.5, abs=3 / 192**0.5)
    assert by_name["slots"] == by_weights["slots"]
    assert (by_name["query"], by_weights["query"]) == ("b1", "new")
