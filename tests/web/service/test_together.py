"""Searches at once have the answers of searches alone, and background work yields to them."""

import os

from services import API, served

from deltadex.errors import UnknownModel
from deltadex.questions.face.worker import NICENESS, Worker
from deltadex.questions.find_similar import FindSimilar


def test_requests_at_once_have_the_answers_of_requests_alone(shared_db):
    with served(shared_db) as client:
        models = [row["model"] for row in client.get(f"{API}/models").json()["models"]]
        models = [*(name for name in models if name != "broken"), "nobody"]
        alone = [client.get(f"{API}/similar", params={"model": name}) for name in models]
        found = dict(client.service._similar_each(FindSimilar("", attached=False), models))

    assert [one.status_code for one in alone] == [200] * (len(models) - 1) + [404]
    assert [found[place] for place in range(len(models) - 1)] == [a.json() for a in alone[:-1]]
    assert isinstance(found[len(models) - 1], UnknownModel)


def test_a_process_that_yields_has_a_low_priority_and_few_threads():
    worker, plain = Worker("test", yields=True), Worker("test")
    try:
        own = plain.run(os.nice, 0, seconds=60.0)
        assert worker.run(os.nice, 0, seconds=60.0) == min(19, own + NICENESS)
        n_threads = worker.run(os.getenv, "OMP_NUM_THREADS", seconds=60.0)
        assert int(n_threads) == max(1, (os.cpu_count() or 1) // 2)
    finally:
        worker.close()
        plain.close()
