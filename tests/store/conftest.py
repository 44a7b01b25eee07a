"""Catalogs that several tests begin with."""

import shutil

import pytest
from outcomes import RECIPE, indexed
from qdrant_server import qdrant_server

from deltadex.store import Catalog
from deltadex.store.derived import index as index_module


@pytest.fixture
def path(tmp_path):
    return tmp_path / "c.duckdb"


@pytest.fixture
def catalog(path):
    with Catalog.open(path) as opened:
        yield opened


@pytest.fixture
def a(tmp_path):
    return tmp_path / "a.duckdb"


@pytest.fixture
def b(tmp_path):
    return tmp_path / "b.duckdb"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a catalog, its index file and its file of sketches."""
    path = tmp_path_factory.mktemp("made") / "c.duckdb"
    with pytest.MonkeyPatch.context() as patch, Catalog.open(path) as catalog:
        patch.setattr(index_module, "PERSIST_FROM", 4)
        for number in range(12):
            catalog.record(indexed(f"m{number:02}", seed=number))
        _ = catalog.family("base", RECIPE).index
        catalog.family("base", RECIPE).write_sketch_file()
    return path.parent


@pytest.fixture
def db(made, tmp_path):
    """A copy of it."""
    shutil.copytree(made, tmp_path / "own")
    return tmp_path / "own" / "c.duckdb"


@pytest.fixture
def small_files(monkeypatch):
    """Files are kept for few vectors, and whoever writes them is not waited for."""
    monkeypatch.setattr(index_module, "PERSIST_FROM", 4)


@pytest.fixture
def server(monkeypatch):
    """A Qdrant server without a key."""
    monkeypatch.delenv("QDRANT_API_KEY", raising=False)
    with qdrant_server() as running:
        yield running
