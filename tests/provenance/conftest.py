"""Bases that several tests of origin start from."""

import pytest
from traced_bases import Bases


@pytest.fixture(scope="session")
def bases(tmp_path_factory):
    """No test changes them."""
    made = Bases(tmp_path_factory.mktemp("bases"))
    yield made
    made.db.close()
