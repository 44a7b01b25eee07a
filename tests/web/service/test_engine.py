"""A service whose candidates come from Qdrant."""

import pytest
from qdrant_server import qdrant_server
from running import document
from services import API, served

import deltadex
from deltadex.errors import EngineError
from deltadex.search import neighbours
from deltadex.store.qdrant.index import QdrantIndex


@pytest.fixture
def server():
    with qdrant_server() as running:
        yield running


@pytest.fixture
def exported(db, server, monkeypatch):
    monkeypatch.setattr(neighbours, "COMPARED_WHOLE", 1)
    with deltadex.open(db) as opened:
        opened.export_vectors(server.target())
    return db


def test_a_service_answers_from_its_engine_as_the_command_line(exported, monkeypatch):
    asked = []
    inner = QdrantIndex.nearest
    monkeypatch.setattr(
        QdrantIndex, "nearest", lambda self, *given: asked.append(given) or inner(self, *given)
    )
    with served(exported, engine="qdrant") as client:
        answer = client.get(f"{API}/similar", params={"model": "a-0", "k": 2}).json()

    expected = document(exported, "find-similar", "a-0", "-k", "2")
    assert asked
    assert [n["model"] for n in answer["neighbours"]] == [
        n["model"] for n in expected["neighbours"]
    ]


def test_an_engine_that_fails_is_a_503_without_its_address(exported, server, caplog):
    with served(exported, engine=server.target()) as client:
        server.faults["points/query"] = (502, "gone")
        answer = client.get(f"{API}/similar", params={"model": "a-0", "k": 2})
        server.faults.clear()
        again = client.get(f"{API}/similar", params={"model": "a-0", "k": 2})

    assert (answer.status_code, answer.json()["code"]) == (503, "engine")
    assert "answers 502" in caplog.text
    assert str(server.port) not in answer.text
    assert again.status_code == 200


def test_a_service_without_its_engine_does_not_start(exported, server):
    server.faults["/exists"] = (500, "gone")

    with pytest.raises(EngineError), served(exported, engine="qdrant"):
        pass
