import os
import subprocess
import sys
import time

import pytest
from patients import derived, look, state, troubles
from processes import holding, said

from deltadex.store.care.checks import space
from deltadex.store.files import index_folder

pytestmark = pytest.mark.usefixtures("small_files")


@pytest.mark.slow
# what is left over


def test_files_of_families_that_are_gone_are_removed_and_strangers_stay(db):
    folder = index_folder(db)
    gone = [folder / ("0123456789abcdef" + e) for e in (".faiss", ".npz", ".keys", ".lock")]
    strange = [folder / "README", folder / "0123.faiss"]
    for path in (*gone, *strange):
        path.write_bytes(b"x")
    kept = derived(db, ".faiss").read_bytes()

    worst, text = state(look(db), "leftovers")

    assert (worst, "4 unused files" in text) == ("repaired", True)
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
    holder, commits = (f".c.duckdb.{name}.{{}}.0.partial" for name in ("wanted", "commits"))
    removed = [left(path, ended.pid, old) for path in (ours, db.with_name(holder))]
    running = [left(path, os.getpid(), old) for path in (ours, db.with_name(commits))]
    young = left(db.with_name(".c.duckdb.{}.partial"), 0, 9e9)
    backup = left(db.with_name(".monday.duckdb.{}.partial"), ended.pid, old)

    found = look(db)

    assert [f.state for f in found if f.check == "leftovers"] == ["repaired", "note"]
    assert not any(path.exists() for path in removed)
    assert all(path.exists() for path in running)
    assert young.exists()
    assert backup.exists()


def test_a_process_that_holds_the_catalog_goes_on(db):
    with holding(db, 3) as holder:
        found = look(db)

        assert troubles(found) == set()
        assert state(found, "models")[1].startswith("15 indexed models")
        holder.stdin.write("\n")
        holder.stdin.flush()
        assert said(holder) == "gone"


def test_a_nearly_full_disk_is_a_problem(db, monkeypatch):
    usage = type("Usage", (), {"free": 10 << 20})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)

    assert space(db).state == "problem"
