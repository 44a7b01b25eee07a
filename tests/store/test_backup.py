import hashlib
import os
import subprocess
import threading
import time

import duckdb
import numpy as np
import pytest
from catalogs import linear_sketch_of, refused
from merges import contents
from outcomes import OTHER, RECIPE, SIGNATURE, data_set, indexed, linear, unit
from patients import SCHEMA
from processes import process, said

from deltadex.errors import RequestError, StoreError, StoreFull
from deltadex.store import BaseRecord, Catalog
from deltadex.store.care import backup as backup_module
from deltadex.store.care.backup import back_up
from deltadex.store.session import Session

WRITER = """
with Catalog.open(path) as catalog:
    print("holding", flush=True)
    for number in range(100_000):
        catalog.record(indexed(f"m{number:05}", seed=number))
"""


@pytest.fixture
def target(tmp_path):
    folder = tmp_path / "it's here"
    folder.mkdir()
    return folder / "b.duckdb"


def _fill(catalog, n=3):
    for number in range(n):
        catalog.record(indexed(f"m{number}", seed=number, dataset="d", notes=("odd",)))


def _schema(path):
    storage = "SELECT tags->>'storage_version' FROM duckdb_databases() WHERE NOT internal"
    with duckdb.connect(str(path), read_only=True) as connection:
        return [connection.execute(sql).fetchall() for sql in (*SCHEMA, storage)]


def test_a_backup_holds_all_that_the_catalog_holds(path, target):
    with Catalog.open(path) as catalog:
        _fill(catalog)
        catalog.record(indexed("other", recipe=OTHER, sketched=False))
        catalog.record(refused("bad"))
        catalog.save_base(
            BaseRecord(base="base", revision="r", architecture="bert", shapes={"q": (4, 3)})
        )
        catalog.data_sets.save(data_set("reviews"))
        catalog.signatures.save(SIGNATURE)
        catalog.listings("base").save("base", [{"id": "x"}])
        catalog.studies(catalog.model("m1").key).save("rank", {"a": 1}, {"b": 2})

        made = back_up(catalog, target)

    assert _schema(target) == _schema(path)
    assert contents(target) == contents(path)
    assert made.sha256 == hashlib.sha256(target.read_bytes()).hexdigest()
    assert (made.written, made.models, made.bytes) == (str(target), 5, target.stat().st_size)
    assert set(target.parent.iterdir()) == {target}


def test_a_restored_catalog_gives_no_key_that_was_given_after_the_backup(path, target, monkeypatch):
    with Catalog.open(path) as catalog:
        _fill(catalog)
        back_up(catalog, target)
        catalog.record(indexed("later"))
        later = catalog.model("later").key

    with Catalog.open(target) as restored:
        restored.record(indexed("new"))
        assert restored.model("new").key > later
        monkeypatch.setattr(time, "time_ns", lambda: 0)  # a clock that is behind
        back_up(restored, behind := target.with_name("behind.duckdb"))
        new = restored.model("new").key

    with Catalog.open(behind) as restored:
        restored.record(indexed("newer"))
        assert restored.model("newer").key > new


def test_a_backup_while_another_process_writes_is_a_whole_prefix(path, target):
    with process(path, WRITER) as writer:
        assert said(writer) == "holding"
        with Catalog.open(path, read_only=True) as catalog:
            wanted, made = 5, []
            for n in range(2):
                while len(catalog.models()) < wanted:
                    assert writer.poll() is None
                    time.sleep(0.05)
                made.append(back_up(catalog, target.with_name(f"{n}.duckdb")))
                wanted = made[-1].models + 1

    assert 5 <= made[0].models < made[1].models
    with Catalog.open(target.with_name("1.duckdb"), read_only=True) as backup:
        ids, vectors = backup.family("base", RECIPE).by_id()
        assert ids == [row.id for row in backup.models()]
        assert ids == [f"m{number:05}" for number in range(made[1].models)]
        for number, (id, vector) in enumerate(zip(ids, vectors, strict=True)):
            expected = indexed(id, seed=number).slots
            stored = backup.slots(backup.model(id).key)
            assert np.array_equal(vector, unit(number, 8))
            assert [s.sketch for s in stored] == [s.sketch for s in expected]
            assert linear_sketch_of(backup, id).pooled[0] == linear(number).pooled[0]


