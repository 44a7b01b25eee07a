import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from outcomes import indexed
from patients import answers, derived, flip, look, state, troubles
from processes import holding, kill, process, said

from deltadex.store import Catalog
from deltadex.store.care.checks import space
from deltadex.store.derived.row_files import read_shapes
from deltadex.store.files import index_folder
from deltadex.store.sharing import holder_path

pytestmark = pytest.mark.usefixtures("small_files")


# index files


def test_a_damaged_index_is_made_again_and_searches_answer_as_before(db):
    before = answers(db)
    flip(derived(db, ".faiss"), -5)

    found = look(db)

    assert "rebuilt from 12 vectors" in state(found, "index")[1]
    assert state(found, "index")[0] == "repaired"
    assert answers(db) == before


@pytest.mark.parametrize("ending", [".faiss", ".json"])
def test_an_index_of_which_a_file_is_missing_is_made_again(db, ending):
    derived(db, ending).unlink()

    assert "damaged or incomplete" in state(look(db), "index")[1]
    assert derived(db, ending).exists()


def test_an_index_that_is_behind_is_well(db):
    with Catalog.open(db) as catalog:
        catalog.record(indexed("late", seed=77))
        catalog.remove("m03")

    worst, text = state(look(db), "index")

    assert worst == "ok"
    assert "2 changes since" in text


# files of sketches


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "said_of_it"),
    [
        (lambda db: flip(derived(db, ".sketches"), -3), "1 row at least differ"),
        (lambda db: flip(derived(db, ".vectors"), 33), "1 row at least differ"),
        (lambda db: flip(derived(db, ".weights"), -2), "1 row at least differ"),
        (lambda db: flip(derived(db, ".keys"), -2), "1 row at least differ"),
        (lambda db: flip(derived(db, ".keys"), -40 * 3 + 7), "1 row at least differ"),
        (lambda db: flip(derived(db, ".keys"), 0), "its list of slots is damaged"),
        (lambda db: _other_blocks(derived(db, ".keys")), "its rows are not those of"),
        (lambda db: _cut(derived(db, ".sketches")), "it ends before its rows do"),
        (lambda db: _cut(derived(db, ".weights")), "it ends before its rows do"),
        (lambda db: _cut(derived(db, ".vectors")), "it ends before its rows do"),
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


def _other_blocks(path):
    _, _, entries = path.read_bytes().partition(b"\n")
    header = replace(read_shapes(path), blocks={"update": 16}).to_json()
    path.write_bytes(header + b"\n" + entries)


def _cut(path):
    path.write_bytes(path.read_bytes()[:-7])


def test_a_damaged_file_that_another_process_writes_is_left_to_it(db):
    keep = """
    with Catalog.open(path) as catalog:
        recipe = catalog.find_recipe(None)
        catalog.family("base", recipe).write_sketch_file()
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
        assert "holds it and serves other processes" in state(found, "holder")[1]


# what is left over


def test_files_of_families_that_are_gone_are_removed_and_strangers_stay(db):
    folder = index_folder(db)
    gone = [folder / ("0123456789abcdef" + e) for e in (".faiss", ".json", ".keys", ".lock")]
    strange = [folder / "README", folder / "0123.faiss", folder / "0123456789abcdef.txt"]
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
    holder, commits = (f".c.duckdb.{name}.{{}}.0.partial" for name in ("holder", "commits"))
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


def test_the_note_of_a_process_that_was_killed_is_no_problem_and_is_taken_away(db):
    with holding(db, 0) as holder:
        kill(holder)
    assert holder_path(db).exists()

    looked, mended = look(db, repairs=False), look(db)

    assert state(looked, "holder")[0] == "note"
    assert troubles(looked) == set()
    assert state(mended, "holder")[0] == "repaired"
    assert not holder_path(db).exists()


def test_a_process_that_holds_the_catalog_goes_on(db):
    with holding(db, 3) as holder:
        found = look(db)

        assert troubles(found) == set()
        assert f"process {holder.pid} holds it" in state(found, "holder")[1]
        assert state(found, "models")[1].startswith("15 indexed models")
        holder.stdin.write("\n")
        holder.stdin.flush()
        assert said(holder) == "gone"


def test_a_nearly_full_disk_is_a_problem(db, monkeypatch):
    usage = type("Usage", (), {"free": 10 << 20})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)

    assert space(db).state == "problem"
