import itertools
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from merges import contents, counts, merge, refused, write
from outcomes import OTHER, RECIPE, indexed, linear, unit

from deltadex.search import StoredQuery, find_similar
from deltadex.store import BaseRecord, Catalog, merge_catalogs
from deltadex.store.care import merging as merge_module


def test_a_merge_into_nothing_is_a_copy(a, b):
    x = indexed("x", seed=1, notes=("odd",), verified="crc")
    write(b, x, indexed("y", seed=2, recipe=OTHER), refused("z"))
    with Catalog.open(b) as catalog:
        catalog.save_base(
            BaseRecord(
                base="base", revision="r", architecture="bert", shapes={"encoder.0.q": (4, 3)}
            )
        )
        catalog.studies(catalog.model("x").key).save("rank", {"a": 1}, {"b": 2})

    document = merge(a, b)

    assert contents(a) == contents(b)
    with Catalog.open(a) as catalog:
        assert catalog.model("x").record.verified == "crc"
    assert counts(document) == [3, 0, 0, 0]
    assert (document["models"], document["conflicts"]) == (3, [])


def test_the_second_merge_changes_nothing(a, b):
    write(a, indexed("x", seed=1), refused("both", dataset="d"))
    write(b, indexed("y", seed=2), refused("both", dataset="d"), indexed("x", seed=1))
    merge(a, b)
    before = contents(a)
    with Catalog.open(a) as catalog:
        keys = [row.key for row in catalog.models()]

    document = merge(a, b, b)

    assert counts(document) == [0, 0, 6, 0]
    assert contents(a) == before
    with Catalog.open(a) as catalog:
        assert [row.key for row in catalog.models()] == keys


def _facts(known):
    """Outcomes that do not contradict one another, each as another machine may know it."""
    whole = st.sampled_from(range(6))
    return st.lists(st.tuples(whole, st.sampled_from(known)), max_size=6)


def _outcome(number, how):
    dataset = {"dataset": f"d{number % 2}", "label_source": "tags"}
    match how:
        case "sketch":
            return indexed(f"m{number}", seed=number)
        case "other recipe":
            return indexed(f"m{number}", seed=number, recipe=OTHER, sketched=False)
        case "labelled":
            return indexed(f"m{number}", seed=number, author=f"by {number}", **dataset)
        case "gated":
            return refused(f"m{number}", "gated")
    return refused(f"m{number}", "offline", **dataset)


WAYS = ["sketch", "other recipe", "labelled", "gated", "offline"]


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(st.lists(_facts(WAYS), min_size=3, max_size=3))
def test_the_order_of_machines_does_not_matter(machines):
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, known in enumerate(machines):
            path = write(Path(folder) / f"{number}.duckdb", *itertools.starmap(_outcome, known))
            _date(path)
            paths.append(path)
        found = []
        for order in (paths, paths[::-1], paths[1:] + paths[:1]):
            target = Path(folder) / f"target{len(found)}.duckdb"
            document = merge(target, *order)
            assert document["conflicts"] == []
            found.append(contents(target))

    assert all(one == found[0] for one in found)


def _date(path):
    """Give every row a time that does not depend on when it was written."""
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE models SET indexed_at = TIMESTAMP '2026-01-01'")


def test_search_after_a_merge_is_as_if_one_machine_had_done_it_all(tmp_path, a, b):
    outcomes = [indexed(f"m{number:02}", seed=number, dataset="d") for number in range(20)]
    write(a, *outcomes[::2])
    write(b, *outcomes[1::2])
    one = write(tmp_path / "one.duckdb", *outcomes)
    with Catalog.open(a) as catalog:
        find_similar(catalog, StoredQuery("m04"), k=5)
        merge_catalogs(catalog, [b])

        found = find_similar(catalog, StoredQuery("m04"), k=19).to_json()

    with Catalog.open(one) as catalog:
        assert found == find_similar(catalog, StoredQuery("m04"), k=19).to_json()


def test_batches_end_where_they_may(a, b, monkeypatch):
    write(b, *(indexed(f"m{number}", seed=number) for number in range(7)))
    monkeypatch.setattr(merge_module, "AT_ONCE", 3)

    document = merge(a, b)

    assert counts(document) == [7, 0, 0, 0]
    assert contents(a) == contents(b)


def test_models_get_what_they_lack(a, b):
    write(a, indexed("x", seed=1, recipe=OTHER, sketched=False), indexed("y", seed=2))
    write(b, indexed("x", seed=1), indexed("y", seed=2))
    with Catalog.open(a) as catalog, Catalog.open(b) as other:
        catalog.studies(catalog.model("x").key).save("rank", {"a": 1}, {"mine": 1})
        other.studies(other.model("x").key).save("rank", {"a": 1}, {"mine": 0})
        other.studies(other.model("y").key).save("layers", {}, {"b": 2})

    document = merge(a, b)

    assert counts(document) == [0, 2, 0, 0]
    with Catalog.open(a) as catalog:
        x, y = catalog.models()
        assert set(x.recipes) == {RECIPE.id, OTHER.id}
        assert catalog.studies(x.key).latest("rank") == {"mine": 1}
        assert catalog.studies(y.key).latest("layers") == {"b": 2}
        stored = catalog.slots(catalog.model("x", "base").key, RECIPE.id)
        assert stored[0].sketch == indexed("x", seed=1).slots[0].sketch
        assert np.array_equal(catalog.linear_sketch("x").pooled, linear(1).pooled)
        assert len(catalog.slots(x.key)) == 2
        assert np.array_equal(catalog.family("base", RECIPE).by_id(["x"])[1][0], unit(1, 8))


@pytest.mark.slow
def test_an_index_that_is_there_finds_models_that_got_a_vector(a, b):
    numbers = range(90)
    write(a, *(indexed(f"m{n:03}", seed=n, recipe=RECIPE if n % 3 else OTHER) for n in numbers))
    write(b, *(indexed(f"m{n:03}", seed=n) for n in numbers))
    with Catalog.open(a) as catalog:
        find_similar(catalog, StoredQuery("m001"), k=5, recipe=RECIPE.id)
        merge_catalogs(catalog, [b])

        found = find_similar(catalog, StoredQuery("m003"), k=89, recipe=RECIPE.id).to_json()

    with Catalog.open(b) as catalog:
        assert found == find_similar(catalog, StoredQuery("m003"), k=89, recipe=RECIPE.id).to_json()


@pytest.mark.parametrize("swapped", [False, True])
def test_an_indexed_model_is_worth_more_than_a_refused_one(a, b, swapped):
    write(a, refused("x", author="me"))
    write(b, indexed("x", seed=3, dataset="d", label_source="card"))
    target, source = (b, a) if swapped else (a, b)

    document = merge(target, source)

    assert counts(document) == [0, 1, 0, 0]
    with Catalog.open(target) as catalog:
        (row,) = catalog.models()
        assert (row.status, row.dataset, row.author) == ("indexed", "d", "me")
        assert row.recipes == (RECIPE.id,)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_refusal_for_good_is_worth_more_than_one_that_may_pass(a, b, swapped):
    write(a, refused("x", "disabled"))
    write(b, refused("x", "offline"))
    target, source = (b, a) if swapped else (a, b)

    merge(target, source)

    with Catalog.open(target) as catalog:
        assert [row.code for row in catalog.models()] == ["disabled"]
