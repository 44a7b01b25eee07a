"""Other processes that use a catalog, for tests: each speaks a line when it is ready."""

import subprocess
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path

STORE = Path(__file__).parent / "store"

START = """
import sys, time
sys.path.insert(0, {store!r})
from pathlib import Path
from deltadex.store import Catalog
from outcomes import indexed
path = Path({path!r})
"""


@contextmanager
def process(path, code):
    """A Python process that has `path`, `Catalog` and `indexed`; killed at the end."""
    program = START.format(store=str(STORE), path=str(path)) + textwrap.dedent(code)
    running = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    with running:
        try:
            yield running
        finally:
            running.kill()


def said(running):
    """The next line, without its end."""
    return running.stdout.readline().strip()


def kill(running):
    running.kill()
    running.wait()


@contextmanager
def holding(path, n):
    """A process that holds a catalog and has recorded `n` models in it."""
    code = f"""
    with Catalog.open(path) as catalog:
        for number in range({n}):
            catalog.record(indexed(f"held{{number:03}}", seed=number))
        print("holding", flush=True)
        sys.stdin.readline()
    print("gone", flush=True)
    """
    with process(path, code) as holder:
        assert said(holder) == "holding"
        yield holder
