"""The machinery of benchmarks/kills.py, and a family that is prepared once."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from disk.child import folder_in_memory
from disk.library import Unavailable, build
from killing import Nursery, prepare_family


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """The library that records and fails calls; or why there is none."""
    try:
        return build(tmp_path_factory.mktemp("library"))
    except Unavailable as err:
        return err


@pytest.fixture(scope="session")
def nursery(library):
    return Nursery(library if isinstance(library, Path) else None)


@pytest.fixture(scope="session")
def watching(nursery, library):
    """A nursery whose processes' calls can be recorded."""
    if not isinstance(library, Path):
        pytest.skip(str(library))
    return nursery


@pytest.fixture(scope="session")
def prepared(nursery, tmp_path_factory):
    return prepare_family(tmp_path_factory.mktemp("prepared"), nursery.do)


@pytest.fixture(scope="session")
def family(nursery, tmp_path_factory):
    """The family alone, without catalogs."""
    return prepare_family(tmp_path_factory.mktemp("family"), nursery.do, ())


@pytest.fixture(scope="module")
def memory():
    """A folder in memory."""
    with folder_in_memory() as folder:
        yield Path(folder)
