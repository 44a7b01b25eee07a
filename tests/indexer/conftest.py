"""A small family in a folder, and an empty catalog beside it."""

import shutil

import pytest
from factories import make_family

from deltadex.store import Catalog


@pytest.fixture(scope="session")
def made_family(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    make_family(folder)
    return folder


@pytest.fixture
def family(made_family, tmp_path):
    return shutil.copytree(made_family, tmp_path, dirs_exist_ok=True)


@pytest.fixture
def catalog(tmp_path):
    with Catalog.open(tmp_path / "c.duckdb") as opened:
        yield opened
