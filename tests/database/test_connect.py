"""A service as a database: the same calls, results and errors as of the catalog itself."""

import doctest
import json
import re
from pathlib import Path

import pytest
from listening import TOKEN, listening
from test_examples import OPTIONS, PUBLIC

import deltadex as dx
from deltadex import questions
from deltadex.errors import NotServed
from deltadex.questions.face import serving

NOT_SERVED = {
    # it indexes no folders, and runs no models
    "db.index", "db.plan", "db.add", "db.extract_adapter",
    "db.data.find_models",
    # it writes nothing for others, and searches its own catalog alone
    "db.merge", "db.export", "db.export_scores", "db.publish", "db.attach",
    "db.attached", "db.attached.refresh", "db.attached.remove",
}  # fmt: skip
"""Calls that a service refuses."""

REFUSED_PARTS = {
    'db.find_similar("models/imdb-0", k=1, where="run <> \'imdb-0\'")[0]["model"]',  # no adapter
    '[row["way"] for row in db.evaluate(compare=("raw", "normalised"))]',
}
"""Examples of calls that it answers otherwise."""

LOCAL = {"Database.close", "open", "doctor"}
CALLS = {**PUBLIC, "connect": dx.connect}
KEPT = ("db.data.nearest", "db.data.show", "db.data.remove")
"""Their examples show what an earlier line has kept, which reads a file."""


@pytest.fixture
def url(family):
    with listening(family / "family.duckdb", token=TOKEN) as address:
        yield address


@pytest.fixture
def remote(url):
    with dx.connect(url, token=TOKEN) as db:
        yield db


class Runner(doctest.DocTestRunner):
    """Runs examples, and notes the lines that a service refuses."""

    def __init__(self):
        super().__init__(optionflags=OPTIONS)
        self.refused, self.failed = {}, []

    def report_failure(self, out, test, example, got):
        self.failed.append((test.name, example.source, got))

    def report_unexpected_exception(self, out, test, example, exc_info):
        error = exc_info[1]
        if isinstance(error, NotServed):
            self.refused[example.source.strip()] = str(error)
        elif not isinstance(error, NameError):  # a name of what was refused
            self.failed.append((test.name, example.source, error))


def run(runner, name, db):
    names = {"dx": dx, "questions": questions, "serving": serving, "db": db, "Path": Path}
    names["url"] = db.url
    (example,) = doctest.DocTestFinder(recurse=False).find(CALLS[name], name, globs=names)
    runner.run(example, out=lambda _: None)


@pytest.mark.slow
@pytest.mark.usefixtures("tokenizer")
def test_the_examples_of_the_face_run_over_a_service(family, remote):
    runner = Runner()
    asked = [
        n for n in CALLS if not n.startswith(("serving.", "Database.studies")) and n not in LOCAL
    ]
    for name in sorted(set(asked) - {*KEPT, "Database.remove"}):
        run(runner, name, remote)
    # another process of the same machine keeps data while the service serves
    with dx.open(family / "family.duckdb") as db:
        db.data.find_models("reviews.csv", k=1, keep="reviews")
        kept = questions.FindTrainedOn("reviews", k=2, only_kept=True)
        assert said(remote.data.find_models("reviews", k=2)) == said(db.ask(kept))
    for name in (*KEPT, "Database.remove"):
        run(runner, name, remote)

    assert runner.failed == []
    calls = {text.split(":")[0] for text in runner.refused.values()}
    assert calls == NOT_SERVED | {"db.find_similar", "db.evaluate"}
    assert set(runner.refused) >= REFUSED_PARTS
    assert all("deltadex.open" in text for text in runner.refused.values())


ANSWERED = (
    lambda db: db.models(where="dataset = 'imdb'", columns=["model", "dataset"], sort="model"),
    lambda db: db.models(limit=2),
    lambda db: db.show("imdb-0"),
    lambda db: db.find_similar("imdb-0", k=2, explain=True),
    lambda db: db.find_similar(["imdb-0", "nobody", "sst2-0"], k=1),
    lambda db: db.find_similar("adapter", k=2),
    lambda db: db.explain("imdb-0", "imdb-1"),
    lambda db: db.evaluate(exclude="author"),
    lambda db: db.cluster(min_size=2),
    lambda db: db.diff("imdb-0", "sst2-0"),
    lambda db: db.trace("imdb-0"),
    lambda db: db.lineage(),
    lambda db: db.audit(db.bases[0], read=0),
    lambda db: db.failures(),
    lambda db: db.facets(most=1),
    lambda db: db.sql("SELECT id, dataset FROM models ORDER BY id"),
)
"""Calls that a service answers as the catalog does."""


def test_answers_are_those_of_the_catalog(family, url, remote):
    with dx.open(family / "family.duckdb") as db:
        catalog, (base,) = db._catalog, db.bases
        vector = catalog.family(base, catalog.find_recipe(None, base)).vectors()[0].tolist()
        for ask in (*ANSWERED, lambda db: db.find_similar(vector, k=3)):
            here, there = ask(db), ask(remote)
            assert type(here) is type(there)
            assert said(there) == said(here)
            assert json.loads(json.dumps(here.to_json())) == here.to_json()
            assert there.columns == here.columns
    table = remote.find_similar("imdb-0", k=2)
    assert table.to_arrow().column("model").to_pylist()[0] == "imdb-1"
    assert "imdb-1" in questions.save_table(table, family / "near.csv").read_text()


def said(table):
    """A document without what differs by design: where files are, and how long it took."""
    text = re.sub(r'"/[^"]*/([^"/]+)"', r'"\1"', json.dumps(table.to_json(), default=str))
    return without(json.loads(text, parse_float=lambda number: round(float(number), 6)))


def without(value):
    if isinstance(value, list):
        return [without(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    hidden = ("seconds", "source", "cost", "reason", "sentence")
    return {key: without(entry) for key, entry in value.items() if key not in hidden}
