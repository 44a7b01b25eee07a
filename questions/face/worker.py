"""One process beside the service that computes and can be killed, and ends with it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from ...errors import DeltadexError


def _tie(pid: int, end: Connection) -> None:
    """Have the system kill a process when the pipe of which it was given the `end` ends, that is
    with this process, whatever the other is doing: on Linux. Elsewhere it ends as soon as its
    thread may run.

    A thread of its own would wait for Python's lock, which a call into C may hold for long, and
    PR_SET_PDEATHSIG would come with the end of the thread that started the process.
    """
    with suppress(ImportError, AttributeError, OSError):
        from fcntl import F_GETFL, F_SETFL, F_SETOWN, F_SETSIG, fcntl

        # signal-driven input, fcntl(2); flags and owner belong to the pipe, not to a process
        fcntl(end, F_SETOWN, pid)
        fcntl(end, F_SETSIG, signal.SIGKILL)
        fcntl(end, F_SETFL, fcntl(end, F_GETFL) | os.O_ASYNC)
    end.close()


def _end_with(end: Connection) -> None:
    """End this process when the pipe ends, be it that it has already."""
    with suppress(EOFError, OSError):
        end.recv()
    os._exit(1)


Result = TypeVar("Result")

Progress = Callable[[Any], None]
"""Hears what a function reports: which share of its work is done, 0…1, or some of its answers."""

_reports: Connection | None = None


def report(reached: Any) -> None:
    """Tell who runs this process's function which share of its work is done, or some of it."""
    if _reports is not None:
        _reports.send((None, reached))


START_SECONDS = 300.0
"""How long a process may take until it can begin: a busy machine loads modules for a minute."""

NICENESS = 5
"""Of a process that yields, added to the service's: a third of its share of a processor. With a
thirtieth, ten busy programs beside kept a job of five seconds for 20 minutes."""

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


class WorkerError(DeltadexError):
    """A process gave no answer."""


class WorkerDied(WorkerError):
    """The process ended before it answered."""


class WorkerCrashed(WorkerDied):
    """It had begun, and nobody had closed it."""


class WorkerCancelled(WorkerError):
    """The process was killed because nobody wants its answer any more."""


class WorkerOutOfMemory(WorkerError):
    """The function needs more memory than the process may hold."""


class WorkerFailed(WorkerError):
    """A defect showed in the process; the message is its traceback."""


class WorkerTooSlow(WorkerError):
    """The process was killed because it took too long."""


