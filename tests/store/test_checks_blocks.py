"""Damage anywhere in a catalog's file: every table is read, every index of a table walked."""

import shutil
from pathlib import Path

import duckdb
import numpy as np
import pytest
from patients import look, sql, troubles

from deltadex.store import Catalog, back_up

HEADERS = 3 * 4096
N_MODELS = 4_000


@pytest.fixture(scope="module")
def large(made, tmp_path_factory):
    """A catalog whose indexes have blocks of their own, and whose file has no free block."""
    folder = tmp_path_factory.mktemp("large")
    source = shutil.copy(made / "c.duckdb", folder / "source.duckdb")
    sql(
        source,
        "INSERT INTO models (key, base, id, status, code, kind, bytes_total, bytes_read, seconds) "
        "SELECT 1000 + i, 'base', 'org/model-' || hash(i) || '-of-a-long-name', 'failed', "
        f"'not-found', 'full', 0, 0, 0 FROM range({N_MODELS}) t(i)",
        "CREATE OR REPLACE SEQUENCE model_keys START 100000",
    )
    with Catalog.open(source) as catalog:
        back_up(catalog, folder / "c.duckdb")
    return folder


@pytest.fixture
def db(large, tmp_path):
    return Path(shutil.copy(large / "c.duckdb", tmp_path))


def blocks_of(db):
    """How many blocks a file without free ones has, those of tables, and the size of a block."""
    with duckdb.connect(str(db), read_only=True) as connection:
        of_tables = set()
        for table in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            rows = connection.execute(
                "SELECT block_id, additional_block_ids FROM pragma_storage_info(?)", table
            ).fetchall()
            of_tables |= {b for block, more in rows for b in (block, *(more or ())) if b >= 0}
        sizes = "SELECT block_size, total_blocks, free_blocks FROM pragma_database_size()"
        [(size, n_blocks, n_free)] = connection.execute(sizes).fetchall()
    assert n_free == 0
    return n_blocks, of_tables, size


def harm(db, block, size, rng, n_flips=24):
    data = bytearray(db.read_bytes())
    start = HEADERS + block * size
    used = np.flatnonzero(np.frombuffer(data, np.uint8, size, start))
    for place in rng.choice(used, n_flips):
        data[start + place] ^= 1 << rng.integers(8)
    db.write_bytes(data)


@pytest.mark.slow
def test_damage_of_any_block_is_found(db):
    n_blocks, of_tables, size = blocks_of(db)
    rng, whole = np.random.default_rng(0), db.read_bytes()
    assert n_blocks - len(of_tables) >= 3

    for block in range(n_blocks):
        db.write_bytes(whole)
        harm(db, block, size, rng, n_flips=1)

        assert troubles(look(db, repairs=False)), block


def test_a_search_of_a_damaged_index_names_the_doctor(db):
    n_blocks, of_tables, size = blocks_of(db)
    rng, whole, said = np.random.default_rng(2), db.read_bytes(), []
    for block in sorted(set(range(n_blocks)) - of_tables):
        db.write_bytes(whole)
        harm(db, block, size, rng)
        try:
            with Catalog.open(db, read_only=True) as catalog:
                catalog.model("m03")
        except Exception as err:
            said.append(str(err))

    assert said
    assert all("deltadex doctor" in line for line in said)
