"""A service whose candidates come from Qdrant."""

import pytest
from services import API, printed, served

import deltadex
from deltadex.errors import EngineError
from deltadex.search import neighbours
from deltadex.store.qdrant.edge import EdgeCollection
from deltadex.store.qdrant.index import QdrantIndex


@pytest.fixture
def exported(db, tmp_path, monkeypatch):
    monkeypatch.setattr(neighbours, "COMPARED_WHOLE", 1)
    with deltadex.open(db) as opened:
        opened.export_vectors(f"edge:{tmp_path}/v")
    return db


def test_a_service_answers_from_its_engine_as_the_command_line(exported, monkeypatch):
    asked = []
    inner = QdrantIndex.nearest
    monkeypatch.setattr(
        QdrantIndex, "nearest", lambda self, *given: asked.append(given) or inner(self, *given)
    )
    with served(exported, engine="qdrant") as client:
        answer = client.get(f"{API}/similar", params={"model": "a-0", "k": 2}).json()

    expected = printed(exported, "find-similar", "a-0", "-k", "2")
    assert asked
    assert [n["model"] for n in answer["neighbours"]] == [
        n["model"] for n in expected["neighbours"]
    ]


def test_an_engine_that_fails_is_a_503_without_its_address(exported, tmp_path, monkeypatch):
    with served(exported, engine=f"edge:{tmp_path}/v") as client:

        def fails(self, *_, **__):
            raise EngineError(f"{self.target}: gone")

        monkeypatch.setattr(EdgeCollection, "nearest", fails)
        answer = client.get(f"{API}/similar", params={"model": "a-0", "k": 2})
        monkeypatch.undo()
        again = client.get(f"{API}/similar", params={"model": "a-0", "k": 2})

    assert (answer.status_code, answer.json()["code"]) == (503, "engine")
    assert str(tmp_path) not in answer.text
    assert again.status_code == 200


def test_a_service_without_its_engine_does_not_start(exported, tmp_path):
    (tmp_path / "v" / "deltadex.json").unlink()

    with pytest.raises(EngineError), served(exported, engine="qdrant"):
        pass
