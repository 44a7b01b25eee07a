"""Damage anywhere in a catalog's file: every block is read, every index of a table walked."""

import shutil
import subprocess
import sys

import duckdb
import numpy as np
import pytest
from patients import look, sql, state, troubles

from deltadex.store import Catalog
from deltadex.store.care import checks, raw_file

HEADERS = 3 * 4096
N_MODELS = 4_000


@pytest.fixture(scope="module")
def large(made, tmp_path_factory):
    """A catalog whose indexes have blocks of their own."""
    folder = tmp_path_factory.mktemp("large")
    shutil.copy(made / "c.duckdb", folder)
    sql(
        folder / "c.duckdb",
        "INSERT INTO models (key, base, id, status, kind, bytes_total, bytes_read, seconds) "
        "SELECT 1000 + i, 'base', 'org/model-' || hash(i) || '-of-a-long-name', 'failed', 'full', "
        f"0, 0, 0 FROM range({N_MODELS}) t(i)",
        "CREATE OR REPLACE SEQUENCE model_keys START 100000",
    )
    return folder


@pytest.fixture
def db(large, tmp_path):
    shutil.copytree(large, tmp_path / "own")
    return tmp_path / "own" / "c.duckdb"


def blocks_of(db):
    """Numbers of the blocks in use, those of tables, and the size of a block."""
    with duckdb.connect(str(db), read_only=True) as connection:
        of_tables = set()
        for table in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            rows = connection.execute(
                "SELECT block_id, additional_block_ids FROM pragma_storage_info(?)", table
            ).fetchall()
            of_tables |= {b for block, more in rows for b in (block, *(more or ())) if b >= 0}
        [(size,)] = connection.execute("SELECT block_size FROM pragma_database_size()").fetchall()
    with db.open("rb") as file:
        header = raw_file._header(file.read(HEADERS))
        free = raw_file._free_blocks(file, header)
    return set(range(header.n_blocks)) - free, of_tables, size


def harm(db, block, size, rng, n_flips=24):
    data = bytearray(db.read_bytes())
    start = HEADERS + block * size
    used = np.flatnonzero(np.frombuffer(data, np.uint8, size, start))
    for place in rng.choice(used, n_flips):
        data[start + place] ^= 1 << rng.integers(8)
    db.write_bytes(data)


def test_damage_of_any_block_in_use_is_found(db):
    used, of_tables, size = blocks_of(db)
    rng, whole = np.random.default_rng(0), db.read_bytes()
    others = sorted(used - of_tables)
    assert len(others) >= 3

    for block in [*others, *sorted(of_tables)[:2]]:
        db.write_bytes(whole)
        harm(db, block, size, rng, n_flips=1)

        assert troubles(look(db, repairs=False)), block


@pytest.mark.slow
def test_damaged_indexes_are_made_again_and_lookups_answer_as_before(db, monkeypatch):
    used, of_tables, size = blocks_of(db)
    rng, whole, n_repaired = np.random.default_rng(1), db.read_bytes(), 0
    with duckdb.connect(str(db), read_only=True) as connection:
        before = connection.execute("SELECT * FROM models ORDER BY key").fetchall()
        comments = _comments(connection)
    monkeypatch.setattr(checks, "BETWEEN_READS_S", 0.0)

    for block in sorted(used - of_tables):
        db.write_bytes(whole)
        db.with_name("c.duckdb.wal").unlink(missing_ok=True)
        harm(db, block, size, rng)
        if state(look(db, repairs=False), "catalog")[0] != "ok":
            continue  # a block without which DuckDB opens nothing
        if state(look(db), "table indexes")[0] != "repaired":
            continue
        n_repaired += 1

        assert troubles(look(db)) == set()
        with duckdb.connect(str(db), read_only=True) as connection:
            assert connection.execute("SELECT * FROM models ORDER BY key").fetchall() == before
            assert _comments(connection) == comments
            for key, id in [(before[7][0], before[7][2]), (before[-1][0], before[-1][2])]:
                by_key = "SELECT id FROM models WHERE key = ?"
                assert connection.execute(by_key, [key]).fetchall() == [(id,)]
                by_id = "SELECT key FROM models WHERE id = ?"
                assert connection.execute(by_id, [id]).fetchall() == [(key,)]

    assert n_repaired >= 2


def _comments(connection):
    return connection.execute(
        "SELECT table_name, column_name, comment FROM duckdb_columns() "
        "WHERE comment IS NOT NULL ORDER BY ALL"
    ).fetchall()


def test_a_search_of_a_damaged_index_names_the_doctor(db):
    used, of_tables, size = blocks_of(db)
    rng, whole, said = np.random.default_rng(2), db.read_bytes(), []
    for block in sorted(used - of_tables):
        db.write_bytes(whole)
        harm(db, block, size, rng)
        try:
            with Catalog.open(db, read_only=True) as catalog:
                catalog.model("m03")
        except Exception as err:
            said.append(str(err))

    assert said
    assert all("deltadex doctor" in line for line in said)


def test_lookups_use_the_index(db):
    with duckdb.connect(str(db), read_only=True) as connection:
        keys = [k for (k,) in connection.execute("SELECT key FROM models LIMIT 1500").fetchall()]
        wanted = ", ".join(map(str, keys))
        [(_, plan)] = connection.execute(
            f"EXPLAIN ANALYZE SELECT DISTINCT key FROM models WHERE key IN ({wanted})"
        ).fetchall()

    assert "Index Scan" in plan


def test_free_blocks_may_hold_anything(db):
    with duckdb.connect(str(db)) as connection:
        connection.execute("CREATE TABLE scratch AS SELECT random() AS r FROM range(200000)")
        connection.execute("CHECKPOINT")
        connection.execute("DROP TABLE scratch")
        connection.execute("CHECKPOINT")
    used, _, size = blocks_of(db)
    n_blocks = (db.stat().st_size - HEADERS) // size
    free = set(range(n_blocks)) - used
    assert free
    for block in free:
        harm(db, block, size, np.random.default_rng(3))

    assert troubles(look(db, repairs=False)) == set()


def test_another_format_of_blocks_is_only_noted(db, monkeypatch):
    monkeypatch.setattr(checks, "read_in_child", lambda *_: None)

    assert state(look(db, repairs=False), "blocks")[0] == "note"


def test_the_holders_lock_stays_while_its_file_is_read(db):
    with Catalog.open(db) as catalog:
        look(db, repairs=False)
        raw_file.read_in_child("sha256", db)

        code = "import duckdb, sys; duckdb.connect(sys.argv[1])"
        other = subprocess.run(
            [sys.executable, "-c", code, str(db)], capture_output=True, text=True
        )
        assert "lock" in other.stderr
        assert catalog.bases() == ["base"]
