"""The machinery of benchmarks/kills.py, and a family that is prepared once."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from killing import Nursery, prepare_family


@pytest.fixture(scope="session")
def nursery():
    return Nursery()


@pytest.fixture(scope="session")
def prepared(nursery, tmp_path_factory):
    return prepare_family(tmp_path_factory.mktemp("prepared"), nursery.do)
