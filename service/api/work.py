"""What computes for requests: threads with limits, background documents, readers of uploads."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

from starlette.datastructures import UploadFile

from ...errors import DeltadexError
from ...questions.eval import Evaluate
from ...questions.face import worker
from ...questions.face.database import open
from ...questions.face.opened import Tabled
from ...questions.face.serving import load_adapter_reader, read_adapter
from ...questions.find_similar import FindSimilar
from ...records import Indexed, Outcome
from ...results import agree, count
from .answers import Packed, Problem, busy, encode
from .catalog import Readers, names_of

P = ParamSpec("P")
Result = TypeVar("Result")
Answer = TypeVar("Answer")
Thing = TypeVar("Thing")

MAX_RESULTS = 512
"""Kept for clients that ask for them later."""

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.25
"""Between two looks at whether something is done."""


class Shared(Generic[Result]):
    """Threads, one by default, that do things; what is at work or waits already is joined.

    Args:
        most: Things that are at work or wait; None = no limit.
    """

    _who, _again_s = "other", 5

    def __init__(self, name: str, most: int | None = None, at_once: int = 1) -> None:
        self._most = most
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix=name)
        self._at_work: dict[object, tuple[Future[Result], float]] = {}
        """By key, each with the moment of the monotonic clock at which it was asked for."""
        self._lock = threading.Lock()

    @property
    def pending(self) -> int:
        """What is at work or waits."""
        return len(self._at_work)

    def submit(self, function: Callable[[], Result], key: str | None = None) -> Future[Result]:
        """The function's result, or that of the same key which is not done yet."""
        place = key or object()
        with self._lock:
            if place in self._at_work:
                return self._at_work[place][0]
            n = len(self._at_work)
            if self._most is not None and n >= self._most:
                raise busy(
                    f"{count(n, self._who)} {agree(n, 'is')} at work or waiting", self._again_s
                )
            future = self._pool.submit(function)
            self._at_work[place] = future, time.monotonic()
        # outside the lock: where it is done already, this forgets it now
        future.add_done_callback(lambda _: self._forget(place))
        return future

    def stands(self, future: Future[Result]) -> dict[str, Any]:
        """How many are `ahead` of it, 0 if it is at work, and `elapsed_s` since it was asked for;
        nothing once it is done."""
        with self._lock:
            begun = list(self._at_work.values())
        for place, (one, since) in enumerate(begun):
            if one is future:
                elapsed = round(time.monotonic() - since, 1)
                return {"ahead": 0 if future.running() else place, "elapsed_s": elapsed}
        return {}

    def cancel(self, future: Future[Result]) -> bool:
        """Take it back, which has not begun yet; whether that was so."""
        return future.cancel()

    def close(self) -> None:
        """Begin no more; what runs is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _forget(self, place: object) -> None:
        with self._lock:
            self._at_work.pop(place, None)


class Work(Shared[Any]):
    """Threads that compute answers.

    A thread cannot be stopped: what runs too long is answered with a problem, and keeps its
    place until it ends, so that no more than `at_once` ever run.
    """

    _who, _again_s = "request", 1

    def __init__(self, *, at_once: int, waiting: int | None, seconds: float) -> None:
        most = None if waiting is None else at_once + waiting
        super().__init__("deltadex-answer", most, at_once)
        self._seconds = seconds

    async def run(self, function: Callable[P, Answer], *args: P.args, **kwargs: P.kwargs) -> Answer:
        """What the function returns or raises; a `Problem` where it took too long."""
        return await self._in_time(self.submit(partial(function, *args, **kwargs)))

    async def _in_time(self, future: Future[Answer]) -> Answer:
        waited = asyncio.wrap_future(future)
        # what nobody waits for any more may fail
        waited.add_done_callback(lambda done: done.cancelled() or done.exception())
        done, _ = await asyncio.wait([waited], timeout=self._seconds)
        if not done:
            code = "busy" if future.cancel() else "too-slow"
            detail = f"not answered within {self._seconds:g} s: ask for less, or later"
            raise busy(detail, code=code)
        return waited.result()


MOST_TOGETHER = 16
"""Questions that are answered together: the first is answered before the last is scored."""


class Together(Work):
    """Questions about one model each, answered together with those that wait and differ in the
    model alone.

    Args:
        answers: Gives its last argument the answers to a question about several models, each with
            its place.
        waiting: Questions that wait for a thread; one more is sent away.
    """

    def __init__(
        self,
        answers: Callable[[FindSimilar, list[str], Callable[[int, Any], None]], None],
        *,
        at_once: int,
        waiting: int,
        seconds: float,
    ) -> None:
        super().__init__(at_once=at_once, waiting=None, seconds=seconds)
        self._answers, self._room = answers, waiting
        self._waiting: OrderedDict[str, list[tuple[FindSimilar, str, Future[Any]]]] = OrderedDict()

    @property
    def pending(self) -> int:
        return super().pending + sum(map(len, self._waiting.values()))

    async def ask(self, asked: FindSimilar, model: str) -> Any:
        """The answer about a model; raises as `run`."""
        future: Future[Any] = Future()
        with self._lock:
            n = sum(map(len, self._waiting.values()))
            if n >= self._room:
                raise busy(f"{count(n, self._who)} {agree(n, 'is')} waiting", self._again_s)
            alike = self._waiting.setdefault(repr(asked), [])
            alike.append((asked, model, future))
        if len(alike) == 1:
            # the others are answered by what was submitted for the first
            self.submit(self._answer_some)
        return await self._in_time(future)

    def _answer_some(self) -> None:
        """Answer questions that wait, the oldest first."""
        with self._lock:
            key, waiting = self._waiting.popitem(last=False)
            if later := waiting[MOST_TOGETHER:]:
                self._waiting[key] = later
        if later:
            self.submit(self._answer_some)
        some = [w for w in waiting[:MOST_TOGETHER] if w[2].set_running_or_notify_cancel()]
        if not some:
            return

        def give(place: int, answer: Any) -> None:
            future = some[place][2]
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        try:
            self._answers(some[0][0], [model for _, model, _ in some], give)
        except Exception as err:
            for _, _, future in some:
                if not future.done():
                    future.set_exception(err)


async def is_done(
    future: Future[Any], seconds: float, is_given_up: Callable[[], Awaitable[bool]] | None = None
) -> bool:
    """Whether it is done within that time, or once nobody waits any more; takes no thread."""
    loop, pause = asyncio.get_running_loop(), SHORTEST_PAUSE_S
    until = loop.time() + seconds
    while not future.done() and (left := until - loop.time()) > 0:
        await asyncio.sleep(min(pause, left))
        pause = min(1.5 * pause, LONGEST_PAUSE_S)
        if is_given_up is not None and pause == LONGEST_PAUSE_S and await is_given_up():
            break
    return future.done()


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Work that took longer than the request which asked for it; of a background document the
    future has no result, and its question is `asked`."""

    future: Future[Any]
    line: Shared[Any]
    asked: Tabled | None = None


