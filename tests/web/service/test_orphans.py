"""No process outlives the service that started it, however and whenever that ends."""

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
from services import API, adapter_files

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")

STARTER = """
import re, sys, threading, time
from deltadex.database import worker
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


def started(mark, *command):
    environment = {**os.environ, "DELTADEX_TEST_MARK": mark}
    return subprocess.Popen(
        [sys.executable, *command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
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


def under_load(address, stop):
    """Send adapters, large and small, until told to stop."""
    with httpx2.Client(base_url=address, timeout=30) as client:
        while not stop.is_set():
            with suppress(httpx2.HTTPError):
                rank = random.choice([2, 16])
                client.post(f"{API}/similar/adapter", files=adapter_files(rank=rank))


def kill_under_load(db, mark, pause):
    """Processes that a service killed so many seconds after its start under load leaves behind."""
    stop = threading.Event()
    with started(mark, "-m", "deltadex", "serve", "--db", str(db), "--port", "0") as process:
        address = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())[0]
        senders = [threading.Thread(target=under_load, args=(address, stop)) for _ in range(3)]
        for sender in senders:
            sender.start()
        time.sleep(pause)
        process.kill()
        process.wait()
        left = left_after(mark, 3)
        stop.set()
        for sender in senders:
            sender.join()
    return left


@pytest.mark.slow
@pytest.mark.parametrize("pause", [2.5])
def test_a_service_killed_under_load_leaves_nothing(shared_db, mark, pause):
    assert kill_under_load(shared_db, mark, pause) == []


@pytest.mark.slow
def test_nor_does_one_killed_at_random_moments(shared_db, mark):
    seed = random.randrange(1 << 32)
    moments = random.Random(seed)
    left = [kill_under_load(shared_db, mark, moments.uniform(0, 8)) for _ in range(30)]

    assert left == [[]] * 30, f"seed {seed}"
