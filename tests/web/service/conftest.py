"""One indexed family for all tests of the service; those that change it take a copy."""

import shutil

import pytest
from services import TOKEN, make_indexed_family, served


@pytest.fixture(scope="session")
def shared_db(tmp_path_factory):
    """A catalog beside its base and its models, which no test changes."""
    return make_indexed_family(tmp_path_factory.mktemp("family"))


@pytest.fixture(scope="package")
def reader(shared_db):
    """A client of a service over it that nobody may write to: its processes start once."""
    with served(shared_db, quick_seconds=60.0) as client:
        yield client


@pytest.fixture(scope="module")
def client(shared_db, tmp_path_factory):
    """Of a service that may be written to, whose catalog every test leaves as it was."""
    db = shutil.copy(shared_db, tmp_path_factory.mktemp("writable") / "c.duckdb")
    with served(db, token=TOKEN) as client:
        yield client


@pytest.fixture
def db(shared_db, tmp_path):
    """A catalog of the same models that a test may change."""
    return shutil.copy(shared_db, tmp_path / "c.duckdb")
