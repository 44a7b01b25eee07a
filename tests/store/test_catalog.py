import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import asdict, replace
from itertools import product

import duckdb
import numpy as np
import pytest
from catalogs import linear_sketch_of, refused, write
from hypothesis import given, settings
from hypothesis import strategies as st
from outcomes import OTHER, RECIPE, indexed, linear, unit
from patients import sql
from processes import process
from running import short_files

from deltadex.errors import (
    EmptyCatalog,
    ForeignDatabase,
    OtherSchema,
    RecipeMismatch,
    RequestError,
    StoreDamaged,
    StoreError,
    StoreFull,
)
from deltadex.records import Fingerprint
from deltadex.store import Catalog, ModelFilter, Page, opening, write_parquet, write_safetensors
from deltadex.store.opening import memory_connection


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with Catalog.open(tmp_path_factory.mktemp("shared") / "c.duckdb") as opened:
        yield opened


def test_what_was_recorded_comes_back(catalog):
    outcome = indexed("m", dataset="imdb", notes=("odd",), downloads=7, author="a")
    catalog.record(outcome)

    row = catalog.model("m")
    ids, vectors = catalog.family("base", RECIPE).by_id()
    slots = catalog.slots(row.key)

    assert asdict(row) | asdict(outcome.model) == asdict(row)
    assert (row.status, row.recipes) == ("indexed", (RECIPE.id,))
    assert ids == ["m"]
    assert np.array_equal(vectors[0], outcome.fingerprints[0].vector)
    assert slots == sorted(outcome.slots, key=lambda s: s.slot)
    assert slots[1].sketch == outcome.slots[1].sketch
    assert [s.zero_share for s in slots] == [0.0, 0.25]


def _same_linear(one, other):
    mine, theirs = ({None: sketch.pooled, **sketch.layers} for sketch in (one, other))
    is_same = mine.keys() == theirs.keys() and one.recipe == other.recipe
    return is_same and all(np.array_equal(mine[key], theirs[key]) for key in mine)


def test_another_recipe_keeps_what_the_first_one_measured_while_files_are_the_same(catalog):
    catalog.record(indexed("m", seed=1))
    catalog.record(indexed("other", seed=2))
    assert _same_linear(linear_sketch_of(catalog, "m"), linear(1))

    catalog.record(indexed("m", seed=4, recipe=OTHER, sketched=False))

    assert set(catalog.model("m").recipes) == {RECIPE.id, OTHER.id}
    assert np.array_equal(catalog.family("base", RECIPE).by_id(["m"])[1][0], unit(1, 8))
    assert all(s.sketch for s in catalog.slots(catalog.model("m").key))
    assert _same_linear(linear_sketch_of(catalog, "m"), linear(1))
    assert linear_sketch_of(catalog, "m", recipe=OTHER.id) is None

    catalog.record(indexed("m", seed=5, recipe=OTHER, sketched=False, signature="changed"))

    assert catalog.model("m").recipes == (OTHER.id,)
    assert not any(s.sketch for s in catalog.slots(catalog.model("m").key))
    assert linear_sketch_of(catalog, "m") is None
    catalog.remove("other")
    with catalog.snapshot():
        assert catalog.execute("SELECT count(*) FROM linear_sketches") == [(0,)]


@settings(deadline=None, max_examples=10)
@given(
    st.text(min_size=1).filter(lambda t: "\x00" not in t and t.isprintable()),
    st.none() | st.text("ab'\"\\%_é", max_size=9),
)
def test_any_text_survives(shared, id, dataset):
    shared.record(indexed(id, dataset=dataset))

    assert shared.model(id).dataset == dataset
    assert [row.id for row in shared.models(dataset=dataset)] == [id]
    shared.remove(id)


def test_a_refusal_is_a_row_without_vectors(catalog):
    catalog.record(indexed("m"))
    catalog.record(refused("m", "non-finite"))

    assert catalog.family("base", RECIPE).by_id()[0] == []
    assert catalog.slots(catalog.model("m", "base").key) == []
    assert [(g["code"], len(g["models"])) for g in catalog.failures()] == [("non-finite", 1)]


def test_a_recording_that_fails_changes_nothing(catalog):
    catalog.record(indexed("m", seed=1))
    crooked = Fingerprint(recipe=RECIPE, vector=np.ones(8, dtype=np.float32), norm=1.0)
    bad = indexed("m", seed=2)
    object.__setattr__(bad, "fingerprints", (*bad.fingerprints, crooked))

    with pytest.raises(RecipeMismatch, match="length"):
        catalog.record(bad)

    assert np.array_equal(catalog.family("base", RECIPE).by_id()[1][0], unit(1, 8))
    assert len(catalog.slots(catalog.model("m", "base").key)) == 2


