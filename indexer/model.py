"""One model from its files, wherever they are, to its outcome: opened, compared, fingerprinted."""

from __future__ import annotations

import logging
import time
import traceback
from dataclasses import replace

from ..errors import BaseError, ModelError
from ..records import Indexed, Outcome, Refused
from .checkpoint import (
    READ_AGAIN,
    WHOLE_TENSORS,
    Checkpoint,
    ReadPlan,
    open_adapter_weights,
    open_local,
    read_json,
)
from .family import Member, refuse_strangers
from .fingerprint.recipes import UpdateCollector
from .hub import HubSession, HubWeights, read_small_file
from .job import Job
from .untrusted_text import distinct_texts
from .updates import collect_adapter, collect_full

log = logging.getLogger(__name__)

MISFITS = ("wrong-base", "shape-mismatch", "layer-mismatch")
"""Codes that a model of another base can end with."""


def fingerprint_member(member: Member, job: Job, remote: HubWeights | None = None) -> Outcome:
    """The model's fingerprints and statistics, or why there are none. Never raises for a model.

    A refusal of a Hub model that a changed byte could explain is not believed at once: the second
    reading counts.

    `remote`: its weight files on the Hub, where they were looked up already.

    Peak: a tensor pair in float32 for each of the job's threads, and what the reader
    coalesces.

    Raises:
        Cancelled: the run is being stopped.
    """
    first = _read(member, job, remote)
    if member.hub is None or not isinstance(first, Refused) or first.code not in READ_AGAIN:
        return first
    log.info("%s: %s; it is read once more", member.record.id, first.code)
    again = _read(member, job, None)
    return replace(
        again,
        bytes_read=first.bytes_read + again.bytes_read,
        seconds=first.seconds + again.seconds,
    )


def _read(member: Member, job: Job, remote: HubWeights | None) -> Outcome:
    """What one reading of the model's files gives."""
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
        member = with_config(member, job.session)
        if member.is_adapter:
            member = refuse_strangers(member, job.wanted)
            if member.refusal is not None:
                raise member.refusal
        checkpoint = remote.open() if remote else open_checkpoint(member, job.plan, job.session)
        job.meter.opened(member.record.id, checkpoint)
        collector = UpdateCollector(job.recipes, job.layout)
        record = member.record
        if member.is_adapter:
            record = collect_adapter(member, checkpoint, job, collector)
        else:
            collect_full(member, checkpoint, job, collector)
        verified = checkpoint.verify()
        return Indexed(
            model=replace(record, bytes_total=checkpoint.bytes_total, verified=verified),
            fingerprints=collector.fingerprints(),
            slots=collector.statistics(),
            bytes_read=checkpoint.bytes_read,
            seconds=time.monotonic() - start,
            linear=collector.linear_sketch(),
        )
    # One model's files must not end a run over thousands, whatever is wrong with them.
    except Exception as err:
        code, reason = refusal(err, member.record.id)
        if code in MISFITS and member.claims and not job.wanted.named_in(member.claims):
            return refused("other-base", f"names base {member.claims[0]!r}; {reason}")
        return refused(code, reason)
    finally:
        job.meter.closed(member.record.id)
        if checkpoint is not None:
            checkpoint.close()


NO_MEMORY = "not enough memory for one of its matrices"
TORCH_MEMORY = "DefaultCPUAllocator: can't allocate memory"
"""By which torch's RuntimeError is told from others."""


def refusal(err: Exception, id: str) -> tuple[str, str]:
    """Code and reason for what reading a model ran into."""
    if isinstance(err, ModelError):
        return err.code, err.reason
    if isinstance(err, BaseError):
        return "needs-base", str(err)
    if isinstance(err, MemoryError) or TORCH_MEMORY in str(err):
        return "internal", NO_MEMORY
    log.debug("defect while reading %s", id, exc_info=err)
    return "internal", f"{type(err).__name__} in {_place(err)}"


def _place(err: Exception) -> str:
    """Where the innermost of deltadex's own lines failed: an error's text may quote a file."""
    here = __name__.partition(".")[0]
    modules = [
        (frame.f_globals.get("__name__", ""), line)
        for frame, line in traceback.walk_tb(err.__traceback__)
    ]
    own = [(name, line) for name, line in modules if name.split(".")[0] == here]
    name, line = own[-1] if own else (here, 0)
    return f"{name}, line {line}"


def open_checkpoint(
    member: Member, plan: ReadPlan = WHOLE_TENSORS, session: HubSession | None = None
) -> Checkpoint:
    """The member's weight files, headers read, or a `ModelError`."""
    if member.hub is not None:
        return HubWeights(member.hub, plan, session=session).open()
    assert member.folder is not None
    if member.is_adapter:
        return open_adapter_weights(member.folder, given=member.given)
    return open_local(member.folder, given=member.given, whole=plan.whole)


def with_config(member: Member, session: HubSession | None = None) -> Member:
    """The member with its config, and the base that it names where the Hub's description has none;
    a Hub model's is fetched only when it is to be read."""
    model = member.hub
    name = "adapter_config.json" if member.is_adapter else "config.json"
    if model is None or (model.files is not None and name not in model.files):
        return member
    try:
        config = read_json(read_small_file(model, name, session=session), name=name)
    except ModelError as err:
        if err.code == "not-found":
            return member
        raise
    claims = member.claims
    if member.is_adapter and not claims:
        claims = distinct_texts([config.get("base_model_name_or_path")])
    return replace(member, config=config, claims=claims)
