import os
import shutil
import subprocess
import sys
import time

import duckdb
import pytest
from catalogs import write
from outcomes import RECIPE, numbered, unit
from patients import CHECKS, VECTORS, answers, derived, files, flip, look, sql, state, troubles

from deltadex.errors import StoreDamaged
from deltadex.search import StoredQuery, find_similar
from deltadex.store import Catalog, merge_catalogs
from deltadex.store.files import index_folder

pytestmark = pytest.mark.usefixtures("small_files")


# a catalog that is well


def test_a_look_changes_no_byte_and_a_visit_removes_what_nothing_reads(db):
    unused = index_folder(db) / "0123456789abcdef.faiss"
    unused.write_bytes(b"of a family that is gone")
    stranger = index_folder(db) / "README"
    stranger.write_bytes(b"of somebody else")
    before = files(db)

    looked = look(db, repairs=False)

    assert [f.check for f in looked] == CHECKS
    assert troubles(looked) == {"leftovers"}
    assert files(db) == before
    assert state(look(db), "leftovers")[0] == "repaired"
    assert (unused.exists(), stranger.exists()) == (False, True)
    assert troubles(look(db)) == set()


@pytest.mark.parametrize("ending", [".faiss", ".npz"])
def test_searches_answer_as_before_where_the_index_file_is_damaged_or_gone(db, ending):
    before, file = answers(db), derived(db, ending)
    whole = file.read_bytes()
    for harm in (
        lambda: flip(file, -2),
        lambda: file.write_bytes(whole[: len(whole) // 2]),
        lambda: file.write_bytes(b"IxFI" + bytes(40)),
        file.unlink,
    ):
        file.write_bytes(whole)
        harm()
        assert answers(db) == before


def test_temporaries_of_processes_that_ended_long_ago_are_removed(db):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    old = time.time() - 3600

    def left(path, pid, at):
        path = path.with_name(path.name.format(pid))
        path.write_bytes(b"half")
        os.utime(path, (at, at))
        return path

    ours = index_folder(db) / ".0123456789abcdef.faiss.{}.partial"
    holder, commits = (f".c.duckdb.{name}.{{}}.0.partial" for name in ("wanted", "commits"))
    removed = [left(path, ended.pid, old) for path in (ours, db.with_name(holder))]
    kept = [left(path, os.getpid(), old) for path in (ours, db.with_name(commits))]
    kept.append(left(db.with_name(".c.duckdb.{}.partial"), 0, 9e9))
    kept.append(left(db.with_name(".monday.duckdb.{}.partial"), ended.pid, old))

    found = look(db)

    assert [f.state for f in found if f.check == "leftovers"] == ["repaired", "note"]
    assert not any(path.exists() for path in removed)
    assert all(path.exists() for path in kept)


def test_a_nearly_full_disk_is_a_problem(db, monkeypatch):
    usage = type("Usage", (), {"free": 10 << 20})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)

    assert state(look(db), "space")[0] == "problem"


# files that cannot be used


@pytest.mark.parametrize("kept", [0, 4096, 200_000])
def test_a_file_cut_short_is_a_line_and_stays_as_it_is(db, kept):
    db.write_bytes(cut := db.read_bytes()[:kept])

    found = look(db)

    assert state(found, "catalog")[0] == "problem"
    assert "backup in its place" in state(found, "catalog")[1]
    assert db.read_bytes() == cut


def test_damage_in_a_table_ends_the_visit_with_the_tables_name(db):
    sql(db, "CREATE TABLE notes AS SELECT random() AS number FROM range(200000)")
    with duckdb.connect(str(db)) as connection:
        [(block, size)] = connection.execute(
            "SELECT max(block_id), max(block_size) FROM pragma_storage_info('notes'), "
            "pragma_database_size()"
        ).fetchall()
    flip(db, 3 * 4096 + block * size + 1000)

    found = look(db)

    assert state(found, "tables")[0] == "problem"
    assert "notes cannot be read" in state(found, "tables")[1]
    assert found[-1].check == "rest"
    assert "leftovers" not in {f.check for f in found}


@pytest.mark.parametrize(
    ("make", "said_of_it"),
    [
        (lambda path: path.write_text("model,dataset\n" * 999), "not a readable catalog"),
        (lambda path: sql(path, "CREATE TABLE theirs (i INTEGER)"), "not a deltadex catalog"),
        (lambda path: sql(path, "CREATE TABLE t (i INTEGER)", "DROP TABLE t"), "without a table"),
        (os.mkfifo, "a pipe, socket or device"),
        (lambda path: path.mkdir(), "a folder, not a file"),
    ],
)
def test_what_is_no_catalog_is_a_line_and_stays_as_it_is(tmp_path, make, said_of_it):
    path = tmp_path / "deep" / "c.duckdb"
    assert state(look(path), "catalog")[0] == "problem"
    assert not path.parent.exists()
    path.parent.mkdir()
    make(path)
    before = files(path)

    found = look(path)

    assert said_of_it in state(found, "catalog")[1]
    assert files(path) == before


# the database


@pytest.mark.parametrize("column", ["fro_norm", "sigma"])
def test_slots_that_are_not_finite_are_named_and_never_answered_with(db, column):
    for key, value in enumerate(["'nan'", "'inf'", "'-inf'"], start=4):
        number = f"[{value}::FLOAT]" if column == "sigma" else f"{value}::DOUBLE"
        sql(db, f"UPDATE slots SET {column} = {number} WHERE model = {key} AND layer = 1")

    worst, text = state(look(db), "models")

    assert worst == "problem"
    assert f"3 models with rows out of range (slot {column}): m03, m04, m05" in text
    with Catalog.open(db) as catalog:
        for id in ("m03", "m04", "m05"):
            with pytest.raises(StoreDamaged, match="doctor"):
                catalog.slots(catalog.model(id).key)


ONE_SLOT = "model = {0} AND layer = 1"
HOSTILE_ROWS = {
    "a sketch of 10 MB": f"UPDATE slots SET sketch = repeat('a', 10000000)::BLOB WHERE {ONE_SLOT}",
    "an empty sketch": f"UPDATE slots SET sketch = ''::BLOB WHERE {ONE_SLOT}",
    "no sketches": "UPDATE slots SET recipe = NULL, sketch = NULL WHERE model = {0}",
    "a short sketch": f"UPDATE slots SET sketch = sketch[1:3] WHERE {ONE_SLOT}",
    "an energy of 2": f"UPDATE slots SET energy = 2 WHERE {ONE_SLOT}",
    "a NaN": f"UPDATE slots SET stable_rank = 'nan' WHERE {ONE_SLOT}",
    "a negative norm": f"UPDATE slots SET fro_norm = -1 WHERE {ONE_SLOT}",
    "a slot twice": f"INSERT INTO slots FROM slots WHERE {ONE_SLOT}",
    "no slot": "DELETE FROM slots WHERE model = {0}",
    "two vectors": f"INSERT INTO {VECTORS} FROM {VECTORS} WHERE model = {{0}}",
    "a long vector": f"UPDATE {VECTORS} SET vector = repeat([2], 8) WHERE model = {{0}}",
    "no vector": f"DELETE FROM {VECTORS} WHERE model = {{0}}",
    "a norm of infinity": f"UPDATE {VECTORS} SET norm = 'inf' WHERE model = {{0}}",
    "a short linear sketch": "UPDATE linear_sketches SET numbers = numbers[:3] WHERE model = {0}",
    "a long id": "UPDATE models SET id = repeat('m', 5000000) WHERE key = {0}",
    "no id": "UPDATE models SET id = '' WHERE key = {0}",
    "another kind": "UPDATE models SET kind = 'gradient' WHERE key = {0}",
    "a negative size": "UPDATE models SET bytes_total = -1 WHERE key = {0}",
    "another role": f"UPDATE slots SET role = 'side ways' WHERE {ONE_SLOT}",
    "another code": "UPDATE models SET status = 'failed', code = 'x' WHERE key = {0}",
    "no code": "UPDATE models SET status = 'failed' WHERE key = {0}",
    "a long label": "UPDATE models SET dataset = repeat('d', 100000) WHERE key = {0}",
    "a long note": "UPDATE models SET notes = [repeat('n', 100000)] WHERE key = {0}",
}


def test_a_merge_leaves_out_what_doctor_calls_damage_and_takes_the_rest(tmp_path):
    source, target = tmp_path / "b.duckdb", tmp_path / "a.duckdb"
    write(source, *numbered(len(HOSTILE_ROWS) + 5))
    sql(source, *(change.format(key) for key, change in enumerate(HOSTILE_ROWS.values(), 3)))

    found = look(source, repairs=False)
    with Catalog.open(target) as catalog:
        merged = merge_catalogs(catalog, [source])
        hits = find_similar(catalog, StoredQuery("m00"), k=11).neighbours

    damaged = merged["damaged"]
    assert merged["added"] == 5
    assert len(hits) == 4
    assert len([line for line in damaged if "not what `deltadex index` writes" in line]) == 23
    assert troubles(found) == {"models"}
    assert all(len(text) < 500 for text in (*damaged, *(finding.detail for finding in found)))
    assert "(slot energy)" in damaged[4]
    assert troubles(look(target, repairs=False)) == set()


def test_numbers_that_are_not_finite_are_an_error_and_not_a_shorter_list(db):
    shutil.rmtree(index_folder(db))
    sql(
        db,
        "UPDATE slots SET sketch = from_hex('017E') || sketch[3:] WHERE model = 4",
        f"UPDATE {VECTORS} SET vector = ['nan' FOR x IN vector::FLOAT[]] WHERE model = 4",
    )

    assert "m03" in state(look(db), "models")[1]
    with Catalog.open(db) as catalog:
        view = catalog.family("base", RECIPE)
        for read in (
            lambda: find_similar(catalog, StoredQuery("m00"), k=11),
            view.vectors,
            lambda: view.candidates(unit(0, RECIPE.dim), 3),
        ):
            with pytest.raises(StoreDamaged, match="doctor"):
                read()


DAMAGE = [
    ("catalog", "UPDATE meta SET schema_version = 999", "schema version 999"),
    ("tables", "DROP VIEW study_results; DROP TABLE studies", "missing: studies"),
    ("models", f"DELETE FROM {VECTORS} WHERE model < 6", "5 models with rows out of range (vector"),
]


@pytest.mark.parametrize(("check", "change", "said_of_it"), DAMAGE)
def test_what_does_not_belong_together_is_told_and_stays(db, check, change, said_of_it):
    sql(db, change, "CHECKPOINT")
    before = db.read_bytes()

    worst, text = state(look(db), check)

    assert worst == "problem"
    assert said_of_it in text
    assert db.read_bytes() == before
