import hashlib
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from catalogs import linear_sketch_of, refused, write
from hypothesis import given, settings
from hypothesis import strategies as st
from merges import contents, counts, merge
from outcomes import OTHER, RECIPE, SIGNATURE, indexed, linear, unit
from patients import sql
from processes import holding

from deltadex.errors import RequestError, StoreError
from deltadex.search import StoredQuery, find_similar
from deltadex.store import BaseRecord, Catalog, merge_catalogs


def test_a_merge_into_nothing_is_a_copy_and_the_second_changes_nothing(a, b):
    x = indexed("x", seed=1, notes=("odd",), verified="crc")
    write(b, x, indexed("y", seed=2, recipe=OTHER), refused("z"))
    with Catalog.open(b) as catalog:
        shapes = {"encoder.0.q": (4, 3)}
        catalog.save_base(BaseRecord(base="base", revision="r", architecture="bert", shapes=shapes))
        catalog.studies(catalog.model("x").key).save("rank", {"a": 1}, {"b": 2})

    document = merge(a, b)

    assert contents(a) == contents(b)
    with Catalog.open(a) as catalog:
        assert catalog.model("x").verified == "crc"
    assert counts(document) == [3, 0, 0, 0]
    assert (document["models"], document["conflicts"]) == (3, [])

    with Catalog.open(a) as catalog:
        keys = [row.key for row in catalog.models()]
    assert counts(merge(a, b, b)) == [0, 0, 6, 0]
    assert contents(a) == contents(b)
    with Catalog.open(a) as catalog:
        assert [row.key for row in catalog.models()] == keys


def _labels(n):
    return {"dataset": f"d{n % 2}", "label_source": "tags"}


WAYS = {
    "sketch": lambda n: indexed(f"m{n}", seed=n),
    "other recipe": lambda n: indexed(f"m{n}", seed=n, recipe=OTHER, sketched=False),
    "labelled": lambda n: indexed(f"m{n}", seed=n, author=f"by {n}", **_labels(n)),
    "gated": lambda n: refused(f"m{n}", "gated"),
    "offline": lambda n: refused(f"m{n}", "offline", **_labels(n)),
}
FACTS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from([*WAYS])), max_size=6)
"""Outcomes that do not contradict one another, each as another machine may know it."""


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(st.lists(FACTS, min_size=3, max_size=3))
def test_the_order_of_machines_does_not_matter(machines):
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, known in enumerate(machines):
            path = write(Path(folder) / f"{number}.duckdb", *(WAYS[how](n) for n, how in known))
            # rows have a time that does not depend on when they were written
            sql(path, "UPDATE models SET indexed_at = TIMESTAMP '2026-01-01'")
            paths.append(path)
        found = []
        for order in (paths, paths[::-1], paths[1:] + paths[:1]):
            target = Path(folder) / f"target{len(found)}.duckdb"
            document = merge(target, *order)
            assert document["conflicts"] == []
            found.append(contents(target))

    assert all(one == found[0] for one in found)


def test_search_after_a_merge_is_as_if_one_machine_had_done_it_all(tmp_path, a, b):
    outcomes = [indexed(f"m{number:02}", seed=number, dataset="d") for number in range(10)]
    write(a, *outcomes[::2])
    write(b, *outcomes[1::2])
    one = write(tmp_path / "one.duckdb", *outcomes)
    with Catalog.open(a) as catalog:
        find_similar(catalog, StoredQuery("m04"), k=5)
        merge_catalogs(catalog, [b])

        found = find_similar(catalog, StoredQuery("m04"), k=9).to_json()

    with Catalog.open(one) as catalog:
        assert found == find_similar(catalog, StoredQuery("m04"), k=9).to_json()


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
        assert catalog.studies(x.key).load("rank", {"a": 1}) == {"mine": 1}
        assert catalog.studies(y.key).load("layers", {}) == {"b": 2}
        stored = catalog.slots(x.key, RECIPE.id)
        assert stored[0].sketch == indexed("x", seed=1).slots[0].sketch
        assert np.array_equal(linear_sketch_of(catalog, "x").pooled, linear(1).pooled)
        assert len(catalog.slots(x.key)) == 2
        assert np.array_equal(catalog.family("base", RECIPE).by_id(["x"])[1][0], unit(1, 8))


@pytest.mark.parametrize("swapped", [False, True])
def test_a_fingerprint_is_worth_more_than_a_refusal_one_for_good_more_than_another(a, b, swapped):
    write(a, refused("x", author="me"), refused("y", "disabled"))
    write(b, indexed("x", seed=3, dataset="d", label_source="card"), refused("y", "offline"))
    target, source = (b, a) if swapped else (a, b)

    document = merge(target, source)

    assert counts(document) == ([0, 2, 0, 0] if swapped else [0, 1, 1, 0])
    with Catalog.open(target) as catalog:
        x, y = catalog.models()
        assert (x.status, x.dataset, x.author) == ("indexed", "d", "me")
        assert x.recipes == (RECIPE.id,)
        assert y.code == "disabled"


# what contradicts


def test_other_weights_stay_out_and_are_reported_with_both(a, b):
    write(a, indexed("x", seed=1, signature="one", dataset="d"))
    write(b, indexed("x", seed=2, signature="two", dataset="e"), indexed("y", seed=3))

    document = merge(a, b)

    assert counts(document) == [1, 0, 0, 1]
    (conflict,) = document["conflicts"]
    assert (conflict["base"], conflict["model"], conflict["about"]) == ("base", "x", "weights")
    assert conflict["source"] == str(b)
    assert (conflict["kept"]["signature"], conflict["other"]["signature"]) == ("one", "two")
    with Catalog.open(a) as catalog:
        assert catalog.model("x").dataset == "d"
        assert np.array_equal(catalog.family("base", RECIPE).by_id(["x"])[1][0], unit(1, 8))
    assert merge(a, b)["conflicts"] == document["conflicts"]


