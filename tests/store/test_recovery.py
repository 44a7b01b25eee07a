"""What a killed process or a power loss leaves in DuckDB's log, and what is said of it."""

import logging
import os
import shutil

import pytest
from catalogs import write
from outcomes import indexed, numbered
from patients import look, state, troubles
from processes import holding, kill

from deltadex.errors import StoreDamaged
from deltadex.store import Catalog, back_up, examine
from deltadex.store import holding as held
from deltadex.store.files import make_folder, write_atomically

PAGE = 4096
FIRST_BLOCK = 3 * PAGE
"""Where the first block of a DuckDB file begins, behind three headers; it holds metadata."""
COMMITS = ["m0", "m1", "m2"]

N = 8
IDS = {f"held{number:03}" for number in range(N)}


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A catalog whose writer was killed: its models are in the write-ahead log."""
    path = tmp_path_factory.mktemp("killed") / "c.duckdb"
    with holding(path, N) as writer:
        kill(writer)
    return path.parent


@pytest.fixture
def db(killed, tmp_path):
    shutil.copytree(killed, tmp_path / "own")
    return tmp_path / "own" / "c.duckdb"


def wal(db):
    return db.with_name(db.name + ".wal")


def ids(db, read_only=False, **options):
    with Catalog.open(db, read_only=read_only, **options) as catalog:
        return {row.id for row in catalog.models()}


def warnings(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


def test_a_killed_writer_has_lost_nothing_and_nothing_is_said(db, caplog):
    assert ids(db, read_only=True) == IDS
    assert warnings(caplog) == []


@pytest.mark.parametrize(("share", "read_only"), [(0.0, True), (0.5, False), (0.999, True)])
def test_a_log_cut_short_is_noticed_and_its_models_are_named(db, caplog, share, read_only):
    data = wal(db).read_bytes()
    wal(db).write_bytes(data[: int(share * len(data))])

    present = ids(db, read_only)

    lost = IDS - present
    assert lost
    [warning] = warnings(caplog)
    assert f"{len(lost)} change" in warning
    assert "deltadex doctor" in warning
    caplog.clear()
    found = state(look(db), "commits")
    assert found[0] == "problem"
    assert {name for name in lost if name in found[1]} == lost


def test_a_log_that_is_gone_is_noticed_until_the_models_are_there_again(db, caplog):
    wal(db).unlink()
    write(db, *numbered(2 * N, "other{}"))
    assert "held000, held001" in state(look(db), "commits")[1]
    caplog.clear()

    for number in range(N):
        assert len(warnings(caplog)) == number
        write(db, indexed(f"held{number:03}", seed=number))
    caplog.clear()

    assert len(ids(db)) == 3 * N
    assert warnings(caplog) == []
    assert "commits" not in troubles(look(db))


@pytest.mark.parametrize("make", ["another catalog", "a backup of it"])
def test_another_file_in_its_place_is_not_taken_for_it(db, tmp_path, caplog, make):
    target = tmp_path / "target.duckdb"
    if make == "a backup of it":
        with Catalog.open(db) as catalog:
            back_up(catalog, target)
            catalog.record(indexed("later"))
        with holding(db, 3) as writer:
            kill(writer)
    else:
        write(target, indexed("a"))
    wal(db).unlink(missing_ok=True)
    shutil.copy(target, db)

    assert ids(db)
    assert warnings(caplog) == []


@pytest.mark.parametrize("harm", [b"", b"00000000 {}", b"\xff\x00" * 50])
def test_a_damaged_commit_log_is_a_note_of_the_doctor_and_is_written_again(db, caplog, harm):
    log = db.with_name(db.name + ".commits")
    log.write_bytes(harm)
    worst, said = state(look(db, repairs=False), "commits")
    assert (worst, said.split(":")[0]) == ("note", "c.duckdb.commits cannot be read")

    with Catalog.open(db) as catalog:
        catalog.record(indexed("more"))
        written = log.read_bytes()

    assert warnings(caplog) == []
    assert b'"more"' in written


# a power loss in DuckDB's writing, against damage of other causes


@pytest.fixture
def logged(tmp_path):
    """A catalog whose models are in its log, and where the log ended after each of them."""
    source, target = tmp_path / "source.duckdb", tmp_path / "c.duckdb"
    sizes = []
    with Catalog.open(source) as catalog:
        for seed, id in enumerate(COMMITS):
            catalog.record(indexed(id, seed=seed))
            sizes.append(wal(source).stat().st_size)
        shutil.copy(source, target)
        shutil.copy(wal(source), wal(target))
        shutil.copy(f"{source}.commits", f"{target}.commits")
    return target, sizes


def lose(db, at):
    """Make bytes of the log zeros."""
    with wal(db).open("rb+") as file:
        file.seek(at)
        file.write(bytes(200))


def _contents(path):
    return [path.read_bytes(), wal(path).read_bytes()]


@pytest.mark.parametrize(("lost", "read_only"), [(0, False), (1, True), (2, False)])
def test_a_log_that_duckdb_refuses_is_set_aside_and_its_models_are_named(
    logged, read_only, lost, caplog
):
    db, sizes = logged
    start = [0, *sizes][lost]
    lose(db, start + 200)  # in the content: DuckDB takes some damaged heads for the end of the log
    refused = wal(db).read_bytes()

    assert ids(db, read_only=read_only) == set()
    assert "opened as of its last checkpoint" in caplog.text
    assert "3 changes" in caplog.text
    [aside] = db.parent.glob("c.duckdb.wal.refused-*")
    assert aside.read_bytes() == refused
    worst, text = state(look(db), "commits")
    assert worst == "problem"
    assert all(id in text for id in COMMITS)
    write(db, *numbered(3, "m{}"))
    assert ids(db) == set(COMMITS)
    assert troubles(look(db)) == set()


def test_a_log_stays_where_the_file_is_damaged_too(logged):
    db, sizes = logged
    lose(db, sizes[1] + 40)
    data = bytearray(db.read_bytes())
    data[FIRST_BLOCK : FIRST_BLOCK + PAGE] = bytes(PAGE)
    db.write_bytes(data)
    before = _contents(db)

    with pytest.raises(StoreDamaged, match="nothing was changed"):
        Catalog.open(db)
    assert _contents(db) == before
    assert not list(db.parent.glob("*.refused-*"))


def test_a_log_is_set_aside_by_the_doctor_and_by_nobody_who_only_looks(logged):
    db, sizes = logged
    lose(db, sizes[1] + 40)
    before = _contents(db)

    with pytest.raises(StoreDamaged):
        Catalog.open(db, read_only=True, repairs=False)
    assert _contents(db) == before
    (checked,) = (f for f in examine(db, repairs=False) if f.check == "catalog")
    assert (checked.state, _contents(db)) == ("problem", before)
    found = {f.check: f for f in examine(db)}
    assert found["catalog"].state == "repaired"
    assert "wal.refused-" in found["catalog"].detail
    assert ids(db) == set()


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


def test_a_catalog_that_is_written_for_long_has_checkpoints(tmp_path, monkeypatch):
    monkeypatch.setattr(held, "CHECKPOINT_EVERY_S", 0.0)
    source, target = tmp_path / "source.duckdb", tmp_path / "c.duckdb"
    with Catalog.open(source) as catalog:
        for seed, id in enumerate(COMMITS):
            catalog.record(indexed(id, seed=seed))
            shutil.copy(source, target)  # without its log

            assert ids(target) == set(COMMITS[: seed + 1])
