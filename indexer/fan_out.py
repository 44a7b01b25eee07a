"""A family read by many processes or machines: leases of models, each of which becomes a part."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TextIO
from uuid import uuid4

from ..errors import DeltadexError, RequestError, StoreDamaged
from ..records import Indexed, ModelRecord, Outcome, Recipe, Refused
from ..store import Catalog, Known, Part, PartFolder, commit_part, may_record
from .family import Member
from .hub import LocalBudget, RequestKind
from .job import Job, cpu_count
from .options import IndexOptions
from .run import Progress, Report, read_members

log = logging.getLogger(__name__)

_SPELLING = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")


def share_of(members: Sequence[Member], text: str | None) -> list[Member]:
    """The members of the share that `3/16` means, by their ids alone; all without; a `RequestError`
    for other texts."""
    if text is None:
        return list(members)
    match = _SPELLING.fullmatch(text.strip())
    number, of = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= of:
        raise RequestError(f"share {text!r}: expected N/OF with N from 1 to OF, such as 3/16")
    digests = (hashlib.sha256(member.record.id.encode()).digest() for member in members)
    shares = (int.from_bytes(digest[:8], "big") % of for digest in digests)
    return [member for member, n in zip(members, shares, strict=True) if n == number - 1]


REFUSED_AT_ONCE, ADAPTERS_AT_ONCE = 256, 16
"""Models of one lease that are refused unread, or are adapters. A full checkpoint has a lease of
its own: it is all that the end of a worker loses."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Models that one task reads; the same models, files and recipes have the same id."""

    id: str
    members: tuple[Member, ...]

    @property
    def bytes(self) -> int:
        return sum(member.stated_bytes for member in self.members)

    def halves(self, recipes: Sequence[Recipe]) -> list[Lease]:
        middle = len(self.members) // 2
        halves = self.members[:middle], self.members[middle:]
        return [Lease.of(half, recipes) for half in halves]

    @classmethod
    def of(cls, members: Sequence[Member], recipes: Sequence[Recipe]) -> Lease:
        names = [[m.record.id, m.record.signature, m.refusal is None] for m in members]
        body = json.dumps([names, [recipe.id for recipe in recipes]])
        return cls(hashlib.sha256(body.encode()).hexdigest()[:16], tuple(members))


def leases(members: Sequence[Member], recipes: Sequence[Recipe]) -> Iterator[Lease]:
    """All members, in their order, as leases."""
    batch: list[Member] = []
    share = 0.0
    for member in members:
        weight = 1 / ADAPTERS_AT_ONCE if member.is_adapter else 1.0
        if member.refusal is not None:
            weight = 1 / REFUSED_AT_ONCE
        if batch and share + weight > 1.0:
            yield Lease.of(batch, recipes)
            batch, share = [], 0.0
        batch.append(member)
        share += weight
    if batch:
        yield Lease.of(batch, recipes)


def read_lease(lease: Lease, job: Job, workers: int = 1) -> Part:
    outcomes: dict[str, Outcome] = {}
    fetched = job.base.bytes_fetched

    def copy(model: ModelRecord) -> Indexed:
        original = outcomes[model.duplicate_of or ""]
        assert isinstance(original, Indexed)
        return replace(original, model=model.as_copy_of(original.model), bytes_read=0, seconds=0.0)

    for outcome in read_members(lease.members, job, workers, {}, copy):
        outcomes[outcome.model.id] = outcome
    return part_of(lease, job, outcomes.values(), job.base.bytes_fetched - fetched)


def refused_part(lease: Lease, job: Job, reason: str) -> Part:
    outcomes = [Refused(model=m.record, code="internal", reason=reason) for m in lease.members]
    return part_of(lease, job, outcomes, 0)


def part_of(lease: Lease, job: Job, outcomes: Iterable[Outcome], base_bytes: int) -> Part:
    weights = job.base.opened()
    order = {member.record.id: row for row, member in enumerate(lease.members)}
    return Part(
        lease=lease.id,
        base=job.base.name,
        recipes=tuple(job.recipes),
        outcomes=tuple(sorted(outcomes, key=lambda o: order[o.model.id])),
        revision=weights.revision if weights else None,
        architecture=weights.architecture if weights else None,
        layout=job.layout,
        base_bytes=base_bytes,
        written_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    )


