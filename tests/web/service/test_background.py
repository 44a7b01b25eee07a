"""Heavy documents come from a process of their own, are kept, and never hang or orphan."""

import asyncio
import os
import threading
import time
from contextlib import ExitStack

import httpx2
import pytest
from beside import end_at_first, is_loaded, refuse
from services import API, TOKEN, WRITER, finished, served, settled, wait_until

from deltadex.errors import RequestError
from deltadex.questions.face.serving import MapColumns, load_adapter_reader
from deltadex.questions.face.worker import Worker, WorkerDied, WorkerFailed, WorkerTooSlow
from deltadex.service.api import work


@pytest.fixture
def make_worker():
    with ExitStack() as stack:

        def make(load=None):
            worker = Worker("test", load=load)
            stack.callback(worker.close)
            return worker

        yield make


def test_a_worker_answers_raises_and_outlives_errors(make_worker):
    worker = make_worker()

    first = worker.run(os.getpid, seconds=60.0)
    with pytest.raises(WorkerFailed, match="ZeroDivisionError"):
        worker.run(divmod, 1, 0, seconds=60.0)
    with pytest.raises(RequestError, match="no such thing"):
        worker.run(refuse, "no such thing", seconds=60.0)

    assert worker.run(os.getpid, seconds=60.0) == first != os.getpid()


def test_a_worker_that_dies_or_hangs_is_replaced(make_worker):
    worker = make_worker()

    first = worker.run(os.getpid, seconds=60.0)
    with pytest.raises(WorkerDied):
        worker.run(os._exit, 1, seconds=60.0)
    second = worker.run(os.getpid, seconds=60.0)
    with pytest.raises(WorkerTooSlow):
        worker.run(time.sleep, 60, seconds=0.2)

    assert len({first, second, worker.run(os.getpid, seconds=60.0)}) == 3


def test_a_function_outlives_the_end_of_its_process(make_worker, tmp_path):
    second = make_worker().run(end_at_first, tmp_path / "ended", seconds=60.0)

    assert str(second) != (tmp_path / "ended").read_text().strip()


def test_the_process_that_reads_uploads_has_loaded_what_it_needs(make_worker):
    assert make_worker(load_adapter_reader).run(is_loaded, "torch", seconds=60.0)


def test_what_is_not_ready_is_202_and_then_200(db):
    with served(db, quick_seconds=0.0) as client:
        first = client.get(f"{API}/evaluation")
        last = settled(client, f"{API}/evaluation")

    assert first.status_code == 202
    assert first.json()["status"] == "computing"
    assert int(first.headers["retry-after"]) == first.json()["retry_after_s"] >= 1
    assert (last.status_code, last.json()["micro"]) == (200, 1.0)
    assert "deltadex-stale" not in last.headers


@pytest.mark.slow
def test_after_a_change_the_old_document_is_served_as_stale_until_the_new_one_is_there(db):
    with served(db, token=TOKEN, quick_seconds=60.0) as client:
        before = client.get(f"{API}/evaluation")
        client.delete(f"{API}/models/a-1", headers=WRITER)
        stale = client.get(f"{API}/evaluation")
        while "deltadex-stale" in (after := client.get(f"{API}/evaluation")).headers:
            time.sleep(0.1)

    assert "deltadex-stale" not in before.headers
    assert stale.headers["deltadex-stale"] == "true"
    assert stale.json() == before.json()
    assert (before.json()["models"], after.json()["models"]) == (4, 3)


@pytest.mark.slow
def test_a_failure_is_told_and_tried_again_later(db, monkeypatch):
    with served(db, quick_seconds=60.0) as client:
        calls = []

        def fail(*args, **kwargs):
            calls.append(args)
            raise RequestError("nothing to see")

        with monkeypatch.context() as patched:
            patched.setattr(work.Line, "answer", fail)
            patched.setattr(work, "FAILURE_SECONDS", 0.2)
            answers = [client.get(f"{API}/evaluation") for _ in range(2)]
        time.sleep(0.3)
        good = client.get(f"{API}/evaluation")

    assert [(a.status_code, a.json()["detail"]) for a in answers] == [(422, "nothing to see")] * 2
    assert len(calls) == 1
    assert good.status_code == 200