class Results:
    """Jobs by id."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Job] = OrderedDict()

    def keep(self, job: Job) -> str:
        """An id that nobody guesses; the oldest job that is done is forgotten for a new one."""
        for id, kept in self._kept.items():
            if kept.future is job.future:
                return id
        if len(self._kept) >= MAX_RESULTS:
            done = (id for id, kept in self._kept.items() if kept.future.done())
            self._kept.pop(next(done, next(iter(self._kept))))
        id = secrets.token_urlsafe(16)
        self._kept[id] = job
        return id

    def cancel(self, id: str) -> bool:
        """Stop the job and forget it; False where it is done, or too late to stop."""
        job = self.find(id)
        is_cancelled = job.line.cancel(job.future)
        if is_cancelled:
            self._kept.pop(id, None)
        return is_cancelled

    def find(self, id: str) -> Job:
        """The job of that id; a `Problem` where it is not known, or was forgotten."""
        if id not in self._kept:
            raise Problem(404, "unknown-job", "no such job; the service keeps the latest ones only")
        return self._kept[id]


MAX_DOCUMENTS = 64

FAILURE_SECONDS = 10.0
"""How long a failure is answered before the document is computed again."""


SAYING_S = 3.0
"""How long what was stopped may take to answer."""


class Line(Shared[Any]):
    """Documents that are computed one after the other in a process beside the service."""

    def __init__(self, name: str, readers: Readers, most: int | None = None) -> None:
        super().__init__(name, most)
        self._readers = readers
        self.worker = worker.Worker(name, yields=True)
        self.reached: dict[str, float] = {}
        """Of documents that are at work, which share is done."""

    def stands(self, future: Future[Any]) -> dict[str, Any]:
        """The same, and how many `percent` are done."""
        found = super().stands(future)
        if found:
            found["percent"] = int(100 * self.reached.get(str(self._key(future)), 0.0))
        return found

    def cancel(self, future: Future[Any]) -> bool:
        """The same; one that has begun is stopped."""
        return super().cancel(future) or self.worker.cancel(self._key(future))

    def compute(
        self, key: str, function: Callable[..., Answer], *args: Any, seconds: float
    ) -> Answer:
        """What the process answers, whose progress is known meanwhile."""
        progress = partial(self.reached.__setitem__, key)
        try:
            return self.worker.run(function, *args, seconds=seconds, progress=progress, name=key)
        finally:
            self.reached.pop(key, None)

    def answer(
        self, key: str, answer: Callable[[Path, Any], dict[str, Any]], asked: Any, seconds: float
    ) -> dict[str, Any]:
        """What a question is answered by a function there, with bases as clients see them."""
        document = self.compute(key, answer, self._readers.path, asked, seconds=seconds)
        with self._readers.catalog() as catalog:
            return names_of(catalog).with_bases(document)

    def close(self) -> None:
        """Begin no more, and stop what runs; it has a moment to say so."""
        with self._lock:
            futures = [future for future, _ in self._at_work.values()]
        super().close()
        self.worker.close()
        wait(futures, SAYING_S)

    def _key(self, future: Future[Any]) -> object:
        with self._lock:
            begun = self._at_work.items()
            return next((key for key, (one, _) in begun if one is future), None)


class Jobs:
    """Background documents: evaluations, and beside them all others, one at a time of each."""

    def __init__(self, readers: Readers, seconds: float) -> None:
        self._readers, self._seconds = readers, seconds
        self._evaluations = Line("deltadex-evaluation", readers)
        self._others = Line("deltadex-background", readers)
        self._lock = threading.Lock()
        self._made: OrderedDict[str, tuple[str, Packed]] = OrderedDict()
        self._failed: dict[str, tuple[str, DeltadexError, float]] = {}
        """By question: of which state, why, and the moment until which this is answered."""
        self.counts = {"computed": 0, "failed": 0}

    @property
    def pending(self) -> int:
        return self._evaluations.pending + self._others.pending

    def line(self, asked: Tabled) -> Line:
        """Where a document is computed."""
        return self._evaluations if isinstance(asked, Evaluate) else self._others

    async def get(self, asked: Tabled, seconds: float) -> Packed | Job:
        """The answer of now; else an earlier one; else, after so long a wait, the job that computes
        it."""
        key = repr(asked)
        document = self.find(asked)
        if document is not None and not document.stale:
            return document
        line = self.line(asked)
        future = line.submit(partial(self._make, key, asked), key=key)
        if document is not None:
            return document
        await is_done(future, seconds)
        return self.find(asked) or Job(future, line, asked)

    def find(self, asked: Tabled) -> Packed | None:
        """The latest answer that there is; raises why there is none of now."""
        key, state = repr(asked), self._readers.state()
        with self._lock:
            made_of, packed = self._made.get(key, ("", None))
            if packed is not None and made_of == state:
                self._made.move_to_end(key)
                return packed
            failed_in, error, until = self._failed.get(key, (None, DeltadexError(), 0.0))
            if failed_in == state:
                if until > time.monotonic():
                    raise error
                del self._failed[key]
            return packed and replace(packed, stale=True)

    def close(self) -> None:
        self._evaluations.close()
        self._others.close()

    def _make(self, key: str, asked: Tabled) -> None:
        state = self._readers.state()
        try:
            document = self.line(asked).answer(key, answer_in, asked, self._seconds)
            packed = Packed.of(encode(document))
        except worker.WorkerCancelled:
            return
        except Exception as err:
            error = (
                err
                if isinstance(err, DeltadexError)
                else worker.WorkerFailed(traceback.format_exc())
            )
            with self._lock:
                self.counts["failed"] += 1
                self._failed[key] = state, error, time.monotonic() + FAILURE_SECONDS
            return
        with self._lock:
            self.counts["computed"] += 1
            self._failed.pop(key, None)
            self._made[key] = (state, packed)
            self._made.move_to_end(key)
            while len(self._made) > MAX_DOCUMENTS:
                self._made.popitem(last=False)


def answer_in(path: Path, asked: Tabled) -> dict[str, Any]:
    """What a question's answer is, from the catalog file at `path`; in the process beside."""

    def track(things: Iterable[Thing], what: str, *, total: int | None = None) -> Iterator[Thing]:
        for number, thing in enumerate(things):
            if total:
                worker.report(number / total)
            yield thing

    with open(path, read_only=True, track=track) as catalog:
        return asked.answer(catalog).to_json()


