"""Two processes, or two threads, on one catalog file."""

import os
import tempfile
import threading
import time
from pathlib import Path

import pytest
from catalogs import write
from outcomes import indexed, numbered
from processes import holding, kill, process, said
from running import run

from deltadex.search import StoredQuery, find_similar
from deltadex.store import Catalog
from deltadex.store import holding as held


def _ids(catalog):
    return [row.id for row in catalog.models()]


# Two processes


def test_what_one_process_writes_is_seen_by_another_that_has_the_catalog_open(path):
    code = """
    with Catalog.open(path) as catalog:
        print("open", flush=True)
        sys.stdin.readline()
        print(" ".join(row.id for row in catalog.models()), flush=True)
        sys.stdin.readline()
    """
    with process(path, code) as other:
        said(other)
        with Catalog.open(path) as catalog:
            before = catalog.changes
            catalog.record(indexed("mine", seed=5))
            catalog.record(indexed("mine", seed=6))
            other.stdin.write("tell\n")
            other.stdin.flush()

            assert said(other) == "mine"
            assert catalog.changes != before
        other.communicate("end\n")

    with Catalog.open(path, read_only=True) as catalog:
        assert _ids(catalog) == ["mine"]
        assert len(catalog.slots(catalog.model("mine", "base").key)) == len(indexed("mine").slots)


def test_writers_at_once_leave_every_model_once(path):
    code = """
    with Catalog.open(path) as catalog:
        for number in range(4):
            catalog.record(indexed(f"m{number:03}", seed=number))
    print("done", flush=True)
    """
    with process(path, code) as one, process(path, code) as two:
        assert said(one) == said(two) == "done"

    with Catalog.open(path, read_only=True) as catalog:
        assert _ids(catalog) == [f"m{number:03}" for number in range(4)]
        assert catalog.family("base", catalog.find_recipe(None)).by_id()[1].shape[0] == 4


def test_what_a_process_has_recorded_is_there_when_it_is_killed_and_nothing_of_half_a_change(path):
    code = """
    catalog = Catalog.open(path)
    def change(session):
        session.execute("DELETE FROM models")
        print("begun", flush=True)
        sys.stdin.readline()
    catalog.write(change)
    """
    with holding(path, 2) as first, Catalog.open(path) as catalog, catalog.reader() as reader:
        assert len(_ids(catalog)) == 2
        kill(first)
        with process(path, code) as second:
            assert said(second) == "begun"
            kill(second)

        catalog.record(indexed("later"))

        assert _ids(reader) == _ids(catalog) == ["held000", "held001", "later"]


def test_a_snapshot_is_of_one_moment_and_a_writer_waits_for_its_end(path):
    code = """
    with Catalog.open(path) as catalog:
        print("writing", flush=True)
        catalog.record(indexed("b"))
    print("written", flush=True)
    """
    write(path, indexed("a"))
    with Catalog.open(path, read_only=True) as catalog:
        with catalog.snapshot(), process(path, code) as writer:
            before = catalog.changes
            time.sleep(1.0)
            assert _ids(catalog) == ["a"]
            assert catalog.changes == before
            kill(writer)
        with process(path, code) as writer:
            assert [said(writer), said(writer)] == ["writing", "written"]

        assert _ids(catalog) == ["a", "b"]
        assert catalog.changes != before


def test_a_wish_of_a_process_that_is_gone_hinders_nobody(path):
    wanted = path.with_name(path.name + ".wanted")
    with Catalog.open(path) as catalog:
        catalog.record(indexed("a"))
        wanted.touch()
        time.sleep(0.5)

        catalog.record(indexed("b"))

        assert _ids(catalog) == ["a", "b"]
        assert not wanted.exists()


def test_a_command_says_which_process_it_has_waited_for(path, monkeypatch):
    write(path, indexed("m"))
    monkeypatch.setattr(held, "PATIENCE_S", 0.3)
    code = """
    import duckdb
    connection = duckdb.connect(str(path), read_only=True)
    print("ready", flush=True)
    sys.stdin.readline()
    """
    with process(path, code) as reader:
        assert said(reader) == "ready"
        refused = run(path, "rm", "m")

        assert refused.exit_code == 3
        assert f"process {reader.pid} " in refused.stderr.splitlines()[-1]
        assert run(path, "ls").exit_code == 0


def test_a_writer_does_not_wait_for_the_end_of_another_users_process_that_reads():
    if os.getuid() != 0:
        pytest.skip("only root becomes another user")
    code = """
    import os
    os.setuid(65534)
    with Catalog.open(path, read_only=True) as catalog:
        print(len(catalog.models()), flush=True)
        sys.stdin.readline()
        print(len(catalog.models()), flush=True)
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "c.duckdb"
        write(path, indexed("a"))
        path.chmod(0o644)
        with process(path, code) as reader:
            assert said(reader) == "1"
            write(path, indexed("b"))
            assert reader.communicate("again\n")[0].strip() == "2"


# Threads of one process


def test_a_reader_that_does_not_wait_sees_the_last_snapshot_that_was_caught_up(path):
    with Catalog.open(path) as catalog, catalog.reader(waits_for_index=False) as reader:
        for number in range(3):
            catalog.record(indexed(f"m{number}", seed=number))

        def found(by):
            return {n.model for n in find_similar(by, StoredQuery("m0"), k=9).neighbours}

        assert found(reader) == {"m1", "m2"}
        catalog.record(indexed("m3", seed=3))
        assert found(reader) == {"m1", "m2"}
        assert found(catalog) == {"m1", "m2", "m3"}
        assert found(reader) == {"m1", "m2", "m3"}


@pytest.mark.slow
def test_threads_that_read_and_write_in_turns_never_wait_for_one_another_for_ever(path):
    """A thread in a snapshot takes locks of the family; another has them, and wants the file."""
    write(path, *numbered(6, "m{:03}"))
    wanted, failures = path.with_name(path.name + ".wanted"), []

    def ask(number):
        try:
            with Catalog.open(path) as own:
                for turn in range(15):
                    find_similar(own, StoredQuery("m003"), k=3)
                    if number == 0:
                        own.record(indexed(f"n{turn}", seed=turn))
                    wanted.touch()
        except Exception as err:
            failures.append(err)

    threads = [threading.Thread(target=ask, args=(n,), daemon=True) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert failures == []
    assert not any(thread.is_alive() for thread in threads)
