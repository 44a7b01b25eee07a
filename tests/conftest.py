"""What no test may share with the user, or with another test."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

os.environ["DELTADEX_CACHE"] = ""
"""Nothing of a base is kept between commands, except by tests that name a folder."""


LONG = [
    line
    for line in Path(__file__).with_name("long_tests.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
]
"""How the names of tests begin that are slow ones."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = item.nodeid.removeprefix("tests/")
        if any(name.startswith(long) for long in LONG):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def log_level() -> None:
    """A command sets the level of its process, also one that a shared fixture ran before."""
    logging.getLogger().setLevel(logging.WARNING)
    logging.getLogger("deltadex").setLevel(logging.NOTSET)
