import importlib
import shutil
import subprocess
from contextlib import contextmanager

import pytest
from killing import TASKS, check, lowered, undisturbed

from deltadex.errors import StoreFull
from deltadex.search import StoredQuery, find_similar, prepare_search
from deltadex.store import Catalog

INDEX = next(task for task in TASKS if task.name == "index")
SLOW = pytest.mark.slow


@contextmanager
def _small_disk(folder, size):
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("cannot mount a small disk here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize(
    "size", [pytest.param("64k", marks=SLOW), "200k", pytest.param("400k", marks=SLOW)]
)
def test_a_full_disk_ends_the_run_in_one_line_and_it_continues(nursery, prepared, tmp_path, size):
    expected = undisturbed(nursery, prepared, INDEX, tmp_path / "undisturbed")
    disk = tmp_path / "disk"
    with _small_disk(disk, size):
        db = disk / "c.duckdb"
        steps = INDEX.steps_in(disk)

        full = nursery.do(steps, prepared.family, db)

        assert full.code == 3
        (line,) = full.said.splitlines()
        assert line.startswith(f"Error: {disk}")
        assert "disk full" in line
        remount = ["mount", "-o", "remount,size=64m", str(disk)]
        subprocess.run(remount, check=True)
        if db.exists():
            assert not check(db, expected.whole, there=full.there)
        assert nursery.do(steps, prepared.family, db).code == 0
        assert not check(db, expected.after, there=expected.after.ids)


def test_a_full_disk_for_derived_files_fails_no_search(prepared, tmp_path, monkeypatch):
    folder = tmp_path / "c"
    folder.mkdir()
    db = folder / "c.duckdb"
    shutil.copy(prepared.starts["whole"] / "c.duckdb", db)
    derived = importlib.import_module("deltadex.store.files").index_folder(db)
    with Catalog.open(db, read_only=True) as catalog:
        (base,) = catalog.bases()
        expected = find_similar(catalog, StoredQuery("m00001"), k=20).to_json()
    with _small_disk(derived, "40k"), lowered():
        for spare in (0, 1 << 40):
            sketches = importlib.import_module("deltadex.store.derived.row_files")
            monkeypatch.setattr(sketches, "SPARE_BYTES", spare)
            with Catalog.open(db) as catalog:
                with pytest.raises(StoreFull, match="sketch"):
                    prepare_search(catalog, base, catalog.find_recipe(None))
                assert find_similar(catalog, StoredQuery("m00001"), k=20).to_json() == expected
            with Catalog.open(db, read_only=True) as catalog:
                assert find_similar(catalog, StoredQuery("m00001"), k=20).to_json() == expected
