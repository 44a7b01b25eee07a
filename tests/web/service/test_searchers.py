"""Processes beside a service answer searches as the service does, or leave them to it."""

import json
import os
import signal

import pytest
from services import API, TOKEN, WRITER, served, wait_until

from deltadex.errors import UnknownModel
from deltadex.questions.find_similar import FindSimilar
from deltadex.service.api import searchers
from deltadex.service.api.work import MOST_TOGETHER

ASKED = FindSimilar("", k=3, attached=False)


@pytest.fixture(scope="module")
def client(shared_db):
    """Of a service that has one process beside."""
    with served(shared_db, max_at_work=2) as client:
        has_one_more(client.service.searchers)
        yield client


def has_one_more(beside):
    beside.want()
    wait_until(lambda: beside._ready)


def answers(beside, models):
    found = {}
    beside.answer_each(ASKED, models, found.__setitem__)
    return found


def models_of(client):
    rows = client.get(f"{API}/models", params={"status": "indexed"}).json()["models"]
    return [row["model"] for row in rows]


def similar(client, model):
    return client.get(f"{API}/similar", params={"model": model, "k": 3})


def test_a_process_beside_gives_the_answers_of_the_service(client):
    models = models_of(client)

    found = answers(client.service.searchers, [*models, "nobody"])

    assert isinstance(found.pop(len(models)), UnknownModel)
    places = range(len(models))
    own = {}
    searchers.answer_each(client.service.readers, ASKED, models, own.__setitem__)
    assert [found[place] for place in places] == [own[place] for place in places]
    assert json.loads(own[0])["neighbours"]
    assert similar(client, models[0]).content == own[0]


def test_a_question_that_is_refused_costs_no_process(client):
    bad = FindSimilar("", where="nonsense ===", attached=False)
    client.service.searchers.answer_each(bad, models_of(client), lambda place, answer: None)

    assert client.get(f"{API}/similar", params={"model": "x", "base": "nobody"}).status_code == 404
    assert len(answers(client.service.searchers, models_of(client))) > 1


def test_what_a_killed_process_was_asked_the_service_answers(client, monkeypatch):
    models, beside = models_of(client), client.service.searchers
    os.kill(beside._ready[0]._running.process.pid, signal.SIGKILL)

    assert similar(client, models[0]).status_code == 200
    assert answers(beside, models) == {}
    found = {}
    client.service._similar_each(ASKED, [*models, "nobody"], found.__setitem__)
    assert isinstance(found.pop(len(models)), UnknownModel)
    assert found == {n: similar(client, model).content for n, model in enumerate(models)}
    beside.want()
    assert not beside.pending, "one that ended is not followed at once"
    monkeypatch.setattr(beside, "_not_before", 0.0)
    has_one_more(beside)
    assert len(answers(beside, models)) == len(models)


def test_a_process_that_has_not_seen_a_change_leaves_answers_to_the_service(db):
    with served(db, max_at_work=2, token=TOKEN) as client:
        beside, (gone, *models) = client.service.searchers, models_of(client)
        has_one_more(beside)
        assert gone in similar(client, models[0]).text
        assert client.delete(f"{API}/models/{gone}", headers=WRITER).status_code == 200
        for _ in range(40):
            found = answers(beside, models)
            assert not any(f'"{gone}"'.encode() in found[place] for place in found)
        wait_until(lambda: len(answers(beside, models)) == len(models))


def test_one_is_started_where_more_wait_than_are_answered_together(shared_db, monkeypatch):
    with served(shared_db, max_at_work=2) as client:
        service, wanted = client.service, []
        monkeypatch.setattr(service.searchers, "want", lambda: wanted.append(True))
        model = models_of(client)[0]
        assert similar(client, model).status_code == 200
        assert not wanted
        assert service.freshness.settled.wait(120)
        monkeypatch.setattr(type(service.searches), "pending", MOST_TOGETHER + 1)
        assert similar(client, model).status_code == 200
        assert wanted


def test_while_the_catalog_is_not_there_searches_are_problems_and_go_on_once_it_is_back(db):
    with served(db, answers_defects=True) as client:
        model, away = models_of(client)[0], db.with_name("away.duckdb")
        db.rename(away)
        db.with_name("c.duckdb.wanted").touch()
        wait_until(lambda: similar(client, model).status_code != 200)
        problem = similar(client, model)
        assert problem.status_code == 503
        assert problem.headers["content-type"] == "application/problem+json"
        assert str(db.parent) not in problem.text
        away.rename(db)
        assert similar(client, model).status_code == 200
