"""Every public call of the face has an example, and every example runs."""

import doctest
import inspect

import pytest

import deltadex as dx
from deltadex import database
from deltadex.database import Database

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
PUBLIC = {
    **{name: getattr(dx, name) for name in ("open", "doctor")},
    **{
        f"Database.{name}": member
        for name, member in inspect.getmembers(Database, inspect.isfunction)
        if not name.startswith("_")
    },
}
FOR_SERVICES = {
    "Database.adapter_reading",
    "Database.bring_into_memory",
    "Database.exact_model",
    "Database.exact_query",
    "Database.find_base",
    "Database.find_family",
    "Database.find_recipe",
    "Database.page_of_models",
    "Database.prepare_searches",
    "Database.reader",
    "Database.record_adapter",
}
"""What users rarely need; a sentence is enough there."""


@pytest.mark.parametrize("name", sorted(PUBLIC.keys() - FOR_SERVICES - {"Database.close"}))
def test_the_example_runs(name, db):
    (example,) = doctest.DocTestFinder(recurse=False).find(
        PUBLIC[name], name, globs={"dx": dx, "db": db}
    )
    printed = []

    result = doctest.DocTestRunner(optionflags=OPTIONS).run(example, out=printed.append)

    assert result.attempted, "no example"
    assert not result.failed, "".join(printed)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_call_says_what_it_does(name):
    assert inspect.getdoc(PUBLIC[name])


def test_the_public_list_is_short_and_there():
    assert len(dx.__all__) <= 8
    assert all(getattr(dx, name) for name in dx.__all__)
    assert all(getattr(database, name) for name in database.__all__)
