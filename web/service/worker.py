"""One process beside the service that computes and can be killed."""

from __future__ import annotations

import multiprocessing
import signal
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from ...errors import DeltadexError
from .lifeline import Lifeline, end_with

Result = TypeVar("Result")


class WorkerDied(DeltadexError):
    """The process ended before it answered."""


class WorkerFailed(DeltadexError):
    """A defect showed in the process; the message is its traceback."""


class WorkerTooSlow(DeltadexError):
    """The process was killed because it took too long."""


class Worker:
    """A process that runs one function at a time; started when needed, again after it died.

    It ends with this process, whatever it is doing (`Lifeline`), and ignores Ctrl-C, which is for
    the service to act on. The pools of the standard library and pebble notice the end of their
    parent only between two tasks, or not at all.

    Args:
        memory: Bytes of data that it may hold; None = no limit.
    """

    def __init__(self, name: str, memory: int | None = None) -> None:
        self._name = name
        self._memory = memory
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._closed = False

    def run(self, function: Callable[..., Result], *args: Any, seconds: float) -> Result:
        """What a module's function returns for these arguments; raises what it raises.

        Raises:
            WorkerTooSlow: not within `seconds`, waiting for other callers included.
            WorkerDied: it crashed, or the service is being closed.
            WorkerFailed: the function raised no error of ours.
        """
        if not self._lock.acquire(timeout=seconds):
            raise WorkerTooSlow(f"{self._name}: others are waiting; try later")
        try:
            running = self._started()
            try:
                running.pipe.send((function, args))
                if not running.pipe.poll(seconds):
                    raise WorkerTooSlow(f"{self._name}: stopped after {seconds:g} s")
                done, value = running.pipe.recv()
            except (EOFError, OSError) as err:
                self._stop()
                raise WorkerDied(f"{self._name}: its process ended, perhaps for memory") from err
            except WorkerTooSlow:
                self._stop()
                raise
        finally:
            self._lock.release()
        if not done:
            raise value
        result: Result = value
        return result

    def close(self) -> None:
        """End the process, whatever it is at."""
        self._closed = True
        self._stop()

    def _started(self) -> _Running:
        if self._closed:
            raise WorkerDied(f"{self._name}: the service is being closed")
        if self._running is None or not self._running.process.is_alive():
            self._stop()
            context = multiprocessing.get_context("spawn")
            lifeline = Lifeline(context)
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve,
                args=(lifeline.end, theirs, self._memory),
                name=self._name,
                daemon=True,
            )
            process.start()
            assert process.pid is not None
            lifeline.tie(process.pid)
            theirs.close()
            self._running = _Running(process, ours, lifeline)
        return self._running

    def _stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.process.kill()
            running.process.join()
            running.pipe.close()
            running.lifeline.close()


@dataclass(frozen=True, slots=True)
class _Running:
    process: BaseProcess
    pipe: Connection
    lifeline: Lifeline


def _serve(lifeline: Connection, pipe: Connection, memory: int | None) -> None:
    """Answer (function, arguments) with (True, result) or (False, error), until a pipe ends."""
    end_with(lifeline)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if memory is not None:
        _limit_memory(memory)
    with suppress(EOFError, BrokenPipeError):
        while True:
            function, args = pipe.recv()
            try:
                answer = (True, function(*args))
            except DeltadexError as err:
                answer = (False, err)
            except Exception:
                answer = (False, WorkerFailed(traceback.format_exc()))
            pipe.send(answer)


def _limit_memory(n_bytes: int) -> None:
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limits
        return
    resource.setrlimit(resource.RLIMIT_DATA, (n_bytes, n_bytes))
