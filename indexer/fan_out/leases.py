"""Leases: which models one machine or task reads, and the part that it makes of them."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from ...errors import RequestError
from ...records import Indexed, ModelRecord, Outcome, Recipe, Refused
from ...store import Catalog, Part, PartFolder
from ..family import Member
from ..job import Job
from ..options import IndexOptions
from ..run import Progress, Report, read_members

log = logging.getLogger(__name__)

_SPELLING = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")


def share_of(members: Sequence[Member], text: str | None) -> list[Member]:
    """The members of the share that `3/16` means; all without. One's share depends on its id alone.

    Raises:
        RequestError: the text means none.
    """
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
    """Models that one task reads.

    Attributes:
        id: Depends on the models, their files and the recipes: the same work has the same name.
    """

    id: str
    members: tuple[Member, ...]

    @property
    def bytes(self) -> int:
        return sum(member.stated_bytes for member in self.members)

    def halves(self, recipes: Sequence[Recipe]) -> list[Lease]:
        """Two leases of half the models."""
        middle = len(self.members) // 2
        return [
            Lease.of(half, recipes)
            for half in (self.members[:middle], self.members[middle:])
            if half
        ]

    @classmethod
    def of(cls, members: Sequence[Member], recipes: Sequence[Recipe]) -> Lease:
        """The lease of these models."""
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
    """The outcomes of a lease's models, in their order."""
    outcomes: dict[str, Outcome] = {}
    fetched = job.base.bytes_fetched

    def copy(model: ModelRecord) -> Indexed:
        original = outcomes[model.duplicate_of or ""]
        assert isinstance(original, Indexed)
        return replace(original, model=model.as_copy_of(original.model), bytes_read=0, seconds=0.0)

    for outcome in read_members(lease.members, job, workers, {}, copy):
        outcomes[outcome.model.id] = outcome
    return part_of(lease, job, outcomes.values(), job.base.bytes_fetched - fetched)


def refused_part(lease: Lease, job: Job, code: str, reason: str) -> Part:
    """The part of a lease that could not be read."""
    outcomes = [Refused(model=m.record, code=code, reason=reason) for m in lease.members]
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


def write_parts(
    members: Sequence[Member],
    job: Job,
    catalog: Catalog,
    options: IndexOptions,
    workers: int,
    progress: Progress | None = None,
) -> Report:
    """Fingerprint what is neither known nor in a part, and write it as parts, lease by lease.

    A kill loses the lease at hand; the same call goes on after it.
    """
    report = Report.of(job)
    assert options.parts is not None
    folder = PartFolder(str(options.parts))
    known = {**catalog.known(job.base.name), **folder.known(job.base.name)}
    fresh = report.unread(members, known, options)
    if report.relabelled:
        log.warning(
            "%d models are read already, and their parts keep the labels that they have: "
            "give --labels again to `deltadex index` on the merged catalog",
            len(report.relabelled),
        )
    report.begin(fresh, progress, job)
    for lease in leases(fresh, job.recipes):
        part = read_lease(lease, job, workers)
        folder.write(part)
        for outcome in part.outcomes:
            report.add(outcome, progress)
    return report.end(job.base.bytes_fetched)
