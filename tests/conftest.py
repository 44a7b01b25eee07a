"""What no test may share with the user, or with another test."""

import logging
import os

import pytest
from hypothesis import settings

settings.register_profile("ci", settings.get_profile("ci"), max_examples=25)
"""Of `make test`; `make test-all` draws a hundred examples, and others each time."""

os.environ["DELTADEX_CACHE"] = ""
"""Nothing of a base is kept between commands, except by tests that name a folder."""


@pytest.fixture(autouse=True)
def log_level():
    """A command sets the level of its process, also one that a shared fixture ran before."""
    logging.getLogger().setLevel(logging.WARNING)
    logging.getLogger("deltadex").setLevel(logging.NOTSET)