WEIGHTS = [
    ({"content_sha256": "c"}, {"content_sha256": "c"}, True),
    ({"content_sha256": "c"}, {"content_sha256": "d"}, False),
    ({"signature": "s"}, {"signature": "s"}, True),
    ({"signature": ""}, {"signature": ""}, False),
    ({}, {}, False),
]


def test_weights_are_the_same_by_hash_or_by_signature(a, b):
    named = {f"x{n}": case for n, case in enumerate(WEIGHTS)}
    write(a, *(indexed(x, seed=1, **{"signature": "one"} | m) for x, (m, _, _) in named.items()))
    others = {x: {"signature": "two"} | theirs for x, (_, theirs, _) in named.items()}
    write(b, *(indexed(x, seed=2, recipe=OTHER, **own) for x, own in others.items()))

    conflicts = {conflict["model"] for conflict in merge(a, b)["conflicts"]}

    assert conflicts == {x for x, (_, _, same) in named.items() if not same}


LABELS = [
    ({}, {"dataset": "e", "label_source": "tags"}, "e", 0),
    ({"dataset": "d", "label_source": "card"}, {}, "d", 0),
    ({"dataset": "d", "label_source": "card"}, {"dataset": "e", "label_source": "tags"}, "d", 1),
    ({"dataset": None, "label_source": "labels"}, {"dataset": "e"}, None, 1),
    ({"dataset": "d", "author": "me"}, {"dataset": "d", "author": "you"}, "d", 1),
    ({"author": None}, {"author": "you"}, None, 0),
]


def test_labels_are_filled_and_never_overruled(a, b):
    for path, place in ((a, 0), (b, 1)):
        write(path, *(indexed(f"x{n}", seed=n, signature=f"{n}", **case[place])
                      for n, case in enumerate(LABELS)))  # fmt: skip

    told = [(c["model"], c["about"]) for c in merge(a, b)["conflicts"]]

    assert sorted(told) == [(f"x{n}", "labels") for n, case in enumerate(LABELS) if case[3]]
    with Catalog.open(a) as catalog:
        for n, (mine, theirs, dataset, _) in enumerate(LABELS):
            assert catalog.model(f"x{n}").dataset == dataset
            assert catalog.model(f"x{n}").author == (mine.get("author") or theirs.get("author"))


def test_families_are_joined_and_contradictions_reported(a, b):
    with Catalog.open(a) as one, Catalog.open(b) as two:
        known = BaseRecord(base="base", architecture="bert", shapes={"q": (4, 3), "k": (4, 3)})
        one.save_base(known)
        two.save_base(replace(known, revision="r", shapes={"q": (4, 9), "v": (4, 3)}))
        two.save_base(BaseRecord(base="more"))

    document = merge(a, b)

    (conflict,) = document["conflicts"]
    assert (conflict["model"], conflict["about"]) == (None, "base")
    assert (conflict["kept"], conflict["other"]) == ({"q": [4, 3]}, {"q": [4, 9]})
    with Catalog.open(a) as catalog:
        assert catalog.bases() == ["base", "more"]
        family = catalog.base("base")
        assert family.shapes == {"k": (4, 3), "q": (4, 3), "v": (4, 3)}
        assert (family.revision, family.architecture) == ("r", "bert")


def test_signatures_of_bases_are_brought_where_they_are_missing(a, b):
    def keep(path, *signatures):
        with Catalog.open(path) as catalog:
            for signature in signatures:
                catalog.signatures.save(signature)

    other = replace(SIGNATURE, base="org/other")
    keep(a, replace(SIGNATURE, runs=bytes(30)), SIGNATURE)
    keep(b, replace(SIGNATURE, revision=None), other)

    merge(a, b)

    with Catalog.open(a) as catalog:
        assert catalog.signatures.all() == [SIGNATURE, other]


# other processes


def test_a_source_is_not_changed_and_source_and_target_may_be_held_by_others(a, b):
    write(a, indexed("mine", seed=90))
    with holding(a, 2) as one, holding(b, 5) as two:
        assert counts(merge(a, b)) == [3, 0, 2, 0]
        one.communicate("end\n")
        two.communicate("end\n")
    with Catalog.open(a) as catalog:
        assert len(catalog.family("base", RECIPE).by_id()[0]) == 6
    b.chmod(0o400)
    before = hashlib.sha256(b.read_bytes()).hexdigest()

    merge(a, b)

    assert hashlib.sha256(b.read_bytes()).hexdigest() == before


# what is refused


def test_a_catalog_is_not_merged_into_itself(a, b):
    write(a, indexed("x"))
    b.hardlink_to(a)

    with pytest.raises(RequestError, match="the target itself"):
        merge(a, b)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE recipes SET id = 'x'' FROM models; DROP TABLE models; --'",
        "UPDATE recipes SET vectors = 'models'",
        "ALTER TABLE slots ALTER sketch TYPE VARCHAR USING hex(sketch)",
        "DROP TABLE linear_sketches",
    ],
)
def test_words_that_no_deltadex_wrote_are_refused(a, b, change):
    write(b, indexed("x"))
    sql(b, change)

    with pytest.raises(StoreError, match=r"b\.duckdb"):
        merge(a, b)
    with Catalog.open(a) as catalog:
        assert catalog.models() == []