DESCRIBED = 0.1
"""Share of adding models that is done once all are described."""


class _Shares:
    """Reports which share of an addition is done, from its first look at a model on."""

    def __init__(self, models: int) -> None:
        self._named, self._unread, self._read = models, 1, 0

    def listing(self, members: Iterable[Thing]) -> Iterator[Thing]:
        for number, member in enumerate(members):
            worker.report(DESCRIBED * number / self._named)
            yield member

    def begin(self, models: int, bytes_total: int) -> None:
        self._unread = max(1, models)

    def outcome(self, outcome: Outcome) -> None:
        self._read += 1
        worker.report(DESCRIBED + (1 - DESCRIBED) * self._read / self._unread)


def add_in(path: Path, models: Sequence[str], base: str) -> dict[str, Any]:
    """What becomes of models that are added to the catalog file; in the process beside."""
    with open(path, create=False) as catalog:
        return catalog.add(*models, base=base, progress=_Shares(len(models))).to_json()


CONFIG_LIMIT = 1 << 20


async def begin_adapter(
    config: UploadFile,
    weights: UploadFile,
    line: Shared[dict[str, Any]],
    answer: Callable[[Path], dict[str, Any]],
) -> Job:
    """Work on a folder with the files of an adapter; a `Problem` for a config that is too long."""
    if (config.size or 0) > CONFIG_LIMIT:
        raise Problem(413, "body-too-long", "config: at most 1 MiB")
    files = {"adapter_config.json": config, "adapter_model.safetensors": weights}
    return await asyncio.to_thread(begin_with, files, line, answer)


