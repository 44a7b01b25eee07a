"""`deltadex index` in a process that says what it has recorded, and what a catalog then holds."""

import time

LONGEST_S = 60.0
PROGRAM = """
import signal, sys, time
from deltadex.cli import main
from deltadex.indexer import run
from deltadex.store import Catalog

# a parent that ignores it, as a job in the background does, would hand that on
signal.signal(signal.SIGINT, signal.default_int_handler)
record_all, TRACE = Catalog.record_all, sys.argv.pop(1)

def told(catalog, outcomes):
    answer = record_all(catalog, outcomes)
    with open(TRACE, "a") as trace:
        trace.writelines(f"{outcome.model.id}\\n" for outcome in outcomes)
    time.sleep(0.1)
    return answer

Catalog.record_all, run.GROUP_S = told, 0.0
main()
"""


def vectors(catalog):
    """The bytes of every indexed model's vector."""
    if not catalog.bases():
        return {}
    (base,) = catalog.bases()
    ids, rows = catalog.family(base, catalog.find_recipe(None)).by_id()
    return {id: row.tobytes() for id, row in zip(ids, rows, strict=True)}


class Indexing:
    """A run of `deltadex index` over the family."""

    def __init__(self, process, trace):
        self.process, self._trace = process, trace

    @property
    def recorded(self):
        """Models that are reported so far."""
        return self._trace.read_text("utf-8").split()

    def wait_for(self, n_recorded):
        given_up_at = time.monotonic() + LONGEST_S
        while len(self.recorded) < n_recorded and self.process.poll() is None:
            assert time.monotonic() < given_up_at
            time.sleep(0.005)
