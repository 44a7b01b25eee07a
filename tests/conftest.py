"""What every test leaves as it was."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """A command sets the level of deltadex's messages for its process."""
    logger = logging.getLogger("deltadex")
    level = logger.level
    yield
    logger.setLevel(level)