def test_a_defect_is_a_problem_without_its_text(db, monkeypatch):
    with served(db, quick_seconds=60.0, answers_defects=True) as client:

        def fail(*args, **kwargs):
            raise KeyError("secret")

        monkeypatch.setattr(work.Line, "answer", fail)
        answer = client.get(f"{API}/map")

    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "secret" not in answer.text


def test_polls_do_not_wait_behind_other_requests(db, monkeypatch):
    release = threading.Event()
    with served(db, quick_seconds=0.0, max_at_work=1, max_waiting=49) as client:
        service = client.service
        monkeypatch.setattr(work.Line, "answer", lambda *_, **__: release.wait() and {"n": 1})

        async def ask():
            app = httpx2.ASGITransport(client.app)
            async with httpx2.AsyncClient(transport=app, base_url="http://localhost") as polling:
                others = [asyncio.ensure_future(service.work.run(release.wait)) for _ in range(50)]
                await asyncio.sleep(0)
                polls = await asyncio.gather(*(polling.get(f"{API}/map") for _ in range(50)))
                other = await polling.get(f"{API}/families")
                release.set()
                await asyncio.gather(*others)
            return other, polls

        other, polls = finished(ask)

    assert other.status_code == 503
    assert [poll.status_code for poll in polls] == [202] * 50


@pytest.mark.slow
def test_a_map_is_on_its_main_axes_until_its_layout_is_there(db, monkeypatch):
    release = threading.Event()
    with served(db, quick_seconds=0.0) as client:
        line = client.service.jobs.line(MapColumns())
        run = line.worker.run

        def reported(*args, progress, **settings):
            progress(0.25)
            release.wait()
            return run(*args, progress=progress, **settings)

        monkeypatch.setattr(line.worker, "run", reported)
        first = client.get(f"{API}/map")
        while not line.reached:
            time.sleep(0.01)
        second, waiting = client.get(f"{API}/map"), client.get(f"{API}/map?axes=false")
        release.set()
        last = settled(client, f"{API}/map?axes=false")

    assert (first.status_code, first.json()["layout"]) == (200, "pca")
    assert second.json()["computing"]["percent"] == 25
    assert (waiting.status_code, waiting.json()["percent"]) == (202, 25)
    assert "computing" not in last.json()
    assert last.json()["models"] == first.json()["models"]


def _sleep(path, asked):
    time.sleep(600)


@pytest.mark.slow
def test_a_job_can_be_stopped_at_work_and_in_the_queue(db, monkeypatch):
    with served(db, quick_seconds=0.0) as client, monkeypatch.context() as patched:
        patched.setattr(work, "answer_in", _sleep)
        line = client.service.jobs.line(MapColumns())
        at_work, waiting = client.get(f"{API}/clusters"), client.get(f"{API}/map?axes=false")
        wait_until(lambda: line.worker._name_at_work is not None)
        stopped = [client.delete(one.headers["location"]) for one in (waiting, at_work)]
        unknown = client.get(at_work.headers["location"])
        wait_until(lambda: not line.pending)
        patched.undo()
        again = settled(client, f"{API}/clusters")
        finished_job = client.service.results.keep(work.Job(line.submit(bool), line, MapColumns()))
        wait_until(lambda: not line.pending)
        late = client.delete(f"{API}/jobs/{finished_job}")

    assert [one.json() for one in stopped] == [
        {"job": one.json()["job"], "cancelled": True} for one in (waiting, at_work)
    ]
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown-job")
    assert again.status_code == 200
    assert (late.status_code, late.json()["code"]) == (409, "too-late")
