"""Searches that wait are answered together, and background work yields to them."""

import asyncio
import os
import threading
from contextlib import closing

from services import finished

from deltadex.errors import UnknownModel
from deltadex.questions.face.worker import NICENESS, Worker
from deltadex.questions.find_similar import FindSimilar
from deltadex.service.api.work import MOST_TOGETHER, Together

LIMITS = {"at_once": 1, "waiting": 40, "seconds": 60.0}
FIRST, OTHER = FindSimilar("", k=3), FindSimilar("", k=4)


def test_what_waits_is_answered_together_and_what_is_refused_stops_no_other():
    may_go_on, batches = threading.Event(), []

    def answers(asked, models, give):
        batches.append((asked.k, len(models)))
        may_go_on.wait(30)
        for place, model in enumerate(models):
            give(place, UnknownModel(model) if model == "7" else f"{asked.k}:{model}")

    async def ask():
        together = Together(answers, **LIMITS)
        first = asyncio.create_task(together.ask(FIRST, "first"))
        while not batches:
            await asyncio.sleep(0.001)
        asked = [(FIRST, str(n)) for n in range(20)] + [(OTHER, "x")]
        rest = [asyncio.create_task(together.ask(*each)) for each in asked]
        await asyncio.sleep(0)
        may_go_on.set()
        found = await asyncio.gather(first, *rest, return_exceptions=True)
        together.close()
        return found

    first, *rest = finished(ask)

    assert (first, rest[-1]) == ("3:first", "4:x")
    assert isinstance(rest.pop(7), UnknownModel)
    assert rest[:-1] == [f"3:{n}" for n in range(20) if n != 7]
    assert sorted(batches) == [(3, 1), (3, 20 - MOST_TOGETHER), (3, MOST_TOGETHER), (4, 1)]


def test_a_process_that_yields_has_a_low_priority_and_few_threads():
    with closing(Worker("test", yields=True)) as worker, closing(Worker("test")) as plain:
        own = plain.run(os.nice, 0, seconds=60.0)
        assert worker.run(os.nice, 0, seconds=60.0) == min(19, own + NICENESS)
        n_threads = worker.run(os.getenv, "OMP_NUM_THREADS", seconds=60.0)
        assert int(n_threads) == max(1, (os.cpu_count() or 1) // 2)