def test_one_id_in_two_families_needs_the_base_unless_one_is_indexed(catalog):
    catalog.record(indexed("m", base="a"))
    catalog.record(refused("m", "other-base", base="b"))
    assert catalog.model("m").base == "a"

    catalog.record(indexed("m", base="b"))

    with pytest.raises(RequestError, match="--base, one of: a, b"):
        catalog.model("m")
    assert catalog.model("m", "b").base == "b"


def test_the_recipe_of_most_models_is_the_family_s(catalog):
    other = replace(RECIPE, rank=8)
    for number in range(3):
        catalog.record(indexed(f"m{number}", seed=number, recipe=RECIPE if number else other))

    assert catalog.find_recipe(None, "base") == catalog.find_recipe("sketch") == RECIPE
    assert catalog.recipes_of("base") == [RECIPE, other]
    assert catalog.find_recipe(other.id, "base") == other
    assert catalog.recipes_of("elsewhere") == []


def test_a_search_of_an_empty_family_finds_nothing_and_one_without_direction_is_refused(catalog):
    assert len(catalog.family("base", RECIPE).candidates(unit(0, 8), 3)) == 0
    catalog.record(indexed("m"))
    for query in (np.full(8, np.nan), np.zeros(8), np.ones(4), np.full(8, np.inf)):
        with pytest.raises(ValueError, match="quer"):
            catalog.family("base", RECIPE).candidates(query.astype(np.float32), 1)


def test_a_model_that_is_gone_gets_no_study(catalog):
    catalog.record(indexed("m"))
    key = catalog.model("m").key
    catalog.remove("m")

    with pytest.raises(StoreError, match="removed or re-indexed"):
        catalog.studies(key).save("rank", {}, {})


def test_exports_are_read_by_other_tools(catalog, tmp_path):
    import pyarrow.parquet as pq
    from safetensors import safe_open

    catalog.record(indexed("m", seed=1))
    write_parquet(catalog, tmp_path / "tables")
    write_safetensors(catalog, tmp_path / "v.safetensors", "base", RECIPE)

    fingerprints = pq.read_table(tmp_path / "tables" / "fingerprints.parquet").to_pylist()
    models = pq.read_table(tmp_path / "tables" / "models.parquet").to_pylist()
    assert np.allclose(fingerprints[0]["vector"], unit(1, 8))
    assert (models[0]["model"], models[0]["id"]) == ("m", "m")
    with safe_open(tmp_path / "v.safetensors", "numpy") as file:
        assert file.metadata()["ids"] == '["m"]'
        assert np.array_equal(file.get_tensor("vectors")[0], unit(1, 8))


@pytest.mark.parametrize("read_only", [True, False])
def test_files_that_are_no_catalog_are_left_alone_and_nothing_is_downloaded(tmp_path, read_only):
    text, foreign, of_sqlite = (tmp_path / name for name in ("text", "foreign", "sqlite"))
    text.write_text("hello")
    sql(foreign, "CREATE TABLE x (a INTEGER)")
    with closing(sqlite3.connect(of_sqlite)) as connection:
        connection.execute("CREATE TABLE t (x)")
    errors = {text: StoreDamaged, foreign: ForeignDatabase, of_sqlite: StoreDamaged}
    before = {path: path.read_bytes() for path in errors}

    for path, error in errors.items():
        with pytest.raises(error, match=path.name):
            Catalog.open(path, read_only=read_only)
    with pytest.raises(EmptyCatalog, match="index"):
        Catalog.open(tmp_path / "none.duckdb", create=False)
    assert {path: path.read_bytes() for path in errors} == before
    with memory_connection() as connection, pytest.raises(duckdb.Error, match="extension"):
        connection.execute("SELECT st_point(1, 2)")


def test_a_late_catalog_has_no_file_before_its_first_change(tmp_path):
    path = tmp_path / "new" / "c.duckdb"
    with Catalog.open(path, create="late") as read:
        assert (read.models(), read.bases()) == ([], [])
    assert not path.parent.exists()

    with Catalog.open(path, create="late") as one, Catalog.open(path, create="late") as two:
        two.record(indexed("m"))
        assert [row.id for row in one.models()] == ["m"]
        one.record(indexed("n"))
        assert [row.id for row in two.models()] == ["m", "n"]
    with Catalog.open(path, create=False) as stored:
        assert len(stored.models()) == 2


@pytest.mark.parametrize("version", [opening.SCHEMA_VERSION - 1, opening.SCHEMA_VERSION + 1])
@pytest.mark.parametrize("read_only", [True, False])
def test_a_catalog_of_another_schema_is_refused_by_its_version_and_stays(path, version, read_only):
    Catalog.open(path).close()
    sql(path, f"UPDATE meta SET schema_version = {version}")
    before = path.read_bytes()

    with pytest.raises(OtherSchema, match=f"schema version {version}, .*: index again"):
        Catalog.open(path, read_only=read_only)
    assert path.read_bytes() == before