class Worker:
    """A process that runs one function at a time; started when needed, again after it died.

    It ends with this process, whatever it is doing (`_tie`), and ignores Ctrl-C, which is for
    the service to act on. The pools of the standard library and pebble notice the end of their
    parent only between two tasks, or not at all.

    Args:
        memory: Bytes of data that it may hold; None = no limit.
        yields: It has a low priority, and half of the processors' threads.
        load: What the process calls before its first function; with it, it is started again as
            soon as it died, so that it has loaded its modules before it is needed.
        repeats: A function during which the process ended is run once more.
    """

    def __init__(
        self,
        name: str,
        memory: int | None = None,
        load: Callable[[], None] | None = None,
        *,
        yields: bool = False,
        repeats: bool = True,
    ) -> None:
        self._name, self._memory, self._load, self._yields = name, memory, load, yields
        self._repeats = repeats
        self._turn, self._lock = threading.Lock(), threading.Lock()
        self._running: _Running | None = None
        self._name_at_work: object = None
        self._closed = False

    def run(
        self,
        function: Callable[..., Result],
        *args: Any,
        seconds: float,
        progress: Progress = lambda share: None,
        name: object = None,
    ) -> Result:
        """What a module's function returns for these arguments; raises what it raises.

        Args:
            progress: Called with what the function tells `report`.
            name: Of this run, for `cancel`.

        Raises:
            WorkerTooSlow: not within `seconds` of the moment at which the process began.
            WorkerCrashed: it ended, twice where it `repeats`.
            WorkerCancelled: as its name says.
            WorkerDied: it does not start, or the service is being closed.
            WorkerOutOfMemory, WorkerFailed: the function raised no error of ours.
        """
        once: Callable[[], Result] = partial(self._run, (function, args), seconds, progress, name)
        try:
            return once()
        except WorkerCrashed:
            if not self._repeats:
                raise
            # the system may have ended it for the memory that others took
            return once()

    def cancel(self, name: object) -> bool:
        """Kill the process if it is at work for the run of this name; whether it was."""
        with self._lock:
            if name is None or self._name_at_work != name:
                return False
            self._name_at_work = None
            self._stop()
            return True

    def warm(self) -> None:
        """Start the process now, if there is none; what it loads is not waited for."""
        self._started()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._stop()

    def _run(self, task: Any, seconds: float, progress: Progress, name: object) -> Any:
        with self._turn:
            running, has_begun = self._started(), False
            self._name_at_work = name
            try:
                running.pipe.send(task)
                has_begun = _received(running.pipe, START_SECONDS)
                until = time.monotonic() + seconds
                done, value = _received(running.pipe, seconds)
                while done is None:
                    progress(value)
                    done, value = _received(running.pipe, max(0.0, until - time.monotonic()))
            except (EOFError, OSError) as err:
                is_cancelled = self._name_at_work != name
                self._name_at_work = None
                self._replace()
                if is_cancelled:
                    raise WorkerCancelled(f"{self._name}: cancelled") from err
                if not has_begun:
                    raise WorkerDied(f"{self._name}: its process did not start") from err
                if isinstance(err, TimeoutError):
                    raise WorkerTooSlow(f"{self._name}: stopped after {seconds:g} s") from err
                raise WorkerCrashed(f"{self._name}: its process ended, perhaps for memory") from err
            self._name_at_work = None
        if not done:
            raise value
        return value

    def _replace(self) -> None:
        with self._lock:
            self._stop()
            self._refuse_if_closed()
        if self._load is not None:
            self._started()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise WorkerDied("the service is being stopped")

    def _started(self) -> _Running:
        with self._lock:
            self._refuse_if_closed()
            if self._running is None or not self._running.process.is_alive():
                self._stop()
                self._running = self._start()
            return self._running

    def _start(self) -> _Running:
        context = multiprocessing.get_context("spawn")
        end, lifeline = context.Pipe(duplex=False)
        ours, theirs = context.Pipe()
        args = (end, theirs, self._memory, self._load, self._yields)
        process = context.Process(target=_serve, args=args, name=self._name, daemon=True)
        with _undisturbed():
            process.start()
        assert process.pid is not None
        _tie(process.pid, end)
        theirs.close()
        return _Running(process, ours, lifeline)

    def _stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.process.kill()
            running.process.join()
            running.pipe.close()
            running.lifeline.close()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """A process that is started in the block is told all that it reads at its start before a signal
    ends this one; it hears neither Ctrl-C nor, until it `_serve`s, SIGTERM."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # whose start would end the block
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(frozen=True, slots=True)
class _Running:
    process: BaseProcess
    pipe: Connection
    lifeline: Connection


def _received(pipe: Connection, seconds: float) -> Any:
    if not pipe.poll(seconds):
        raise TimeoutError
    return pipe.recv()


def _serve(
    lifeline: Connection,
    pipe: Connection,
    memory: int | None,
    load: Callable[[], None] | None,
    yields: bool,
) -> None:
    """Answer (function, arguments) with True when it begins, (None, …) whenever it reports,
    then (True, result) or (False, error); until a pipe ends."""
    global _reports
    _reports = pipe
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    if yields:
        with suppress(AttributeError, OSError):
            os.nice(NICENESS)
        n_threads = max(1, (os.cpu_count() or 1) // 2)
        # NumPy, FAISS and torch are loaded later, and read these then
        os.environ |= dict.fromkeys(THREADS, str(n_threads))
    with suppress(ModuleNotFoundError):  # Windows has no such limits
        import resource

        if memory is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    if load is not None:
        load()
    with suppress(EOFError, BrokenPipeError):
        while True:
            function, args = pipe.recv()
            pipe.send(True)
            try:
                answer = (True, function(*args))
            except DeltadexError as err:
                answer = (False, err)
            except MemoryError:
                answer = (False, WorkerOutOfMemory("not enough memory"))
            except Exception:
                answer = (False, WorkerFailed(traceback.format_exc()))
            pipe.send(answer)
