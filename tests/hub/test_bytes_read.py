"""Bytes of a run, counted while they come."""

from __future__ import annotations

import threading
from collections.abc import Callable

from fault_family import PATIENCE, family_hub
from hub_standin import Fault

import deltadex as dx
from deltadex.records import Outcome


class Watched:
    """A progress that looks at the bytes from a thread of its own, until the first outcome."""

    def __init__(self) -> None:
        self.before_the_first: set[tuple[int, int]] = set()
        self.after_each: list[tuple[int, int]] = []
        self._is_first_done = threading.Event()

    def begin(self, models: int, bytes_total: int) -> None:
        self.models = models

    def reading(self, bytes_read: Callable[[], tuple[int, int]]) -> None:
        self._bytes_read = bytes_read
        threading.Thread(target=self._look, daemon=True).start()

    def outcome(self, outcome: Outcome) -> None:
        self._is_first_done.set()
        self.after_each.append(self._bytes_read())

    def _look(self) -> None:
        while not self._is_first_done.wait(PATIENCE.read_s / 50):
            self.before_the_first.add(self._bytes_read())


def test_bytes_count_before_a_model_is_done_and_are_never_more_than_their_sum(tmp_path):
    with family_hub(tmp_path) as hub, dx.open() as db:
        hub.repos = {id: hub.repos[id] for id in ("org/base", "org/full", "org/adapter")}
        hub.faults.append(Fault(path="/store/", kind="stall", nth=1, after=20_000))
        progress = Watched()
        report = db.index("org/base", hub=True, progress=progress).to_json()

    assert report["indexed"] == progress.models == 2
    assert any(come > 0 for come, _ in progress.before_the_first)
    seen = [*progress.before_the_first, *progress.after_each]
    assert all(come <= total for come, total in seen)
    assert progress.after_each[-1] == (report["bytes_read"], report["bytes_read"])
