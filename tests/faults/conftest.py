"""A small family, and runs of `deltadex index` over it."""

import subprocess
import sys
from contextlib import contextmanager

import pytest
from factories import make_family
from runs_of_index import PROGRAM, Indexing, vectors

from deltadex.indexer import IndexOptions, index_family
from deltadex.store import Catalog


@pytest.fixture(scope="session")
def family(tmp_path_factory):
    """`base` and eight `models`."""
    folder = tmp_path_factory.mktemp("family")
    make_family(folder, runs=4)
    return folder


@pytest.fixture(scope="session")
def expected(family, tmp_path_factory):
    """The vectors of an undisturbed run."""
    path = tmp_path_factory.mktemp("whole") / "c.duckdb"
    options = IndexOptions(base=str(family / "base"), source=family / "models")
    with Catalog.open(path) as catalog:
        index_family(catalog, options)
        return vectors(catalog)


@pytest.fixture
def indexing(family, tmp_path):
    """Begins a run that fills `tmp_path/c.duckdb`."""

    @contextmanager
    def begin():
        trace = tmp_path / "recorded"
        trace.write_text("")
        command = [sys.executable, "-c", PROGRAM, trace, "index", "base", "models"]
        with subprocess.Popen(
            [*map(str, command), "--db", str(tmp_path / "c.duckdb"), "--quiet"],
            cwd=family,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
        ) as process:
            try:
                yield Indexing(process, trace)
            finally:
                process.kill()

    return begin
