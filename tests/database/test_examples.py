"""Every public call of the face has an example, and every example runs."""

import doctest
import inspect
from pathlib import Path

import pytest

import deltadex
import deltadex as dx
from deltadex import questions
from deltadex.questions.face.database import Database, KeptDataSets, PublishedIndexes
from deltadex.study.registry import STUDIES, Studies

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
FACES = {"Database": Database, "db.data": KeptDataSets, "db.attached": PublishedIndexes}
PUBLIC = {
    "open": deltadex.open,
    "doctor": deltadex.doctor,
    **{
        f"{face}.{name}": member
        for face, kind in FACES.items()
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") or name == "__call__"
    },
    **{f"Database.studies.{name}": getattr(Studies, name) for name in STUDIES},
}
READ_DATA = {name for name in PUBLIC if name.startswith("db.data.") and not name.endswith("_")}
SHOWN_ELSEWHERE = {
    "Database.close",
    "Database.export_vectors",  # to a server
}


@pytest.mark.parametrize("name", sorted(PUBLIC.keys() - SHOWN_ELSEWHERE))
def test_the_example_runs(name, db, request):
    if name in READ_DATA:
        request.getfixturevalue("tokenizer")
    (example,) = doctest.DocTestFinder(recurse=False).find(
        PUBLIC[name], name, globs={"dx": dx, "questions": questions, "db": db, "Path": Path}
    )
    printed = []

    result = doctest.DocTestRunner(optionflags=OPTIONS).run(example, out=printed.append)

    assert result.attempted, "no example"
    assert not result.failed, "".join(printed)
