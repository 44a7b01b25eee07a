"""A write-ahead log that was cut short opens with fewer models: the commit log says which."""

import logging
import shutil

import pytest
from outcomes import indexed
from patients import look, state, troubles
from processes import HOLDER, process, said

from deltadex.store import Catalog, back_up

N = 8
IDS = {f"held{number:03}" for number in range(N)}


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A catalog whose writer was killed: its models are in the write-ahead log."""
    path = tmp_path_factory.mktemp("killed") / "c.duckdb"
    with process(path, HOLDER.format(n=N)) as writer:
        said(writer)
        writer.kill()
        writer.wait()
    return path.parent


@pytest.fixture
def db(killed, tmp_path):
    shutil.copytree(killed, tmp_path / "own")
    return tmp_path / "own" / "c.duckdb"


def wal(db):
    return db.with_name(db.name + ".wal")


def ids(db, read_only=False):
    with Catalog.open(db, read_only=read_only) as catalog:
        return {row.id for row in catalog.models()}


def warnings(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


def test_a_killed_writer_has_lost_nothing_and_nothing_is_said(db, caplog):
    present = ids(db, read_only=True)

    assert present == IDS
    assert warnings(caplog) == []
    assert state(look(db), "commits")[0] == "ok"


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9, 0.999])
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

    for number in range(N):
        assert len(warnings(caplog)) == number
        with Catalog.open(db) as catalog:
            catalog.record(indexed(f"held{number:03}", seed=number))
    caplog.clear()

    assert len(ids(db)) == N
    assert warnings(caplog) == []
    assert "commits" not in troubles(look(db))


def test_later_models_do_not_hide_the_lost_ones(db):
    wal(db).unlink()
    with Catalog.open(db) as catalog:
        for number in range(2 * N):
            catalog.record(indexed(f"other{number}", seed=number))

    found = state(look(db), "commits")

    assert found[0] == "problem"
    assert "held000, held001" in found[1]


def test_lost_changes_that_recorded_no_model_are_counted(db):
    assert len(ids(db)) == N
    code = """
    catalog = Catalog.open(path)
    catalog.label("held001", dataset="imdb")
    catalog.remove("held002")
    print("changed", flush=True)
    time.sleep(60)
    """
    with process(db, code) as writer:
        said(writer)
        writer.kill()
        writer.wait()
    wal(db).unlink()

    found = state(look(db), "commits")

    assert found[0] == "problem"
    assert "2 changes" in found[1]
    assert "none of them recorded a model" in found[1]


def test_a_catalog_that_was_closed_leaves_no_commit_log(tmp_path):
    with Catalog.open(tmp_path / "c.duckdb") as catalog:
        catalog.record(indexed("a"))

    assert [path.name for path in tmp_path.iterdir()] == ["c.duckdb"]


@pytest.mark.parametrize("make", ["another catalog", "a backup of it"])
def test_another_file_in_its_place_is_not_taken_for_it(db, tmp_path, caplog, make):
    target = tmp_path / "target.duckdb"
    if make == "a backup of it":
        with Catalog.open(db) as catalog:
            back_up(catalog, target)
            catalog.record(indexed("later"))
        with process(db, HOLDER.format(n=3)) as writer:
            said(writer)
            writer.kill()
    else:
        with Catalog.open(target) as catalog:
            catalog.record(indexed("a"))
    wal(db).unlink(missing_ok=True)
    shutil.copy(target, db)

    assert ids(db)
    assert warnings(caplog) == []


@pytest.mark.parametrize("harm", [b"", b"\n\n", b"00000000 {}", b"\xff\x00" * 50])
def test_a_damaged_commit_log_says_nothing_and_is_written_again(db, caplog, harm):
    log = db.with_name(db.name + ".commits")
    log.write_bytes(harm)

    with Catalog.open(db) as catalog:
        catalog.record(indexed("more"))
        written = log.read_bytes()

    assert warnings(caplog) == []
    assert b'"more"' in written


def test_a_line_that_was_cut_off_does_not_count(db, caplog):
    log = db.with_name(db.name + ".commits")
    whole = log.read_bytes()
    last = whole.rindex(b"\n")
    wal(db).unlink()
    log.write_bytes(whole[: (last + len(whole)) // 2])

    assert ids(db, read_only=True) == set()
    assert f"{N - 1} changes" in warnings(caplog)[0]


def test_a_folder_that_refuses_the_commit_log_is_no_error(tmp_path):
    db = tmp_path / "c.duckdb"
    Catalog.open(db).close()
    (tmp_path / "c.duckdb.commits").mkdir()

    with Catalog.open(db) as catalog:
        catalog.record(indexed("a"))

    assert ids(db) == {"a"}
