"""What no test may share with the user, or with another test."""

import logging
import os

import pytest
from hypothesis import settings

pytest_plugins = ("browsers",)

TOGETHER = ("database/", "provenance/", "web/page/", "web/service/", "words/")
"""Folders whose fixtures cost much: each is tested by one of several processes, which makes them
once. With the largest units first, none of these is begun when the others are at their end."""

settings.register_profile("ci", settings.get_profile("ci"), max_examples=25)
"""Of `make test`; `make test-all` draws a hundred examples, and others each time."""

os.environ["DELTADEX_CACHE"] = ""
"""Nothing of a base is kept between commands, except by tests that name a folder."""


@pytest.fixture(autouse=True)
def log_level():
    """A command sets the level of its process, also one that a shared fixture ran before."""
    logging.getLogger().setLevel(logging.WARNING)
    logging.getLogger("deltadex").setLevel(logging.NOTSET)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With --dist loadfile a unit of work is a file, or a folder of `TOGETHER`."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class FilesAndFolders(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return next(filter(file.startswith, TOGETHER), file)

    return FilesAndFolders(config, log)