LOCAL = "local"

POLL_S = 1.0
"""How long a wait for a lease lasts at most, so that Ctrl-C is heard."""

CONNECT_S = 5.0

OBJECT_STORE_BYTES = 80 << 20
"""Nothing but leases and paths travels through Ray; 75 MiB is the least that it takes."""


@dataclass(frozen=True, slots=True)
class Ended:
    lease: str
    path: str | None = None
    reason: str | None = None
    was_at_work: bool = False


@dataclass(slots=True)
class Cluster:
    """Workers of a Ray cluster, actors that read one lease after the other; `tasks`: lease id and
    worker by Ray's reference."""

    ray: Any
    workers: list[Any]
    budget: Any
    tasks: dict[Any, tuple[str, int]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return len(self.workers)

    def submit(self, lease: Lease) -> None:
        """Give a lease to the worker that has the fewest."""
        load = [0] * self.size
        for _, number in self.tasks.values():
            load[number] += 1
        number = load.index(min(load))
        self.tasks[self.workers[number].write_part.remote(lease)] = (lease.id, number)

    def ended(self) -> Ended:
        """The next lease that ends; a `RequestError` if the cluster is gone, else what a worker
        says of all its work, such as a full disk."""
        ray, done = self.ray, list[Any]()
        while not done:
            if not ray.is_initialized():
                raise RequestError(
                    "the Ray cluster is gone; progress is saved: run the same command again"
                )
            done, _ = ray.wait(list(self.tasks), num_returns=1, timeout=POLL_S)
        (reference,) = done
        # of the leases that a worker has the oldest is the one at work
        _, number = self.tasks[reference]
        is_first = reference == next(r for r, (_, n) in self.tasks.items() if n == number)
        lease, _ = self.tasks.pop(reference)
        try:
            return Ended(lease, path=ray.get(reference))
        except ray.exceptions.RayTaskError as err:
            if isinstance(err.cause, DeltadexError):
                raise err.cause from None
            return Ended(lease, reason=_line(err.cause or err))
        except ray.exceptions.RayError as err:
            log.info("a worker ended: %s", type(err).__name__)
            return Ended(lease, was_at_work=bool(is_first))


@contextmanager
def opened_cluster(address: str, workers: int, job: Job, parts: str) -> Iterator[Cluster]:
    """Workers of the cluster at an address, or of one of this machine's own, for a block; a
    `RequestError` if Ray is not installed, or the cluster cannot be reached. No workers take one
    for each processor of the cluster."""
    ray = _ray()
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == LOCAL:
        workers = workers or cpu_count()
        options |= {
            "num_cpus": workers,
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE_BYTES,
        }
    _require_answer(address)
    try:
        try:
            with _own_sigterm():
                ray.init(address=address, **options)
            n_workers = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
            cluster = _cluster(ray, n_workers, job, parts)
        except Exception as err:  # of Ray's own start, some have no other class
            raise RequestError(
                f"Ray at {address!r} does not start: {_line(err)}; run without --ray, or try again"
            ) from err
        with redirect_stdout(_WithoutRay(sys.stdout)):
            yield cluster
    finally:
        with suppress(Exception):
            ray.shutdown()


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Put this process's handler of SIGTERM back, which Ray replaces by its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        # None is that of a program around Python, which cannot be put back
        if before is not None:
            signal.signal(signal.SIGTERM, before)


class _WithoutRay(io.TextIOBase):
    """Standard output but for Ray's own messages, which would stand in a command's document."""

    def __init__(self, output: TextIO) -> None:
        self._output = output

    def write(self, text: str) -> int:
        if "(raylet)" in text:
            log.debug("%s", text.strip())
            return len(text)
        return self._output.write(text)

    def flush(self) -> None:
        self._output.flush()


def _require_answer(address: str) -> None:
    """Refuse an address where nothing listens, on which Ray would wait for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not colon:
        return
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
    except (OSError, ValueError, OverflowError) as err:
        reason = getattr(err, "strerror", None) or str(err)
        raise RequestError(f"Ray at {address!r}: nothing answers there ({reason})") from err


def _ray() -> Any:
    # nothing about this machine is reported to Ray's makers
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as err:
        raise RequestError('--ray needs the extra: pip install "deltadex[ray]"') from err
    return ray


def _cluster(ray: Any, workers: int, job: Job, parts: str) -> Cluster:
    # by its name: a handle among a restarted actor's arguments may be gone
    name = f"deltadex-budget-{uuid4()}"
    budget = ray.remote(num_cpus=0, max_restarts=-1)(LocalBudget).options(name=name).remote()
    actor = ray.remote(num_cpus=1, max_restarts=-1)(Worker)
    return Cluster(ray, [actor.remote(job, parts, name) for _ in range(workers)], budget)


class RemoteBudget(LocalBudget):
    """A worker's view of the budget of all workers, an actor; restarted, it learns from answers."""

    def __init__(self, name: str) -> None:
        self._actor = _ray().get_actor(name)

    def take(self, kind: RequestKind) -> float:
        return float(_ray().get(self._actor.take.remote(kind)))

    def observe(self, kind: RequestKind, remaining: int, reset_s: float) -> None:
        self._actor.observe.remote(kind, remaining, reset_s)


class Worker:
    """Reads leases; an actor. All that it keeps between them is the opened base."""

    def __init__(self, job: Job, parts: str, budget: str) -> None:
        self._job = job
        job.session.budget = RemoteBudget(budget)
        self._folder = PartFolder(parts)

    def write_part(self, lease: Lease) -> str:
        """Write the part of a lease; returns its path from the folder."""
        return self._folder.write(read_lease(lease, self._job))


def _line(err: BaseException) -> str:
    text = str(err).strip().splitlines()
    return f"{type(err).__name__}: {text[0][:200]}" if text else type(err).__name__


IN_FLIGHT_BYTES = 64 << 30
"""The most of the files of all leases that are given out; one is given out whatever its size."""

QUEUED = 2
"""Leases that a worker has: one at work, one to begin with while its part is committed."""

TRIES, TRIES_ALONE = 3, 8
"""Deaths of a worker over a lease until it is halved, and over a single model until that is
refused: a model whose reading ends the process shall not end it for ever."""


SHED_EVERY = 128
"""Outcomes after which the catalog frees the memory of what was written."""


def index_members(
    members: Sequence[Member],
    job: Job,
    catalog: Catalog,
    options: IndexOptions,
    workers: int,
    progress: Progress | None = None,
) -> Report:
    """Fingerprint what is new among `members`, and record each outcome as it comes; only the
    calling thread writes the catalog. Up to `workers` models are at work at once; on
    KeyboardInterrupt those are dropped, those recorded stay.

    With `options.parts` alone, what is neither known nor in a part is written as parts, lease by
    lease, and a kill loses the lease at hand. With `options.ray` a cluster's workers write parts,
    those that an earlier run left are committed first, and a worker that ends costs its lease's
    work: the same call goes on.
    """
    base, on_ray = job.base.name, options.ray is not None
    report = Report(base=base, recipes=job.recipes, wanted=job.wanted_bytes)
    known = catalog.known(base)
    folder: PartFolder | None = None
    if on_ray or options.parts is not None:
        folder = PartFolder(str(options.parts or f"{catalog.path}.parts"))
    if folder is not None and on_ray:
        commit_parts(catalog, folder, base, known)
    elif folder is not None:
        known |= folder.known(base)
    fresh = report.unread(members, known, options)
    fills_catalog = folder is None or on_ray
    if fills_catalog:
        catalog.relabel(base, report.relabelled)
    elif report.relabelled:
        log.warning(
            "%d models are read already, and their parts keep the labels that they have: "
            "give --labels again to `deltadex index` on the merged catalog",
            len(report.relabelled),
        )
    report.begin(fresh, progress, None if on_ray else job)
    if folder is None:
        outcomes = _recorded(fresh, job, catalog, known, workers)
    elif on_ray:
        commit = partial(commit_part, catalog, known=known)
        outcomes = _kept(_parts(fresh, job, folder, options), commit, report)
    else:
        parts = (read_lease(lease, job, workers) for lease in leases(fresh, job.recipes))
        outcomes = _kept(parts, folder.write, report)
    for n_done, outcome in enumerate(outcomes, start=1):
        report.add(outcome, progress)
        if fills_catalog and n_done % SHED_EVERY == 0:
            catalog.shed_memory()
    if fills_catalog and base in catalog.bases():
        catalog.settle_copies(base)
    if folder is not None and options.parts is None:
        folder.remove_family(base)
    return report.end(report.base_bytes_read if on_ray else job.base.bytes_fetched)


def _kept(
    parts: Iterable[Part], keep: Callable[[Part], object], report: Report
) -> Iterator[Outcome]:
    for part in parts:
        keep(part)
        report.base_bytes_read += part.base_bytes
        yield from part.outcomes


def _recorded(
    members: Sequence[Member],
    job: Job,
    catalog: Catalog,
    known: Mapping[str, Known],
    workers: int,
) -> Iterator[Outcome]:
    base, ids = job.base.name, [recipe.id for recipe in job.recipes]
    by_hash = catalog.contents(base, ids) if members else {}
    if job.verify:
        by_hash = {k: id for k, id in by_hash.items() if known[id].verified != "unverified"}

    def copy(model: ModelRecord) -> Indexed:
        assert model.duplicate_of is not None
        return catalog.outcome_of_copy(base, model.duplicate_of, model, ids)

    for outcome in read_members(members, job, workers, by_hash, copy):
        if may_record(outcome, known.get(outcome.model.id)):
            catalog.record(outcome)
        yield outcome


def commit_parts(catalog: Catalog, folder: PartFolder, base: str, known: dict[str, Known]) -> None:
    """Commit the parts of an earlier run; a damaged one is left, and its models are read again."""
    n_models = 0
    for path in folder.paths(base):
        try:
            n_models += len(commit_part(catalog, folder.read(path), known))
        except StoreDamaged as err:
            log.warning("%s; it counts as if it were not there: delete it", err)
    if n_models:
        log.info("%d models of an earlier run were in its parts", n_models)


def _parts(
    members: Sequence[Member], job: Job, folder: PartFolder, options: IndexOptions
) -> Iterator[Part]:
    """The part of each lease, as soon as it is written; what is refused unread needs no worker."""
    refused = [member for member in members if member.refusal is not None]
    for lease in leases(refused, job.recipes):
        yield read_lease(lease, job)
    others = [member for member in members if member.refusal is None]
    queue = deque(leases(others, job.recipes))
    if queue and options.ray is not None:
        with opened_cluster(options.ray, options.workers, job, folder.url) as cluster:
            yield from _written(Waiting(queue, cluster.size), job, folder, cluster)


def _written(waiting: Waiting, job: Job, folder: PartFolder, cluster: Cluster) -> Iterator[Part]:
    while lease := waiting.next():
        cluster.submit(lease)
    while waiting.running:
        ended = cluster.ended()
        lease = waiting.running.pop(ended.lease)
        if ended.path is not None:
            yield folder.read(ended.path)
        elif ended.reason is not None:
            yield refused_part(lease, job, ended.reason)
        elif not ended.was_at_work:
            waiting.queue.appendleft(lease)
        elif (refusal := waiting.died(lease, job.recipes)) is not None:
            yield refused_part(lease, job, refusal)
        while (following := waiting.next()) is not None:
            cluster.submit(following)


@dataclass(slots=True)
class Waiting:
    """Leases that are not given out yet, and those that are."""

    queue: deque[Lease]
    workers: int
    running: dict[str, Lease] = field(default_factory=dict)
    deaths: dict[str, int] = field(default_factory=dict)

    def next(self) -> Lease | None:
        """The next lease to give out; None while enough are."""
        if not self.queue or len(self.running) >= QUEUED * self.workers:
            return None
        in_flight = sum(lease.bytes for lease in self.running.values())
        if self.running and in_flight + self.queue[0].bytes > IN_FLIGHT_BYTES:
            return None
        lease = self.queue.popleft()
        self.running[lease.id] = lease
        return lease

    def died(self, lease: Lease, recipes: Sequence[Recipe]) -> str | None:
        """Queue a lease again whose worker ended; or say why not."""
        deaths = self.deaths[lease.id] = self.deaths.get(lease.id, 0) + 1
        if deaths < (TRIES if len(lease.members) > 1 else TRIES_ALONE):
            self.queue.appendleft(lease)
        elif len(lease.members) > 1:
            self.queue.extendleft(reversed(lease.halves(recipes)))
        else:
            return f"its reading ended {deaths} workers"
        return None
