"""Answers with candidates from Qdrant are those with candidates from FAISS."""

import json

import numpy as np
import pytest
from catalogs import PLAIN, SKETCH, make_catalog, make_indexed
from qdrant_server import qdrant_server
from running import run

import deltadex
from deltadex.search import neighbours
from deltadex.store import Catalog
from deltadex.store.qdrant.index import QdrantIndex

FILTERS = [
    {},
    {"author": "a2", "recipe": "mean-factors"},
    {"where": "downloads > 25 AND kind = 'adapter'"},
    {"where": "downloads > 1000"},
]


@pytest.fixture(scope="module")
def server():
    with qdrant_server() as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory, server):
    """A catalog of 50 models, exported under both recipes, then given 3 more and rid of 2."""
    folder, rng = tmp_path_factory.mktemp("answers"), np.random.default_rng(5)

    def model(number):
        known = {"dataset": f"d{number % 3}", "author": f"a{number % 4}", "downloads": number}
        known |= {"kind": ("full", "adapter")[number % 2], "recipes": (SKETCH, PLAIN)}
        return make_indexed(f"m{number:02}", rng.normal(size=4), **known)

    make_catalog(folder / "c.duckdb", *map(model, range(50))).close()
    with deltadex.open(folder / "c.duckdb") as db:
        for recipe in ("sketch", "mean-factors"):
            db.export_vectors(server.target(recipe), recipe=recipe)
    with Catalog.open(folder / "c.duckdb") as catalog:
        for number in range(50, 53):
            catalog.record(model(number))
        for id in ("m10", "m11"):
            catalog.remove(id)
    return folder


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_an_answer_does_not_depend_on_the_engine(folder, monkeypatch, filters):
    monkeypatch.setattr(neighbours, "COMPARED_WHOLE", 5)
    monkeypatch.setattr(neighbours, "CANDIDATES", 12)
    monkeypatch.setattr(neighbours, "VECTOR_CANDIDATES", 12)
    asked, inner = [], QdrantIndex.nearest
    monkeypatch.setattr(
        QdrantIndex, "nearest", lambda self, *given: asked.append(given) or inner(self, *given)
    )
    answers = []
    for engine in ("faiss", "qdrant"):
        with deltadex.open(folder / "c.duckdb", engine=engine) as db:
            answers.append(
                [db.find_similar(id, k=5, **filters).to_json() for id in ("m03", "m20", "m51")]
            )

    assert answers[0] == answers[1]
    if filters != FILTERS[-1]:
        assert len(asked) >= 3
        assert answers[0][0]["neighbours"]


def test_the_command_takes_an_engine_and_refuses_what_is_none(folder, server):
    engines = ("faiss", "qdrant", *map(server.target, ("sketch", "nothing")), "milvus")
    *by_engine, empty, unknown = (
        run(folder, "find-similar", "m03", "--engine", engine, "--json") for engine in engines
    )
    assert len({json.dumps(json.loads(answer.stdout)) for answer in by_engine}) == 1
    assert (unknown.exit_code, empty.exit_code) == (2, 3)
    assert "give faiss, qdrant or qdrant://HOST" in unknown.output.replace("\n", " ")
    assert empty.output.startswith("Error: qdrant:")
    assert empty.output.count("\n") == 1
