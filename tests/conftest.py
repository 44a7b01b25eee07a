"""What no test may share with the user, or with another test."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

os.environ["DELTADEX_CACHE"] = ""
"""Nothing of a base is kept between commands, except by tests that name a folder."""


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """A command sets the level of deltadex's messages for its process."""
    logger = logging.getLogger("deltadex")
    level = logger.level
    yield
    logger.setLevel(level)
