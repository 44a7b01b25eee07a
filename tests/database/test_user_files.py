"""Every file that is written for a user: whole under its name, or as it was before."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from running import short_files

from deltadex.errors import RequestError, StoreFull

WRITERS = {
    "map.html": lambda db, path: db.map(path),
    "map.png": lambda db, path: db.map(path),
    "purity.csv": lambda db, path: db.evaluate().save(path),
    "vectors.safetensors": lambda db, path: db.export(path, format="safetensors"),
    "scores.parquet": lambda db, path: db.export_scores(path),
    "models.parquet": lambda db, path: db.export(path.parent),
}

EVERY = pytest.mark.parametrize("name", WRITERS)


@pytest.fixture
def target(name, tmp_path):
    folder = tmp_path / "written"
    folder.mkdir()
    return folder / name


@EVERY
@pytest.mark.parametrize(
    "before",
    [pytest.param(None, marks=pytest.mark.slow), "an older and longer one" * 9],
    ids=["new", "old"],
)
def test_what_cannot_be_written_whole_leaves_the_folder_as_it_was(db, name, target, before):
    if before is not None:
        target.write_text(before)

    with short_files(10), pytest.raises(StoreFull, match=r"(?i)file too large"):
        WRITERS[name](db, target)

    assert os.listdir(target.parent) == ([] if before is None else [name])
    assert before is None or target.read_text() == before


@EVERY
def test_a_file_is_replaced_whole_through_a_link_and_keeps_its_permissions(
    db, name, target, tmp_path
):
    real = tmp_path / "real"
    real.write_text("an older one")
    real.chmod(0o640)
    target.symlink_to(real)

    WRITERS[name](db, target)

    assert target.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert b"an older one" not in real.read_bytes()


@pytest.mark.parametrize("name", ["purity.csv"])
def test_a_new_file_has_the_permissions_of_the_umask(db, name, target):
    before = os.umask(0o027)
    try:
        WRITERS[name](db, target)
    finally:
        os.umask(before)

    assert target.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", ["purity.csv", "map.html"])
def test_a_pipe_is_written_as_it_is(db, name, target):
    os.mkfifo(target)
    read = []
    reader = threading.Thread(target=lambda: read.append(target.read_bytes()), daemon=True)
    reader.start()

    WRITERS[name](db, target)

    reader.join(60)
    assert read[0]
    assert target.is_fifo()


def test_standard_output_is_not_replaced_by_another_file(family):
    name = "out.csv"
    with (family / name).open("wb") as stdout:
        command = [sys.executable, "-m", "deltadex", "eval", "-o", name, "--db", "family.duckdb"]
        subprocess.run(command, stdout=stdout, check=True)

        assert os.path.samestat(os.fstat(stdout.fileno()), (family / name).stat())


@pytest.mark.parametrize("name", ["map.html", "purity.csv", "scores.parquet"])
def test_a_folder_that_is_not_there_is_said(db, name, tmp_path):
    with pytest.raises(RequestError, match=r"absent: no such folder; make it first"):
        WRITERS[name](db, tmp_path / "absent" / name)

    assert not Path(tmp_path / "absent").exists()