def begin_with(
    files: Mapping[str, UploadFile],
    line: Shared[dict[str, Any]],
    answer: Callable[[Path], dict[str, Any]],
    key: str | None = None,
) -> Job:
    """Work on a folder with the files of these names, which is there until it is done."""
    place = tempfile.TemporaryDirectory(prefix="deltadex-")
    try:
        for name, sent in files.items():
            with (Path(place.name) / name).open("wb") as file:
                sent.file.seek(0)
                shutil.copyfileobj(sent.file, file)
        future = line.submit(partial(answer, Path(place.name)), key)
    except BaseException:
        place.cleanup()
        raise
    future.add_done_callback(lambda _: place.cleanup())
    return Job(future, line)


class Uploads(Shared[dict[str, Any]]):
    """Reads adapters, one at a time.

    What is sent may be made to take for ever or all memory (a pattern that never ends, factors
    whose product is vast), so it is read where it can be killed, with no base and no host.

    Args:
        waiting: Adapters that wait for their turn.
        warm: Start the process now, not with the first adapter: it loads modules for seconds.
    """

    def __init__(self, *, memory: int, seconds: float, waiting: int, warm: bool) -> None:
        super().__init__("deltadex-upload", waiting)
        self._worker = worker.Worker("reading the adapter", memory, load_adapter_reader)
        self._memory, self.seconds = memory, seconds
        if warm:
            self._worker.warm()

    def read(self, folder: Path, reading: Mapping[str, Any]) -> Indexed:
        """The adapter in the folder, fingerprinted; a `Problem` if that takes too long or much."""
        try:
            return self._worker.run(read_adapter, folder, reading, seconds=self.seconds)
        except worker.WorkerCrashed as err:
            detail = "reading the adapter ended its process, twice"
            raise Problem(422, "too-large", detail) from err
        except worker.WorkerOutOfMemory as err:
            detail = f"reading the adapter needs more memory than {self._memory >> 20} MiB"
            raise Problem(422, "too-large", detail) from err
        except worker.WorkerTooSlow as err:
            detail = f"reading the adapter was stopped after {self.seconds:g} s"
            raise Problem(422, "too-slow", detail) from err

    def close(self) -> None:
        super().close()
        self._worker.close()
