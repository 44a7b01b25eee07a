"""A run whose outcomes are written as parts: on a machine that shares nothing with others."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from ...store import Known, PartFolder
from ..family import Member
from ..job import Job
from ..run import Progress, Report, Unread
from .lease import leases, read_lease

log = logging.getLogger(__name__)


def write_parts(
    members: Sequence[Member],
    job: Job,
    folder: PartFolder,
    known: dict[str, Known],
    *,
    workers: int,
    retry_failed: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Fingerprint what is neither known nor in a part, and write it as parts, lease by lease.

    A kill loses the lease at hand; the same call goes on after it.

    Args:
        known: The family's models in a catalog at hand.
    """
    start = time.monotonic()
    report = Report(base=job.base.name, recipes=job.recipes, wanted=job.wanted_bytes)
    known = {**known, **folder.known(job.base.name)}
    unread = Unread(job, known, report, retry_failed=retry_failed)
    fresh = list(unread.among(members))
    if unread.relabelled:
        log.warning(
            "%d models are read already, and their parts keep the labels that they have: "
            "give --labels again to `deltadex index` on the merged catalog",
            len(unread.relabelled),
        )
    report.begin(fresh, progress, job)
    for lease in leases(fresh, job.recipes):
        part = read_lease(lease, job, workers)
        folder.write(part)
        for outcome in part.outcomes:
            report.add(outcome, progress)
    report.base_bytes_read = job.base.bytes_fetched
    report.bytes_read += report.base_bytes_read
    report.seconds = time.monotonic() - start
    return report
