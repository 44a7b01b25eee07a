"""No process outlives the service that started it, however and whenever that ends."""

import os
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")

STARTER = """
import re, sys, threading, time
from deltadex.questions.face import worker
w = worker.Worker("test")
if sys.argv[1] == "starting":
    threading.Timer(float(sys.argv[2]), lambda: print("now", flush=True)).start()
    w.run(len, (), seconds=60)
    time.sleep(60)
w.run(len, (), seconds=60)
threading.Timer(0.3, lambda: print("now", flush=True)).start()
if sys.argv[1] == "computing":
    w.run(re.match, "(a+)+$", "a" * 60 + "b", seconds=60)  # holds Python's lock for years
time.sleep(60)
"""
ENDED_WHILE_IT_STARTS_ONE = """
import os, signal
from multiprocessing import resource_tracker, util
from deltadex.questions.face.worker import Worker
resource_tracker.ensure_running()
start = util.spawnv_passfds
util.spawnv_passfds = lambda *given: (start(*given), os.kill(os.getpid(), signal.SIGTERM))[0]
Worker("test").warm()
"""
MOMENTS = [("starting", "0"), ("starting", "0.02"), ("idle", "0"), ("computing", "0")]


def marked(mark):
    """Processes that were started with this word in their environment, and are alive."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            dead = folder.joinpath("stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
            if not dead and mark.encode() in folder.joinpath("environ").read_bytes():
                found.append(int(folder.name))
    return found


def left_after(mark, seconds):
    """The same, once there are none any more or the seconds are over."""
    end = time.monotonic() + seconds
    while (left := marked(mark)) and time.monotonic() < end:
        time.sleep(0.02)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left


@pytest.fixture
def mark():
    return f"deltadex-test-{uuid.uuid4().hex}"


def started(mark, *command, **streams):
    environment = {**os.environ, "DELTADEX_TEST_MARK": mark}
    return subprocess.Popen(
        [sys.executable, *command],
        env=environment,
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, **streams},
    )


@pytest.mark.parametrize("moment", MOMENTS, ids="-".join)
def test_a_worker_ends_with_its_starter_whatever_it_is_doing(mark, moment):
    with started(mark, "-c", STARTER, *moment) as process:
        assert process.stdout.readline() == "now\n"
        n_before = len(marked(mark))
        process.kill()
        process.wait()
        # a worker that has not begun may first have to load Python
        left = left_after(mark, 10 if moment[0] == "starting" else 2)

    assert n_before > 1 or moment[0] == "starting"
    assert left == []


def test_a_worker_whose_starter_is_ended_meanwhile_prints_no_traceback(mark):
    with started(mark, "-c", ENDED_WHILE_IT_STARTS_ONE, stderr=subprocess.PIPE) as process:
        assert process.stderr.read() == ""

    assert process.returncode == -signal.SIGTERM
    assert left_after(mark, 10) == []
