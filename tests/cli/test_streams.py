"""Standard output and standard error that nobody reads, that are full, or of few characters."""

import json
import os
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest
from factories import make_family

from deltadex.cli import main

DATASET = "é–😀"


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """A folder with a catalog of four models."""
    folder = tmp_path_factory.mktemp("streams")
    models = make_family(folder, pairs=(DATASET, "b"))
    index = ["index", str(folder / "base"), str(models), "--labels", str(models / "labels.csv")]
    with redirect_stdout(None), pytest.raises(SystemExit) as ended:
        main([*index, "--db", str(folder / "c.duckdb"), "--quiet"])
    assert ended.value.code == 0
    return folder


@pytest.fixture
def unread():
    """A pipe without a reader."""
    read, write = os.pipe()
    os.close(read)
    with open(write, "w", encoding="utf-8") as stream:
        yield stream
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())


def run(*arguments, out, err):
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(list(map(str, arguments)))
    return ended.value.code


DOCUMENTS = [["ls"], ["ls", "--json"], ["ls", "--csv"], ["find-similar", "b-0"]]


@pytest.mark.parametrize("arguments", DOCUMENTS, ids=" ".join)
def test_a_command_ends_silently_when_nobody_reads_its_output(
    family, tmp_path, monkeypatch, unread, arguments
):
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "err").open("w") as err:
        code = run(*arguments, "--db", family / "c.duckdb", out=unread, err=err)

    assert (code, (tmp_path / "err").read_text()) == (141, "")


def test_the_interpreter_says_nothing_either(family, unread):
    command = [sys.executable, "-m", "deltadex", "ls", "--db", str(family / "c.duckdb")]

    done = subprocess.run(command, stdout=unread, stderr=subprocess.PIPE)

    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("arguments", ["ls", "--version", "ls --help"])
@pytest.mark.parametrize("place", [">/dev/full", ">&-"])
def test_an_output_that_cannot_be_written_is_said(family, arguments, place):
    command = f"{shlex.quote(sys.executable)} -m deltadex {arguments} {place}"
    environment = os.environ | {"DELTADEX_DB": str(family / "c.duckdb")}

    done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, env=environment)

    assert done.returncode == 3
    assert done.stderr.startswith("Error: the system refuses to read or write: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", ["ls --no-such", "--no-such", "find-similar no-such"])
def test_a_wrong_call_ends_with_2_even_where_its_line_cannot_be_written(
    family, monkeypatch, arguments
):
    monkeypatch.setenv("DELTADEX_DB", str(family / "c.duckdb"))
    with open("/dev/full", "w") as full:
        assert run(*arguments.split(), out=full, err=full) == 2


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("form", ["--json", "--csv", ""])
def test_every_character_is_written_in_every_encoding(family, tmp_path, encoding, form):
    with (tmp_path / "out").open("w", encoding=encoding) as out:
        code = run("ls", *filter(None, [form]), "--db", family / "c.duckdb", out=out, err=out)

    written = (tmp_path / "out").read_text("utf-8" if encoding == "ascii" else encoding)
    assert code == 0, written
    if form == "--json":
        assert {row["dataset"] for row in json.loads(written)["models"]} == {DATASET, "b"}


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("~no-such-user/c.duckdb", "home directory"),
        ("x" * 300, "File name too long"),
        ("loop/c.duckdb", "symbolic links"),
    ],
)
@pytest.mark.parametrize("command", [["ls", "--db"], ["publish"], ["attach"], ["find-similar"]])
def test_what_the_system_refuses_is_no_defect(family, tmp_path, monkeypatch, place, said, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELTADEX_DB", str(family / "c.duckdb"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # one may be an id of the Hub
    (tmp_path / "loop").symlink_to("loop")
    with (tmp_path / "err").open("w") as err:
        code = run(*command, place, out=err, err=err)

    assert code in (2, 3)
    assert "defect" not in (tmp_path / "err").read_text()


def test_a_folder_that_was_removed_is_said(family, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with (tmp_path / "err").open("w") as err:
        code = run("find-similar", "./x", "--db", family / "c.duckdb", out=err, err=err)

    assert code == 3
    assert "the current folder is not there any more" in (tmp_path / "err").read_text()
