import os
import shutil
import subprocess
import sys
import time

import duckdb
import numpy as np
import pytest
from outcomes import OTHER, RECIPE, indexed, unit
from processes import HOLDER, process, said

from deltadex.records import Fingerprint
from deltadex.search import StoredQuery, nearest
from deltadex.store import Catalog, examine
from deltadex.store import index as index_module
from deltadex.store import shortlist as shortlist_module
from deltadex.store.derived import derived_path, index_folder
from deltadex.store.doctor import search_index
from deltadex.store.doctor.surroundings import space
from deltadex.store.index import VectorIndex
from deltadex.store.schema import SCHEMA_VERSION, scripts
from deltadex.store.sharing import note_path

CHECKS = [
    *("versions", "threads", "space", "holder", "catalog", "tables", "recipes", "views", "keys"),
    *("vectors", "rows", "index", "sketches", "leftovers"),
]
VECTORS = f"vectors_{RECIPE.id[-8:]}_{RECIPE.dim}"


@pytest.fixture(autouse=True)
def _is_quick(monkeypatch):
    monkeypatch.setattr(index_module, "PERSIST_FROM", 4)
    monkeypatch.setattr(search_index, "WRITTEN_WITHIN_S", 0.0)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a catalog, its index file and its file of sketches."""
    path = tmp_path_factory.mktemp("made") / "c.duckdb"
    with pytest.MonkeyPatch.context() as patch, Catalog.open(path) as catalog:
        patch.setattr(index_module, "PERSIST_FROM", 4)
        for number in range(12):
            catalog.record(indexed(f"m{number:02}", seed=number))
        VectorIndex.open(catalog, "base", RECIPE)
        catalog.family_vectors("base", RECIPE).keep_sketches_at_hand()
    return path.parent


@pytest.fixture
def db(made, tmp_path):
    """A copy of it."""
    shutil.copytree(made, tmp_path / "own")
    return tmp_path / "own" / "c.duckdb"


def look(path, repairs=True):
    return list(examine(path, repairs=repairs))


def state(found, check):
    """The worst state of a check, and all that was said."""
    of_it = [f for f in found if f.check == check]
    worst = next(s for s in ("problem", "repaired", "note", "ok") if s in [f.state for f in of_it])
    return worst, " ".join(f.detail + " " + f.advice for f in of_it)


def troubles(found):
    return {f.check for f in found if f.state in ("problem", "repaired")}


def sql(path, *statements):
    with duckdb.connect(str(path)) as connection:
        for statement in statements:
            connection.execute(statement)


def files(path):
    """Bytes of everything beside the catalog, by name."""
    return {
        p.relative_to(path.parent): p.read_bytes()
        for p in path.parent.rglob("*")
        if p.is_file() and p.suffix != ".lock"
    }


def derived(path, ending):
    return derived_path(path, "base", RECIPE.id, ending)


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 0xFF
    path.write_bytes(data)


def answers(path):
    with Catalog.open(path) as catalog:
        return [nearest(catalog, StoredQuery(f"m{n:02}"), k=5).to_json() for n in range(12)]


# a catalog that is well


@pytest.mark.parametrize("repairs", [True, False])
def test_a_well_catalog_passes_every_check(db, repairs):
    found = look(db, repairs)

    assert [f.check for f in found] == CHECKS
    assert troubles(found) == set()


def test_a_look_changes_no_byte(db):
    sql(db, "DROP VIEW sizes")
    flip(derived(db, ".faiss"), -5)
    before = files(db)

    found = look(db, repairs=False)

    assert troubles(found) == {"views", "index"}
    assert files(db) == before


def test_a_catalog_with_damage_of_every_derived_kind_is_well_after_one_visit(db):
    sql(db, "DROP VIEW slot_statistics CASCADE", "CREATE OR REPLACE SEQUENCE model_keys START 2")
    flip(derived(db, ".faiss"), -5)
    flip(derived(db, ".sketches"), -5)

    first, second = look(db), look(db)

    assert {f.state for f in first if f.check in troubles(first)} == {"repaired"}
    assert troubles(first) == {"views", "keys", "index", "sketches"}
    assert troubles(second) == set()


def test_a_catalog_of_two_families_and_recipes_passes(db):
    with Catalog.open(db) as catalog:
        catalog.record(indexed("x", base="second"))
        key = catalog.model("m01").key
        catalog.add_fingerprints(key, [Fingerprint(recipe=OTHER, vector=unit(1, 6), norm=1.0)])

    assert troubles(look(db)) == set()


# files that cannot be used


@pytest.mark.parametrize("repairs", [True, False])
@pytest.mark.parametrize("kept", [0, 10, 4096, 12288, 200_000])
def test_a_file_cut_short_is_a_line_and_stays_as_it_is(db, kept, repairs):
    db.write_bytes(cut := db.read_bytes()[:kept])

    found = look(db, repairs)

    assert state(found, "catalog")[0] == "problem"
    assert "backup in its place" in state(found, "catalog")[1]
    assert db.read_bytes() == cut


def test_flipped_bytes_never_raise_and_are_found_where_they_are_read(db):
    whole, n_found = db.read_bytes(), 0
    for place in np.linspace(3 * 4096, len(whole) - 1, 8).astype(int):
        db.write_bytes(whole)
        flip(db, place)
        n_found += bool(troubles(look(db, repairs=False)))

    assert n_found >= 2


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
    assert "index" not in {f.check for f in found}


@pytest.mark.parametrize(
    ("make", "said_of_it"),
    [
        (lambda path: path.write_text("model,dataset\n" * 999), "not a readable catalog"),
        (lambda path: sql(path, "CREATE TABLE theirs (i INTEGER)"), "not a deltadex catalog"),
        (lambda path: sql(path, "CREATE TABLE t (i INTEGER)", "DROP TABLE t"), "without a table"),
        (lambda path: None, "no catalog there yet"),
    ],
)
def test_somebody_elses_file_is_a_line_and_stays_as_it_is(tmp_path, make, said_of_it):
    path = tmp_path / "deep" / "c.duckdb"
    path.parent.mkdir()
    make(path)
    before = files(path)

    found = look(path)

    assert said_of_it in state(found, "catalog")[1]
    assert files(path) == before


def test_a_folder_that_is_not_there_is_a_line(tmp_path):
    found = look(tmp_path / "none" / "c.duckdb")

    assert state(found, "catalog")[0] == "problem"
    assert not (tmp_path / "none").exists()


def test_a_newer_schema_is_left_alone(db):
    sql(db, "UPDATE meta SET schema_version = 999")

    assert "upgrade it" in state(look(db), "catalog")[1]


def test_an_older_schema_is_brought_up_to_date_unless_one_only_looks(tmp_path):
    path = tmp_path / "c.duckdb"
    sql(path, scripts()[0], "UPDATE meta SET schema_version = 1")

    looked, mended, again = look(path, repairs=False), look(path), look(path)

    assert "schema version 1" in state(looked, "catalog")[1]
    assert state(mended, "catalog")[0] == "repaired"
    assert f"from schema version 1 to {SCHEMA_VERSION}" in state(mended, "catalog")[1]
    assert troubles(again) == set()


# the database


def test_a_missing_table_is_a_problem(db):
    sql(db, "DROP VIEW study_results", "DROP TABLE studies")

    assert "missing: studies" in state(look(db), "tables")[1]


def test_views_are_made_again_as_they_were(db):
    with duckdb.connect(str(db)) as connection:
        before = connection.execute("SELECT * FROM fingerprints ORDER BY model").fetchall()
    sql(db, "DROP VIEW ranks", "CREATE OR REPLACE VIEW fingerprints AS SELECT 1 AS one")

    assert "ranks, fingerprints" in state(look(db), "views")[1]
    with duckdb.connect(str(db)) as connection:
        assert connection.execute("SELECT * FROM fingerprints ORDER BY model").fetchall() == before
        assert connection.execute("SELECT count(*) FROM ranks").fetchone() == (24,)


def test_keys_go_on_after_a_sequence_that_fell_behind(db):
    sql(db, "CREATE OR REPLACE SEQUENCE model_keys START 3")

    assert state(look(db), "keys")[0] == "repaired"
    with Catalog.open(db) as catalog:
        catalog.record(indexed("new"))
        assert len({row.key for row in catalog.models()}) == 13


def test_a_model_that_is_stored_twice_is_named(db):
    sql(db, "UPDATE models SET id = 'm03' WHERE id = 'm04'")

    assert "stored twice: m03" in state(look(db), "keys")[1]


@pytest.mark.parametrize("value", ["2.0", "0.0", "'nan'", "'inf'"])
def test_a_vector_that_is_not_of_unit_length_is_named_and_stays(db, value):
    vector = f"list_transform(range({RECIPE.dim}), lambda i: {value}::FLOAT)::FLOAT[{RECIPE.dim}]"
    sql(db, f"UPDATE {VECTORS} SET vector = {vector} WHERE model = 5")

    worst, text = state(look(db), "vectors")

    assert worst == "problem"
    assert "1 vector not of unit length, or not finite: m04" in text
    assert "deltadex rm" in text
    with duckdb.connect(str(db)) as connection:
        assert connection.execute(f"SELECT count(*) FROM {VECTORS}").fetchone() == (12,)


def test_lengths_up_to_the_tolerance_pass(db):
    scaled = "list_transform(vector, lambda x: (x * 1.0005)::FLOAT)"
    sql(db, f"UPDATE {VECTORS} SET vector = {scaled}::FLOAT[{RECIPE.dim}]")

    assert state(look(db), "vectors")[0] == "ok"


@pytest.mark.parametrize(
    ("change", "said_of_it"),
    [
        ("DELETE FROM models WHERE id = 'm02'", f"{VECTORS}: 1 row of models that are not"),
        ("DELETE FROM models WHERE id = 'm02'", "slots: 2 rows of models that are not"),
        ("UPDATE models SET status = 'failed' WHERE id = 'm02'", "1 row of models that are not"),
        ("INSERT INTO studies VALUES (99, 's', '{}', '{}', now()::TIMESTAMP)", "studies: 1 row"),
        (f"DELETE FROM {VECTORS} WHERE model < 6", "5 indexed models without a vector: m00"),
        ("DELETE FROM slots WHERE model = 2", "1 indexed model without slots: m01"),
        ("UPDATE slots SET recipe = NULL WHERE model = 2", f"without the sketches of {RECIPE.id}"),
    ],
)
def test_rows_that_do_not_belong_together_are_told_and_stay(db, change, said_of_it):
    sql(db, change)
    before = _rows(db)

    worst, text = state(look(db), "rows")

    assert worst == "problem"
    assert said_of_it in text
    assert _rows(db) == before


def test_the_command_that_an_orphans_line_gives_mends_it(db):
    sql(db, "DELETE FROM models WHERE id = 'm02'")
    advice = [f.advice for f in look(db) if f.check == "rows"]

    sql(db, *(line.partition("with DuckDB: ")[2] for line in advice))

    assert state(look(db), "rows")[0] == "ok"


def _rows(path):
    with duckdb.connect(str(path)) as connection:
        tables = ("models", "slots", "studies", "recipes", VECTORS)
        return [connection.execute(f"SELECT count(*) FROM {t}").fetchone() for t in tables]


def test_a_base_without_models_is_only_noted(db):
    sql(db, "INSERT INTO families VALUES ('old', NULL, NULL, '{}')")

    assert state(look(db), "rows") == (
        "note",
        "12 indexed models with all their rows  1 base without models: old ",
    )


@pytest.mark.parametrize(
    ("change", "said_of_it"),
    [
        ("DROP TABLE {v} CASCADE", "its vectors are not there as FLOAT[8]"),
        ("UPDATE recipes SET seed = 7", "not those that its id stands for"),
        ("UPDATE recipes SET params = '{{'", "not those that its id stands for"),
        ("CREATE TABLE vectors_0_1 AS FROM {v}", "vectors of no recipe: vectors_0_1"),
    ],
)
def test_recipes_and_their_tables_belong_together(db, change, said_of_it):
    sql(db, change.format(v=VECTORS))

    worst, text = state(look(db), "recipes")

    assert worst == "problem"
    assert said_of_it in text


# index files


def test_a_damaged_index_is_made_again_and_searches_answer_as_before(db):
    before = answers(db)
    flip(derived(db, ".faiss"), -5)

    found = look(db)

    assert "made again of 12 vectors" in state(found, "index")[1]
    assert state(found, "index")[0] == "repaired"
    assert answers(db) == before


@pytest.mark.parametrize("ending", [".faiss", ".json"])
def test_an_index_of_which_a_file_is_missing_is_made_again(db, ending):
    derived(db, ending).unlink()

    assert "damaged or incomplete" in state(look(db), "index")[1]
    assert derived(db, ending).exists()


def test_an_index_of_other_vectors_with_a_right_checksum_is_found(db):
    sql(db, f"UPDATE {VECTORS} SET vector = (SELECT vector FROM {VECTORS} WHERE model = 1)")

    worst, text = state(look(db), "index")

    assert worst == "repaired"
    assert "of other vectors than the catalog's" in text


def test_an_index_that_is_behind_is_well(db):
    with Catalog.open(db) as catalog:
        catalog.record(indexed("late", seed=77))
        catalog.remove("m03")

    worst, text = state(look(db), "index")

    assert worst == "ok"
    assert "2 changes since" in text


@pytest.fixture
def coarse(tmp_path, monkeypatch):
    monkeypatch.setattr(shortlist_module, "FLAT_UP_TO", 5)
    path = tmp_path / "coarse.duckdb"
    with Catalog.open(path) as catalog:
        for number in range(24):
            catalog.record(indexed(f"m{number:03}", seed=number))
        VectorIndex.open(catalog, "base", RECIPE)
    return path


def test_an_index_of_codes_is_well_too(coarse):
    assert state(look(coarse), "index") == ("ok", "1 index file as the catalog ")


def test_an_index_of_another_kind_is_made_again(coarse, monkeypatch):
    monkeypatch.setattr(shortlist_module, "FLAT_UP_TO", 50_000)

    assert "of another kind than 24 vectors need" in state(look(coarse), "index")[1]
    assert state(look(coarse), "index")[0] == "ok"


# files of sketches


@pytest.mark.parametrize(
    ("damage", "said_of_it"),
    [
        (lambda db: flip(derived(db, ".sketches"), -3), "its sketches are not the catalog's"),
        (lambda db: flip(derived(db, ".vectors"), 33), "its vectors are not the catalog's"),
        (lambda db: flip(derived(db, ".keys"), 16 * 3 + 14), "its lengths are not the catalog's"),
        (lambda db: flip(derived(db, ".keys"), 16 * 3 + 7), "its keys are damaged"),
        (lambda db: flip(derived(db, ".slots"), 0), "its list of slots is damaged"),
        (lambda db: flip(derived(db, ".sketches"), 0), "it cannot be read"),
        (lambda db: _cut(derived(db, ".sketches")), "it ends before its 12 rows do"),
        (lambda db: _cut(derived(db, ".vectors")), "its vectors end before its 12 rows do"),
    ],
)
def test_damaged_sketches_are_taken_away_and_searches_answer_as_before(db, damage, said_of_it):
    before = answers(db)
    damage(db)

    worst, text = state(look(db), "sketches")

    assert worst == "repaired"
    assert said_of_it in text
    assert not derived(db, ".keys").exists()
    assert answers(db) == before


def _cut(path):
    path.write_bytes(path.read_bytes()[:-7])


def test_a_damaged_file_that_another_process_writes_is_left_to_it(db):
    keep = """
    with Catalog.open(path) as catalog:
        recipe = catalog.find_recipe(None)
        catalog.family_vectors("base", recipe).keep_sketches_at_hand()
        print("kept", flush=True)
        sys.stdin.readline()
    """
    with process(db, keep) as service:
        assert said(service) == "kept"
        flip(derived(db, ".vectors"), 33)
        found = look(db)

        assert "another process writes it" in state(found, "sketches")[1]
        assert state(found, "sketches")[0] == "problem"
        assert derived(db, ".keys").exists()
        assert "holds it and lets others in" in state(found, "holder")[1]


# what is left over


def test_files_of_families_that_are_gone_are_removed_and_strangers_stay(db):
    folder = index_folder(db)
    gone = [folder / ("0123456789abcdef" + e) for e in (".faiss", ".json", ".keys", ".lock")]
    strange = [folder / "README", folder / "0123.faiss", folder / "0123456789abcdef.txt"]
    for path in (*gone, *strange):
        path.write_bytes(b"x")
    kept = derived(db, ".faiss").read_bytes()

    worst, text = state(look(db), "leftovers")

    assert (worst, "4 files of no use" in text) == ("repaired", True)
    assert not any(path.exists() for path in gone)
    assert all(path.exists() for path in strange)
    assert derived(db, ".faiss").read_bytes() == kept


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
    removed = left(ours, ended.pid, old), left(db.parent / ".c.duckdb.holder.{}.5.partial", 0, old)
    running, young = left(ours, os.getpid(), old), left(db.parent / ".c.duckdb.{}.partial", 0, 9e9)
    backup = left(db.parent / ".monday.duckdb.{}.partial", ended.pid, old)
    removed = [path for path in removed if path.name.split(".")[-2] != "5"]

    found = look(db)

    assert [f.state for f in found if f.check == "leftovers"] == ["repaired", "note"]
    assert not any(path.exists() for path in removed)
    assert running.exists()
    assert young.exists()
    assert backup.exists()


def test_the_note_of_a_process_that_was_killed_is_taken_away(db):
    with process(db, HOLDER.format(n=0)) as holder:
        assert said(holder) == "holding"
        holder.kill()
        holder.wait()
    assert note_path(db).exists()

    looked, mended = look(db, repairs=False), look(db)

    assert state(looked, "holder")[0] == "problem"
    assert state(mended, "holder")[0] == "repaired"
    assert not note_path(db).exists()


def test_a_process_that_holds_the_catalog_goes_on(db):
    with process(db, HOLDER.format(n=3)) as holder:
        assert said(holder) == "holding"

        found = look(db)

        assert troubles(found) == set()
        assert f"process {holder.pid} holds it" in state(found, "holder")[1]
        assert state(found, "rows")[1].startswith("15 indexed models")
        holder.stdin.write("\n")
        holder.stdin.flush()
        assert said(holder) == "gone"


def test_a_nearly_full_disk_is_a_problem(db, monkeypatch):
    usage = type("Usage", (), {"free": 10 << 20})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)

    assert space(db).state == "problem"
