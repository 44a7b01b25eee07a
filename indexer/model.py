"""One model from files to outcome: opened, compared with its base, fingerprinted."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

from ..errors import BaseError, ModelError
from ..records import Indexed, Outcome, Refused
from .adapter_update import collect_adapter
from .checkpoint import Checkpoint
from .family import Member
from .full_update import collect_full
from .hub import HubWeights
from .job import Job
from .opening import open_checkpoint, with_config
from .update import UpdateCollector

log = logging.getLogger(__name__)

MISFITS = ("wrong-base", "shape-mismatch", "layer-mismatch")
"""What a model of another base runs into."""


def fingerprint_member(member: Member, job: Job, remote: HubWeights | None = None) -> Outcome:
    """The model's fingerprints and statistics, or why there are none. Never raises for a model.

    `remote`: its weight files on the Hub, where they were looked up already.

    Peak: a tensor pair in float32 for each of the job's threads, and what the reader
    coalesces.

    Raises:
        Cancelled: the run is being stopped.
    """
    start = time.monotonic()
    checkpoint: Checkpoint | None = None

    def refused(code: str, reason: str) -> Refused:
        return Refused(
            model=member.record,
            code=code,
            reason=reason,
            bytes_read=checkpoint.bytes_read if checkpoint else 0,
            seconds=time.monotonic() - start,
        )

    try:
        if member.refusal is not None:
            raise member.refusal
        member = with_config(member)
        checkpoint = remote.open() if remote is not None else open_checkpoint(member, job.plan)
        collector = UpdateCollector(job.recipes, job.layout)
        record = member.record
        if member.is_adapter:
            record = collect_adapter(member, checkpoint, job, collector)
        else:
            collect_full(member, checkpoint, job, collector)
        return Indexed(
            model=replace(record, bytes_total=checkpoint.bytes_total),
            fingerprints=collector.fingerprints(),
            slots=collector.statistics(),
            bytes_read=checkpoint.bytes_read,
            seconds=time.monotonic() - start,
        )
    # One stranger's file must not end a run over thousands, whatever it runs into.
    except Exception as err:
        code, reason = refusal(err, member.record.id)
        if code in MISFITS and member.claims and not job.wanted.named_in(member.claims):
            return refused("other-base", f"names base {member.claims[0]!r}; {reason}")
        return refused(code, reason)
    finally:
        if checkpoint is not None:
            checkpoint.close()


def refusal(err: Exception, id: str) -> tuple[str, str]:
    """Code and reason for what reading a model ran into."""
    if isinstance(err, ModelError):
        return err.code, err.reason
    if isinstance(err, BaseError):
        return "needs-base", str(err)
    if isinstance(err, MemoryError):
        return "internal", "not enough memory for one of its matrices"
    log.debug("defect while reading %s", id, exc_info=err)
    return "internal", f"{type(err).__name__}: {err}".splitlines()[0][:300]
