"""A run over a Ray cluster: workers write parts, and this process brings them into the catalog."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from ...errors import StoreDamaged
from ...records import Recipe
from ...store import Catalog, Known, Part, PartFolder, commit_part
from ..family import Member
from ..job import Job
from ..run import SHED_EVERY, Progress, Report, Unread
from .lease import Lease, leases, read_lease, refused_part
from .ray_cluster import Ended, opened_cluster

log = logging.getLogger(__name__)

IN_FLIGHT_BYTES = 64 << 30
"""Of the files of all leases that are given out; one lease is given out whatever its size."""

QUEUED = 2
"""Leases that a worker has: one at work, one to begin with while its part is committed."""

TRIES, TRIES_ALONE = 3, 8
"""Deaths of a worker over a lease until it is halved, and over a single model until that is
refused: a model whose reading ends the process shall not end it for ever."""


@runtime_checkable
class Workers(Protocol):
    """Processes that read leases and write parts."""

    @property
    def size(self) -> int: ...

    def submit(self, lease: Lease) -> None:
        """Give a lease out."""

    def ended(self) -> Ended:
        """The next lease that ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """Where a family is read, and by how many.

    Attributes:
        address: `local`, or that of a Ray cluster.
        workers: 0 takes one for each processor.
        parts: A folder or fsspec address that this process and the workers see.
        keeps_parts: Whether parts stay when all of them are committed.
    """

    address: str
    workers: int
    parts: str
    keeps_parts: bool


def index_on_ray(
    members: Sequence[Member],
    job: Job,
    catalog: Catalog,
    options: ClusterOptions,
    *,
    retry_failed: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Fingerprint what is new on a cluster's workers; only this process writes the catalog.

    Parts that an earlier run left are committed first. A worker that ends costs its lease's
    work, this process what is in no part yet: the same call goes on.

    Raises:
        RequestError: Ray is not installed, or the cluster cannot be reached or is gone.
        StoreError: parts cannot be written, or the catalog.
    """
    start, base = time.monotonic(), job.base.name
    report = Report(base=base, recipes=job.recipes, wanted=job.wanted_bytes)
    folder = PartFolder(options.parts)
    known = catalog.known(base)
    commit_parts(catalog, folder, base, known)
    unread = Unread(job, known, report, retry_failed=retry_failed)
    fresh = list(unread.among(members))
    catalog.relabel(base, unread.relabelled)
    report.begin(fresh, progress)
    n_done = 0
    for part in _parts(fresh, job, folder, options):
        commit_part(catalog, part, known)
        report.base_bytes_read += part.base_bytes
        for outcome in part.outcomes:
            report.add(outcome, progress)
        n_done += len(part.outcomes)
        if n_done >= SHED_EVERY:
            n_done = 0
            catalog.shed_memory()
    report.bytes_read += report.base_bytes_read
    if base in catalog.bases():
        catalog.settle_copies(base)
    if not options.keeps_parts:
        folder.remove_family(base)
    report.seconds = time.monotonic() - start
    return report


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
    members: Sequence[Member], job: Job, folder: PartFolder, options: ClusterOptions
) -> Iterator[Part]:
    """The part of each lease, as soon as it is written; what is refused unread needs no worker."""
    refused = [member for member in members if member.refusal is not None]
    for lease in leases(refused, job.recipes):
        yield read_lease(lease, job)
    others = [member for member in members if member.refusal is None]
    queue = deque(leases(others, job.recipes))
    if queue:
        with opened_cluster(options.address, options.workers, job.spec(), folder.url) as cluster:
            yield from _written(Waiting(queue, cluster.size), job, folder, cluster)


def _written(waiting: Waiting, job: Job, folder: PartFolder, cluster: Workers) -> Iterator[Part]:
    while lease := waiting.next():
        cluster.submit(lease)
    while waiting.running:
        ended = cluster.ended()
        lease = waiting.running.pop(ended.lease)
        if ended.path is not None:
            yield folder.read(ended.path)
        elif ended.reason is not None:
            yield refused_part(lease, job, "internal", ended.reason)
        elif not ended.was_at_work:
            waiting.queue.appendleft(lease)
        elif (refusal := waiting.died(lease, job.recipes)) is not None:
            yield refused_part(lease, job, "internal", refusal)
        while (following := waiting.next()) is not None:
            cluster.submit(following)


@dataclass(slots=True)
class Waiting:
    """Leases that are not given out yet, and those that are.

    Attributes:
        workers: That the cluster has.
        running: Leases that are given out, by id.
        deaths: Of workers, by lease.
    """

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
