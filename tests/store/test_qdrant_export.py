"""Exports to a server: what is in it afterwards, how they go on, and what they refuse."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import process
from qdrant_families import (
    BASE,
    OTHER,
    OTHER_DIM,
    RECIPE,
    expected_points,
    export,
    exported_points,
    insert,
    make_catalog,
    unit_vectors,
)
from qdrant_server import qdrant_server
from running import document, run

import deltadex
from deltadex.errors import RecipeMismatch, RequestError
from deltadex.store import Catalog
from deltadex.store.qdrant.server import parse_target

KILLED = """
import os, signal
import qdrant_families as families
from deltadex.store.qdrant import exporting
from deltadex.store.qdrant.server import PointCollection

exporting.NUMBERS_AT_ONCE = 16 * families.DIM
inner, left = PointCollection.upsert, [{batches}]

def upsert(self, *given):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    inner(self, *given)

PointCollection.upsert = upsert
with Catalog.open(path) as catalog:
    families.export(catalog, {target!r})
"""


@pytest.fixture(autouse=True)
def db(path):
    """The file that `catalog` opens, with models in it."""
    return make_catalog(path)


def assert_exported(catalog, server):
    """Every point is what SQL says of the model."""
    points, expected = exported_points(server), expected_points(catalog)
    assert set(points) == set(expected)
    for key, (payload, vector) in points.items():
        fields = ("model", "dataset", "author", "kind", "downloads")
        assert (*(payload[field] for field in fields), vector) == expected[key]
        assert (payload["base"], payload["recipe"], payload["key"]) == (BASE, RECIPE.id, key)


@settings(max_examples=2, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=2))
def test_points_are_what_the_catalog_says_and_a_later_export_writes_the_differences(
    tmp_path_factory, changes
):
    folder, last_key = tmp_path_factory.mktemp("e"), 40
    path = make_catalog(folder / "c.duckdb", last_key)
    with qdrant_server() as server, Catalog.open(path) as catalog:
        report = export(catalog, server.target())
        assert (report["models"], report["added"], report["removed"]) == (40, 40, 0)
        assert_exported(catalog, server)
        for n_gone, n_added in changes:
            for key in sorted(expected_points(catalog))[:n_gone]:
                catalog.remove(f"m{key}")
            if n_added:
                keys = range(last_key + 1, last_key + n_added + 1)
                insert(catalog, keys, unit_vectors(n_added, seed=last_key))
                last_key += n_added

            report = export(catalog, server.target())

            assert (report["added"], report["removed"]) == (n_added, n_gone)
            assert report["newest_key"] == max(expected_points(catalog))
            assert_exported(catalog, server)


def test_vectors_of_an_earlier_catalog_with_the_same_keys_are_replaced(catalog, server, tmp_path):
    with Catalog.open(make_catalog(tmp_path / "earlier.duckdb", seed=1)) as earlier:
        export(earlier, server.target())

    assert export(catalog, server.target())["added"] == 60
    assert_exported(catalog, server)


def test_an_export_that_was_killed_goes_on(db, server):
    with process(db, KILLED.format(batches=2, target=server.target())) as killed:
        assert killed.wait(60) == -9

    with Catalog.open(db) as catalog:
        assert export(catalog, server.target())["added"] == 60 - 16 * 2
        assert_exported(catalog, server)


@pytest.mark.parametrize(
    ("recipe", "base"), [(OTHER_DIM, BASE), (OTHER, BASE), (RECIPE, "another/base")]
)
def test_vectors_of_two_kinds_never_meet(catalog, server, recipe, base):
    export(catalog, server.target())
    before = exported_points(server)
    insert(catalog, [900, 901], unit_vectors(2, dim=recipe.dim), recipe, "another/base")
    if base == BASE:
        catalog.remove("m900")
        insert(catalog, [902], unit_vectors(1, dim=recipe.dim), recipe, base)

    with pytest.raises(RecipeMismatch, match="holds points of some/base under mean-factors-"):
        export(catalog, server.target(), recipe, base)

    assert exported_points(server) == before


def test_the_command_prints_what_it_did_and_refuses_in_one_line(db, server):
    to = ("--to", server.target())

    assert document(db, "export", *to)["models"] == 60
    for refused in (("--to", "edge:y"), (), ("x", *to), (*to, "--scores")):
        assert run(db, "export", *refused).exit_code == 2


def test_without_the_client_one_line_says_what_to_install(db, monkeypatch):
    monkeypatch.setitem(sys.modules, "qdrant_client", None)
    monkeypatch.delitem(sys.modules, "deltadex.store.qdrant.server", raising=False)
    with (
        deltadex.open(db) as opened,
        pytest.raises(RequestError, match=r"pip install 'deltadex\[qdrant\]'"),
    ):
        opened.export_vectors("qdrant://localhost/c")


def test_a_servers_address_is_understood_or_refused_without_a_key_in_the_message():
    for text, *understood in (
        ("qdrant://localhost/bert", "http://localhost:6333", "bert"),
        ("qdrant://h:80/a?https=1", "https://h:80", "a"),
        ("qdrant://[::1]:7/a%20b/?https=0", "http://[::1]:7", "a b"),
    ):
        assert [*parse_target(text)] == understood
    for text in (
        *("edge:a", "http://h/c", "qdrant:h/c", "qdrant:///c", "qdrant://h:99999/c"),
        *(f"qdrant://h{rest}" for rest in ("", "/", "/a/b", "/c#x", "/%00")),
        *(f"qdrant://h/c?{option}" for option in ("api_key=1", "https=perhaps")),
    ):
        with pytest.raises(RequestError):
            parse_target(text)
    with pytest.raises(RequestError, match="QDRANT_API_KEY") as refused:
        parse_target("qdrant://s3cret@h/c")
    assert "s3cret" not in str(refused.value)