def test_every_duckdb_from_1_5_reads_the_file(path):
    Catalog.open(path).close()
    header = path.read_bytes()[:20]

    assert header[8:12] == b"DUCK"
    # the newest storage version that DuckDB 1.5.5 reads; files that 2.0 makes unasked have 69
    assert int.from_bytes(header[12:20], "little") <= 68


def test_duckdb_draws_no_bar_of_its_own_in_a_python_without_a_main_file(path):
    code = """
    with Catalog.open(path) as catalog:
        print(catalog.execute("SELECT current_setting('enable_progress_bar')"))
    """
    with process(path, code) as other:
        assert other.communicate()[0] == "[(False,)]\n"


def test_a_commit_that_the_system_refuses_is_said_in_the_systems_words(tmp_path):
    folder = tmp_path / "wal corrupt checksum"  # words of DuckDB's messages about damage
    folder.mkdir()
    refused = pytest.raises(StoreFull, match="cannot be written: file too large; what was")
    with Catalog.open(folder / "c.duckdb") as catalog:
        catalog.record(indexed("m"))
        with short_files(4096), refused:
            catalog.record(indexed("n"))

    with Catalog.open(folder / "c.duckdb") as catalog:
        assert [row.id for row in catalog.models()] == ["m"]


def test_pages_join_up_to_the_sorted_whole_and_a_part_of_a_name_is_no_pattern(catalog):
    for number in range(12):
        labels = {
            "author": f"Åsa-{number % 3}",
            "dataset": None if number % 4 == 0 else f"set{number % 4}",
            "downloads": None if number % 5 == 0 else 100 - number,
        }
        catalog.record(indexed(f"m{number:02}", seed=number, **labels))
    all_ids = [f"m{number:02}" for number in range(12)]

    for sort, descending in product(("id", "dataset", "downloads"), (True, False)):
        rows, total = [], 12
        for offset in range(0, 15, 5):
            page = Page(sort=sort, descending=descending, limit=5, offset=offset)
            some, total = catalog.page_of_models(ModelFilter(base="base"), page)
            rows += some
        values = [getattr(row, sort) for row in rows]
        known = [value for value in values if value is not None]
        assert total == 12
        assert sorted(row.id for row in rows) == all_ids
        assert values[len(known) :] == [None] * (12 - len(known))
        assert known == sorted(known, reverse=descending)

    def found(text):
        rows, total = catalog.page_of_models(ModelFilter(contains=text), Page())
        assert total == len(rows)
        return [row.id for row in rows]

    assert found("M0") == all_ids[:10]
    assert found("åSA-1") == ["m01", "m04", "m07", "m10"]
    assert found("SET3") == ["m03", "m07", "m11"]
    assert found("%") == found("_") == found("' OR 1=1 --") == []


# Symbolic links in the place of a catalog, or of what is beside it


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("closed")
    write(folder / "c.duckdb", indexed("m"))
    return folder


@pytest.fixture
def db(closed, tmp_path):
    """A catalog of one model, alone in a folder."""
    return shutil.copytree(closed, tmp_path / "folder") / "c.duckdb"


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        *("c.duckdb.wal", "c.duckdb.commits", "c.duckdb.wanted", "c.duckdb.index/0123.sketches"),
        *("c.duckdb.attached/imdb/models.parquet.partial", "c.duckdb.published"),
    ],
)
def test_a_link_beside_a_catalog_is_refused_and_not_followed(db, tmp_path, name, read_only):
    precious, link = tmp_path / "precious", db.parent / name
    precious.write_bytes(b"precious")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(precious)
    before = db.read_bytes()

    with pytest.raises(StoreError, match=rf"{name}: a symbolic link"):
        Catalog.open(db, read_only=read_only)

    assert precious.read_bytes() == b"precious"
    assert db.read_bytes() == before
    link.unlink()
    with Catalog.open(db, read_only=read_only) as catalog:
        assert [row.id for row in catalog.models()] == ["m"]


def test_a_pipe_beside_a_catalog_is_refused_and_not_waited_for(db):
    pipe = db.parent / "c.duckdb.index" / "0123.npz"
    pipe.parent.mkdir(exist_ok=True)
    os.mkfifo(pipe)

    with pytest.raises(StoreError, match=r"0123\.npz: a pipe or a device"):
        Catalog.open(db, read_only=True)


def test_a_catalog_is_not_opened_under_a_second_name(db):
    """Each name would have a write-ahead log of its own."""
    link = db.with_name("link.duckdb")
    link.symlink_to(db)

    with pytest.raises(StoreError, match=f"name the file itself, .*{db.name}"):
        Catalog.open(link)
