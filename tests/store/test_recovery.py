"""Catalogs as a power loss in DuckDB's writing leaves them, against damage of other causes."""

import os
import shutil
from contextlib import suppress

import duckdb
import pytest
from outcomes import indexed

from deltadex.errors import StoreDamaged
from deltadex.store import Catalog
from deltadex.store.care.doctor import examine
from deltadex.store.files import make_folder, write_atomically
from deltadex.store.opening import log_path

PAGE = 4096
FIRST_BLOCK = 3 * PAGE
"""Where the first block of a DuckDB file begins, behind three headers; it holds metadata."""
COMMITS = ["m0", "m1", "m2"]


@pytest.fixture
def logged(tmp_path):
    """A catalog whose models are in its log, and where the log ended after each of them."""
    source, target = tmp_path / "source.duckdb", tmp_path / "c.duckdb"
    sizes = []
    with Catalog.open(source) as catalog:
        for seed, id in enumerate(COMMITS):
            catalog.record(indexed(id, seed=seed))
            sizes.append(log_path(source).stat().st_size)
        shutil.copy(source, target)
        shutil.copy(log_path(source), log_path(target))
    return target, sizes


@pytest.fixture
def interrupted(tmp_path):
    """A catalog whose checkpoint tore a block of metadata, before its header was written."""
    source, target = tmp_path / "source.duckdb", tmp_path / "c.duckdb"
    for seed, id in enumerate(COMMITS):
        with Catalog.open(source) as catalog:
            catalog.record(indexed(id, seed=seed))
            shutil.copy(source, target)
            shutil.copy(log_path(source), log_path(target))
    before = target.read_bytes()
    with suppress(duckdb.Error), duckdb.connect(str(target)) as connection:
        connection.execute("PRAGMA debug_checkpoint_abort = 'before_header'")
        connection.execute("CHECKPOINT")
    begun = log_path(target).read_bytes()
    with duckdb.connect(str(target)) as connection:
        connection.execute("CHECKPOINT")
    after = target.read_bytes()
    # of all blocks, a page of the first one was written
    end = FIRST_BLOCK + PAGE
    assert before[FIRST_BLOCK:end] != after[FIRST_BLOCK:end]
    target.write_bytes(before[:FIRST_BLOCK] + after[FIRST_BLOCK:end] + before[end:])
    log_path(target).write_bytes(begun)
    return target


def _overwrite(path, at, data):
    with path.open("rb+") as file:
        file.seek(at)
        file.write(data)


def _ids(path, **options):
    with Catalog.open(path, create=False, **options) as catalog:
        return sorted(row.id for row in catalog.models())


def _contents(path):
    return [path.read_bytes(), log_path(path).read_bytes()]


@pytest.mark.parametrize("read_only", [False, True])
def test_a_last_transaction_that_lost_a_page_is_undone(logged, read_only, caplog):
    db, sizes = logged
    _overwrite(log_path(db), sizes[1] + 40, bytes(200))

    assert _ids(db, read_only=read_only) == COMMITS[:2]
    assert "the machine stopped while this catalog was written" in caplog.text
    assert _ids(db) == COMMITS[:2]


def test_damage_before_a_later_commit_is_refused_and_left(logged):
    db, sizes = logged
    _overwrite(log_path(db), sizes[0] + 40, bytes(200))
    before = _contents(db)

    with pytest.raises(StoreDamaged, match="nothing was changed"):
        Catalog.open(db)
    assert _contents(db) == before


def test_a_catalog_opened_as_it_is_is_not_repaired(logged):
    db, sizes = logged
    _overwrite(log_path(db), sizes[1] + 40, bytes(200))
    before = _contents(db)

    with pytest.raises(StoreDamaged):
        Catalog.open(db, read_only=True, migrates=False)
    assert _contents(db) == before


def test_the_doctor_repairs_it_unless_it_only_checks(logged):
    db, sizes = logged
    _overwrite(log_path(db), sizes[1] + 40, bytes(200))
    before = _contents(db)

    (checked,) = (f for f in examine(db, repairs=False) if f.check == "catalog")
    assert (checked.state, _contents(db)) == ("problem", before)
    assert "without --check repairs it" in checked.advice
    (found,) = (f for f in examine(db) if f.check == "catalog")
    assert found.state == "repaired"
    assert _ids(db) == COMMITS[:2]


def test_a_checkpoint_that_tore_a_block_of_metadata_is_recovered_from(interrupted):
    assert _ids(interrupted) == COMMITS
    assert not [f for f in examine(interrupted, repairs=False) if f.state == "problem"]


def test_a_torn_block_without_a_checkpoint_in_the_log_is_refused_and_left(interrupted):
    log_path(interrupted).unlink()
    before = interrupted.read_bytes()

    with pytest.raises(StoreDamaged, match="nothing was changed"):
        Catalog.open(interrupted)
    assert interrupted.read_bytes() == before


def test_names_are_synced_after_a_file_and_a_folder_were_made(tmp_path, monkeypatch):
    synced, fsync = [], os.fsync

    def noted(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    make_folder(tmp_path / "a" / "b")
    write_atomically(tmp_path / "a" / "b" / "file", b"content")

    assert synced[:2] == [str(tmp_path / "a"), str(tmp_path)]
    assert synced[-1] == str(tmp_path / "a" / "b")