def test_nobody_waits_for_a_backup(path, target, monkeypatch):
    with Catalog.open(path) as catalog, catalog.reader() as other:
        _fill(catalog)
        fill = backup_module._fill
        is_copied, goes_on = threading.Event(), threading.Event()

        def slow(connection, name):
            models = fill(connection, name)
            is_copied.set()
            assert goes_on.wait(10)
            return models

        monkeypatch.setattr(backup_module, "_fill", slow)
        thread = threading.Thread(target=back_up, args=(catalog, target))
        thread.start()
        assert is_copied.wait(10)
        other.record(indexed("meanwhile"))
        goes_on.set()
        thread.join()

    with Catalog.open(target) as restored:
        assert "meanwhile" not in [row.id for row in restored.models()]


@pytest.mark.parametrize("statement", ["COPY", "COMMIT"])
def test_a_backup_that_fails_leaves_no_file_and_a_catalog_that_works(
    path, target, monkeypatch, statement
):
    with Catalog.open(path) as catalog:
        _fill(catalog)
        execute = Session.execute

        def failing(self, sql, values=None):
            if sql.startswith(statement) and "IF EXISTS" not in sql:
                raise duckdb.IOException("IO Error: No space left on device")
            return execute(self, sql, values)

        monkeypatch.setattr(Session, "execute", failing)
        with pytest.raises(StoreFull, match=r"b\.duckdb: disk full"):
            back_up(catalog, target)
        monkeypatch.undo()

        assert list(target.parent.iterdir()) == []
        attached = catalog.execute("SELECT database_name FROM duckdb_databases()")
        assert not [name for (name,) in attached if name.startswith("backup")]
        catalog.record(indexed("later"))
        assert back_up(catalog, target).models == 4


def test_a_disk_that_is_too_small_is_said_before_anything_is_written(path, target, monkeypatch):
    usage = type("Usage", (), {"free": 1 << 10})
    with Catalog.open(path) as catalog:
        _fill(catalog)
        catalog.execute("CHECKPOINT catalog")
        monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
        with pytest.raises(StoreFull, match=r"1\.0 KiB are free"):
            back_up(catalog, target)

    assert list(target.parent.iterdir()) == []


def test_a_target_that_is_no_place_for_a_backup_is_refused(path, tmp_path):
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    (tmp_path / "link.duckdb").symlink_to(path)
    (tmp_path / "other.duckdb").symlink_to(precious)
    named = {"missing/b.duckdb": "no such folder", "": "folder"}
    itself = dict.fromkeys(("c.duckdb", "link.duckdb"), "the catalog itself")
    with Catalog.open(path) as catalog:
        for name, reason in (named | itself).items():
            with pytest.raises(RequestError, match=reason):
                back_up(catalog, tmp_path / name, replace=True)
        with pytest.raises(StoreError, match="a symbolic link"):
            back_up(catalog, tmp_path / "other.duckdb", replace=True)
    assert precious.read_bytes() == b"precious"


# what a killed backup leaves


def test_a_later_backup_removes_what_a_killed_one_left_and_no_other_file(path, target):
    ended = subprocess.Popen(["true"])
    ended.wait()
    ours = target.with_name(f".{target.name}.{ended.pid}.partial")
    of_others = target.with_name(f".other.duckdb.{ended.pid}.partial")
    running = target.with_name(f".{target.name}.{os.getpid()}.0.partial")
    for left in (ours, ours.with_name(f"{ours.name}.wal"), of_others, running):
        left.write_bytes(b"half")
    with Catalog.open(path) as catalog:
        back_up(catalog, target)

    assert set(target.parent.iterdir()) == {target, of_others, running}
