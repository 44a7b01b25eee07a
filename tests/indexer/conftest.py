"""A small family in a folder, and an empty catalog beside it."""

import pytest
from factories import make_family

from deltadex.store import Catalog


@pytest.fixture
def family(tmp_path):
    make_family(tmp_path)
    return tmp_path


@pytest.fixture
def catalog(tmp_path):
    with Catalog.open(tmp_path / "c.duckdb") as opened:
        yield opened
