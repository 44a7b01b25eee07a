"""A run over a family: members are read and fingerprinted, here or by a cluster's workers.

Outcomes are recorded as they come, or written as parts: a worker has a lease of some models at a
time, and each lease becomes a part.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
import signal
import socket
import sys
import threading
import time
import traceback
from bisect import insort
from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ..errors import REASONS, BaseError, DeltadexError, ModelError, RequestError, StoreDamaged
from ..options import Place
from ..records import (
    Fingerprint,
    Footprint,
    Indexed,
    ModelRecord,
    Outcome,
    Recipe,
    Refused,
    SlotStats,
)
from ..results import count
from ..store import Catalog, ModelRow, Part, PartFolder, commit_part, may_record
from .base import find_embedding, is_before_layers
from .checkpoint import FEW_BYTES, READ_AGAIN, Checkpoint, DerivedCheckpoint
from .family import Member, refuse_strangers, with_card_label
from .fingerprint import UpdateCollector
from .footprint import read_footprint
from .hub import HubSession, HubWeights, is_repo_id
from .job import IndexJob, WantedBytes, cpu_count, single_torch_thread, thread_pool
from .moved_layers import MAY_BE_MOVED, MovedModel, find_moved
from .options import IndexOptions
from .rounding import original_of
from .untrusted_text import shown
from .updates import collect_adapter, collect_full
from .weight_samples import form_of, layer_matrices

log = logging.getLogger(__name__)

MISFITS = ("wrong-base", "shape-mismatch", "layer-mismatch")
"""Codes that a model of another base can end with."""


@runtime_checkable
class Progress(Protocol):
    """What a run reports to as it goes; the command line draws it. One that has `listing` is given
    the members to pass on as they are listed. One that has `reading` is given what to call, at any
    moment and from any thread, for the bytes that have come and all that will have."""

    def begin(self, models: int, bytes_total: int) -> None: ...

    def outcome(self, outcome: Outcome) -> None: ...


@dataclass(slots=True)
class Report:
    """What a run did: indexed models are only counted, for there may be many. `guessed`: models
    indexed with a label guessed from their name; `base_bytes_read`: of a base on the Hub, in
    `bytes_read` too; `relabelled`: members that need not be read, with their new labels;
    `lacking`: members of which only the footprint is to be read; `unanswered`: those that were read
    without a lexicon; `partly_read`: the indexed models of which some layer matrices were not read,
    and what; `unlisted`: indexed models that the Hub does not list any more."""

    base: str
    recipes: Sequence[Recipe]
    unchanged: int = 0
    indexed: int = 0
    refused: list[Refused] = field(default_factory=list)
    bytes_read: int = 0
    bytes_total: int = 0
    seconds: float = 0.0
    labels: Mapping[str, object] | None = None
    guessed: int = 0
    wanted: WantedBytes = field(default_factory=WantedBytes)
    bytes_wanted: int = 0
    base_bytes_read: int = 0
    relabelled: list[ModelRecord] = field(default_factory=list)
    lacking: list[Member] = field(default_factory=list)
    unanswered: list[Member] = field(default_factory=list)
    partly_read: dict[str, str] = field(default_factory=dict)
    unlisted: list[str] = field(default_factory=list)
    _start: float = field(default_factory=time.monotonic)

    def begin(
        self, fresh: Sequence[Member], progress: Progress | None, job: IndexJob | None = None
    ) -> None:
        if progress is None:
            return
        sizes = {
            m.record.id: 0 if m.refusal else self.wanted.of(m.record.kind, m.stated_bytes)
            for m in fresh
        }
        progress.begin(len(fresh), sum(sizes.values()))
        if job is not None and (reading := getattr(progress, "reading", None)):
            job.meter.expect(sizes)
            reading(job.bytes_read)

    def end(self, base_bytes: int) -> Report:
        self.base_bytes_read = base_bytes
        self.bytes_read += base_bytes
        self.seconds = time.monotonic() - self._start
        return self

    def unread(
        self,
        members: Iterable[Member],
        known: Mapping[str, ModelRow],
        options: IndexOptions,
        has_footprint: Collection[str],
        answered: Collection[str],
    ) -> list[Member]:
        """The members whose files must be read; the others are counted, but for `unanswered`.
        `known`: the family's models in the catalog; `has_footprint`, `answered`: those of them that
        need no footprint, and no responses."""
        recipes, fresh = {recipe.id for recipe in self.recipes}, []
        for member in members:
            before, signature = known.get(member.record.id), member.record.signature
            if before is None or not signature or before.signature != signature:
                fresh.append(_refuse_taken_id(member, before))
            elif options.verify and before.verified == "unverified":
                fresh.append(member)
            elif before.status == "indexed" and recipes <= set(before.recipes):
                self._relabel(member, before)
                if member.record.id not in answered and member.refusal is None:
                    self.unanswered.append(member)
                else:
                    self.keep(member, before, has_footprint)
            elif (
                before.status == "indexed"
                or options.retry_failed
                or before.code is None
                or (
                    REASONS[before.code].transient
                    and (member.refusal is None or member.refusal.code != before.code)
                )
            ):
                fresh.append(member)
            else:
                self._relabel(member, before)
                reason = before.reason or ""
                self.add(Refused(model=member.record, code=before.code, reason=reason))
        return fresh

    def keep(self, member: Member, before: ModelRow, has_footprint: Collection[str]) -> None:
        """Count a member that was read before."""
        self.unchanged += 1
        self.bytes_total += before.bytes_total
        if member.record.id not in has_footprint and member.refusal is None:
            self.lacking.append(member)

    def _relabel(self, member: Member, before: ModelRow) -> None:
        """Note a label of a file, or of the card of a folder, which is no part of its signature."""
        is_edited = member.folder is not None and before.is_outdated_by(member.record)
        if member.record.label_source == "labels" or is_edited:
            self.relabelled.append(member.record)

    def add(self, outcome: Outcome, progress: Progress | None = None) -> None:
        """Count a model, be it indexed, refused now, or refused before and not read again."""
        if isinstance(outcome, Indexed):
            self.indexed += 1
            self.guessed += outcome.model.label_source == "name"
            if (note := outcome.model.partly_read) is not None:
                self.partly_read[outcome.model.id] = note
        else:
            insort(self.refused, outcome, key=lambda o: o.model.id)
        self.bytes_read += outcome.bytes_read
        self.bytes_total += outcome.model.bytes_total
        is_whole = isinstance(outcome, Indexed) and outcome.bytes_read > 0
        total = outcome.model.bytes_total
        part = min(outcome.bytes_read, total)  # of what is refused, or was not read
        self.bytes_wanted += self.wanted.of(outcome.model.kind, total) if is_whole else part
        if progress is not None:
            progress.outcome(outcome)

    def to_json(self) -> dict[str, object]:
        """The fixed keys of `deltadex index --json`, and a few more."""
        rows: dict[str, list[dict[str, str]]] = {"failed": [], "skipped": []}
        for one in self.refused:
            row = {"model": one.model.id, "code": one.code, "reason": one.reason}
            rows["skipped" if one.status == "skipped" else "failed"].append(row)
        return {
            "base": self.base,
            "recipe": self.recipes[0].name,
            "recipes": [r.id for r in self.recipes],
            "indexed": self.indexed,
            "skipped": self.unchanged + len(rows["skipped"]),
            "unchanged": self.unchanged,
            "failed": rows["failed"],
            "skipped_models": rows["skipped"],
            "partly_read": [{"model": m, "note": n} for m, n in sorted(self.partly_read.items())],
            "bytes_read": self.bytes_read,
            "bytes_total": self.bytes_total,
            "bytes_wanted": self.bytes_wanted,
            "base_bytes_read": self.base_bytes_read,
            "seconds": round(self.seconds, 3),
            "labels": self.labels,
            "labels_guessed": self.guessed,
            "unlisted": self.unlisted,
        }


def fingerprint_member(member: Member, job: IndexJob, remote: HubWeights | None = None) -> Outcome:
    """The model's fingerprints and statistics, or why there are none; never raises for a model, but
    `Cancelled` if the run is being stopped. A refusal of a Hub model that a changed byte could
    explain is not believed at once: the second reading counts. `remote`: its weight files on the
    Hub, where they were looked up already. Peak: a tensor pair in float32 for each of the job's
    threads, and what the reader coalesces."""
    first, moved = _read(member, job, remote), None
    if isinstance(first, Indexed):
        return first
    if first.code in MAY_BE_MOVED and not member.is_adapter and member.refusal is None:
        moved = find_moved(member, job)
    if moved is not None:
        log.info("%s: %s", member.record.id, moved.note or first.reason)
    elif member.hub is not None and first.code in READ_AGAIN:
        log.info("%s: %s; it is read once more", member.record.id, first.code)
    else:
        return first
    again = _read(member, job, None, moved)
    spent = first.bytes_read + again.bytes_read
    return replace(again, bytes_read=spent, seconds=first.seconds + again.seconds)


def _other_claim(member: Member, job: IndexJob) -> list[str]:
    """A note for a model whose files name another base on the Hub than its weights show."""
    claims = [claim for claim in member.claims if "/" in claim and is_repo_id(claim)]
    if not claims or job.wanted.named_in(member.claims):
        return []
    return [f"its files name {shown(claims[0])} as its base; its weights show {job.base.name}"]


def _read(
    member: Member, job: IndexJob, remote: HubWeights | None, moved: MovedModel | None = None
) -> Outcome:
    start = time.monotonic()
    checkpoint: Checkpoint | None = None

    def refused(code: str, reason: str) -> Refused:
        nonlocal checkpoint
        footprint = None
        # what else a listing refuses costs no request
        is_free = member.hub is None or checkpoint is not None or member.may_tell_words
        if job.footprints and is_free and code in READABLE_EMBEDDING and not member.is_adapter:
            checkpoint, footprint = _footprint_alone(member, checkpoint, job)
        if code == "quantized" and (original := original_of(member, job.originals)):
            reason = f"{reason}; {original}"
        total = checkpoint.bytes_total if checkpoint else member.record.bytes_total
        return Refused(
            model=replace(member.record, bytes_total=total),
            code=code,
            reason=reason,
            bytes_read=checkpoint.bytes_read if checkpoint else 0,
            seconds=time.monotonic() - start,
            footprint=footprint,
        )

    try:
        if member.refusal is not None:
            raise member.refusal
        member = member.with_config(job.session)
        if member.is_adapter:
            member = refuse_strangers(member, job.wanted)
            if member.refusal is not None:
                raise member.refusal
        checkpoint = member.checkpoint(job.plan, job.session, remote)
        job.meter.opened(member.record.id, checkpoint)
        lexicon = job.lexicon.get()
        collector = UpdateCollector(job.recipes, job.layout, lexicon)
        measure, take = collector.measure, collector.take
        footprint, record = None, member.record
        if job.footprints and job.parts is None and _embedding_is_first(member, checkpoint):
            footprint = read_footprint(member, checkpoint, job)
        if member.is_adapter:
            record = collect_adapter(member, checkpoint, job, lambda u: take(measure(u)))
        else:
            placed = None if moved is None else moved.placed
            unread = collect_full(member, checkpoint, job, measure, take, placed)
            how = checkpoint.note if isinstance(checkpoint, DerivedCheckpoint) else ""
            notes = [moved.note if moved else "", how, unread, *_other_claim(member, job)]
            form = form_of(checkpoint.tensors, layer_matrices(checkpoint.tensors, member.config))
            notes = [*record.notes, *filter(None, notes)]
            record = replace(record, notes=tuple(notes), **form)
        if job.footprints and footprint is None:
            footprint = read_footprint(member, checkpoint, job)
        if footprint is not None and lexicon is not None:
            answers = collector.responses().tobytes()
            footprint = replace(footprint, lexicon=lexicon.sha256, responses=answers)
        statistics = collector.statistics()
        if isinstance(checkpoint, DerivedCheckpoint) and checkpoint.is_rounded:
            _require_more_than_rounding(statistics)
        verified = checkpoint.verify()
        return Indexed(
            model=replace(record, bytes_total=checkpoint.bytes_total, verified=verified),
            fingerprints=_fingerprints(collector, record),
            slots=statistics,
            bytes_read=checkpoint.bytes_read,
            seconds=time.monotonic() - start,
            linear=collector.linear_sketch(),
            footprint=footprint,
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


def _embedding_is_first(member: Member, checkpoint: Checkpoint) -> bool:
    """Whether a remote file is read in order only if its embedding is read before its layers."""
    ref = None if member.is_adapter else find_embedding(checkpoint.tensors, member.config)
    is_remote = not checkpoint.concurrent
    return is_remote and ref is not None and is_before_layers(ref, checkpoint.tensors)


READABLE_EMBEDDING = frozenset(
    {"quantized", "unknown-architecture", "no-attention", "no-update", "layer-mismatch"}
)
"""Codes of models whose layers are not read, and whose input embedding may be."""

TELLING = frozenset({"exact", "tied", "frozen"})
"""Kinds that an embedding which owes the base's nothing never has."""


def _footprint_alone(
    member: Member, checkpoint: Checkpoint | None, job: IndexJob
) -> tuple[Checkpoint | None, Footprint | None]:
    """The footprint of a model that is refused; None where its embedding tells nothing either."""
    try:
        member = member if checkpoint else member.with_config(job.session)
        checkpoint = checkpoint or member.checkpoint(FEW_BYTES, job.session)
        footprint = read_footprint(member, checkpoint, job)
    # what is said of the model is why it was refused
    except Exception as err:
        log.debug("%s: its embedding is not read", member.record.id, exc_info=err)
        return checkpoint, None
    return checkpoint, footprint if footprint.kind in TELLING else None


def _fingerprints(collector: UpdateCollector, record: ModelRecord) -> tuple[Fingerprint, ...]:
    try:
        return collector.fingerprints()
    except ModelError as err:
        if err.code != "no-update" or record.partly_read is None:
            raise
        line = "every matrix that was read equals the base's, and the model"
        raise ModelError("not-read", f"{line} {record.partly_read}") from None


ROUNDING_ALONE = 1.3
"""|ΔW| over the expected rounding up to which a model in eight bits may be the base's copy."""


def _require_more_than_rounding(slots: Sequence[SlotStats]) -> None:
    update = math.hypot(*(slot.fro_norm for slot in slots))
    rounding = math.hypot(*(slot.noise_floor for slot in slots))
    if update <= ROUNDING_ALONE * rounding:
        line = f"its layers differ from the base's by {update:.3g}, their eight bits round by"
        raise ModelError("no-update", f"{line} {rounding:.3g}: nothing tells it from a copy")


NO_MEMORY = "not enough memory for one of its matrices"
TORCH_MEMORY = "DefaultCPUAllocator: can't allocate memory"
"""By which torch's RuntimeError is told from others."""


def refusal(err: Exception, id: str) -> tuple[str, str]:
    if isinstance(err, ModelError):
        return err.code, err.reason.removeprefix(f"{id}: ")
    if isinstance(err, BaseError):
        return "needs-base", str(err)
    if isinstance(err, MemoryError) or TORCH_MEMORY in str(err):
        return "internal", NO_MEMORY
    log.debug("defect while reading %s", id, exc_info=err)
    return "internal", f"{type(err).__name__} in {_place(err)}"


def _place(err: Exception) -> str:
    """Where the innermost of deltadex's own lines failed: an error's text may quote a file."""
    here = __name__.partition(".")[0]
    frames = traceback.walk_tb(err.__traceback__)
    modules = ((frame.f_globals.get("__name__", ""), line) for frame, line in frames)
    own = [(name, line) for name, line in modules if name.split(".")[0] == here]
    name, line = own[-1] if own else (here, 0)
    return f"{name}, line {line}"


def _refuse_taken_id(member: Member, before: ModelRow | None) -> Member:
    """The member, refused if its id belongs to another folder that is still there."""
    if before is None or member.folder is None or before.source in ("hub", str(member.folder)):
        return member
    if not Path(before.source).is_dir():
        return member
    reason = (
        f"the id is taken by {before.source}; index a common parent folder, "
        f"or `deltadex rm {member.record.id}` first"
    )
    return replace(member, refusal=ModelError("id-taken", reason))


def read_members(
    members: Sequence[Member],
    job: IndexJob,
    workers: int,
    by_hash: dict[str, str],
    copy: Callable[[ModelRecord], Indexed],
    known: Mapping[str, ModelRow],
    wait_s: float | None = None,
) -> Iterator[Outcome | None]:
    """Each member's outcome as soon as it is there, at most `workers` at work; None where for
    `wait_s` seconds there was none. `by_hash`: indexed models by the hash of their weights; `copy`:
    the outcome of a copy of one, or of a model of `known` whose card alone is new, which are not
    read."""

    def finish(done: Outcome | ModelRecord) -> Outcome:
        if isinstance(done, ModelRecord):
            job.meter.closed(done.id)
            return copy(done)
        if isinstance(done, Indexed) and done.model.content_sha256:
            by_hash.setdefault(done.model.content_sha256, done.model.id)
        return done

    queue = iter(members)
    running: set[Future[Outcome | ModelRecord]] = set()
    with single_torch_thread(), thread_pool(workers, "deltadex-model") as pool:
        try:
            while True:
                while len(running) < workers and (member := next(queue, None)) is not None:
                    running.add(pool.submit(_work, member, job, by_hash, known))
                if not running:
                    return
                done, running = wait(running, wait_s, return_when=FIRST_COMPLETED)
                if not done:
                    yield None
                for future in done:
                    yield finish(future.result())
        except BaseException:
            job.session.cancelled.set()
            for future in running:
                future.cancel()
            raise


def _work(
    member: Member, job: IndexJob, by_hash: Mapping[str, str], known: Mapping[str, ModelRow]
) -> Outcome | ModelRecord:
    """One member's outcome; of a Hub model whose bytes the catalog has, the record alone."""
    remote: HubWeights | None = None
    model = member.hub
    if model is not None and member.refusal is None:
        member = with_card_label(member, job.session)
        try:
            remote = HubWeights(model, job.plan, session=job.session)
            sha256 = remote.sha256()
            before = known.get(member.record.id)
            is_same = (
                before is not None
                and _holds(before, sha256, job)
                and _settings_stay(member, before.signature, job.session)
            )
        except Exception as err:
            job.meter.closed(member.record.id)
            code, reason = refusal(err, member.record.id)
            return Refused(model=member.record, code=code, reason=reason)
        member = replace(member, record=replace(member.record, content_sha256=sha256))
        if is_same:
            return replace(member.record, notes=(*member.record.notes, *_other_claim(member, job)))
        original = by_hash.get(sha256) if sha256 else None
        # an adapter's ΔW depends on its config too, and its files are small
        if original is not None and original != member.record.id and not member.is_adapter:
            return replace(member.record, duplicate_of=original)
    return fingerprint_member(member, job, remote)


def _holds(before: ModelRow, sha256: str | None, job: IndexJob) -> bool:
    """Whether the catalog has all that these weights would give."""
    return (
        before.status == "indexed"
        and before.content_sha256 == sha256 is not None
        and (before.verified != "unverified" or not job.verify)
        and {recipe.id for recipe in job.recipes} <= set(before.recipes)
    )


def _settings_stay(member: Member, commit: str, session: HubSession) -> bool:
    """Whether a model's config, which says how its weights are read, is that of an earlier commit;
    where that is not there any more, an adapter's may be another one."""
    model = member.hub
    assert model is not None
    commits = (model, replace(model, sha=commit, files=None))
    try:
        now, then = (
            replace(member, hub=each, config=None).with_config(session).config for each in commits
        )
    except ModelError:
        return False
    return now == then or (then is None and not member.is_adapter)


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


def read_lease(lease: Lease, job: IndexJob, workers: int = 1) -> Part:
    outcomes: dict[str, Outcome] = {}
    fetched = job.base.bytes_fetched

    def copy(model: ModelRecord) -> Indexed:
        original = outcomes[model.duplicate_of or ""]
        assert isinstance(original, Indexed)
        return replace(original, model=model.as_copy_of(original.model), bytes_read=0, seconds=0.0)

    for outcome in read_members(lease.members, job, workers, {}, copy, {}):
        if outcome is not None:
            outcomes[outcome.model.id] = outcome
    return part_of(lease, job, outcomes.values(), job.base.bytes_fetched - fetched)


def refused_part(lease: Lease, job: IndexJob, reason: str) -> Part:
    outcomes = [Refused(model=m.record, code="internal", reason=reason) for m in lease.members]
    return part_of(lease, job, outcomes, 0)


def part_of(lease: Lease, job: IndexJob, outcomes: Iterable[Outcome], base_bytes: int) -> Part:
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


@dataclass(slots=True)
class RayCluster:
    """Workers of a Ray cluster, actors that read one lease at a time; `tasks`: lease and worker by
    Ray's reference."""

    ray: Any
    idle: list[Any]
    tasks: dict[Any, tuple[Lease, Any]] = field(default_factory=dict)

    def submit(self, lease: Lease) -> None:
        worker = self.idle.pop()
        self.tasks[worker.write_part.remote(lease)] = lease, worker

    def ended(self) -> tuple[Lease, str | None, str]:
        """The next lease that ends, with the path of its part; else why there is none, "" where
        its worker ended with it. A `RequestError` if the cluster is gone, or what a worker says
        of all its work, such as a full disk."""
        ray, done = self.ray, list[Any]()
        while not done:
            if not ray.is_initialized():
                raise RequestError(
                    "the Ray cluster is gone; progress is saved: run the same command again"
                )
            done, _ = ray.wait(list(self.tasks), num_returns=1, timeout=POLL_S)
        (reference,) = done
        lease, worker = self.tasks.pop(reference)
        self.idle.append(worker)
        try:
            return lease, ray.get(reference), ""
        except ray.exceptions.RayTaskError as err:
            if isinstance(err.cause, DeltadexError):
                raise err.cause from None
            return lease, None, _line(err.cause or err)
        except ray.exceptions.RayError as err:
            log.info("a worker ended: %s", type(err).__name__)
            return lease, None, ""


@contextmanager
def opened_cluster(address: str, workers: int, job: IndexJob, parts: str) -> Iterator[RayCluster]:
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
            actor = ray.remote(num_cpus=1, max_restarts=-1)(LeaseReader)
            cluster = RayCluster(ray, [actor.remote(job, parts) for _ in range(n_workers)])
        except Exception as err:  # of Ray's own start, some have no other class
            raise RequestError(
                f"Ray at {address!r} does not start: {_line(err)}; run without --ray, or try again"
            ) from err
        # Ray's own messages would stand in a command's document
        with redirect_stdout(sys.stderr):
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


class LeaseReader:
    """Reads leases; an actor. All that it keeps between them is the opened base."""

    def __init__(self, job: IndexJob, parts: str) -> None:
        self._job = job
        job.session.contact.answered = True  # who gives the leases has listed the models
        self._folder = PartFolder(parts)

    def write_part(self, lease: Lease) -> str:
        """Write the part of a lease; returns its path from the folder."""
        return self._folder.write(read_lease(lease, self._job))


def _line(err: BaseException) -> str:
    text = str(err).strip().splitlines()
    return f"{type(err).__name__}: {text[0][:200]}" if text else type(err).__name__


TRIES = 8
"""Deaths of workers over a model until it is refused: one whose reading ends the process shall not
end it for ever. Models of one lease are leased one by one after the first."""


GROUP_S = 0.5
"""How long a model's outcome waits for others, to be recorded with them, before it is reported."""

SHED_EVERY = 128
"""Outcomes after which the catalog frees the memory of what was written."""


@dataclass(frozen=True, slots=True)
class IndexRun:
    """A run over members: what is new among them is fingerprinted here, into parts, or by a Ray
    cluster, by up to `workers` at once. On KeyboardInterrupt the models at work are dropped; those
    that ended stay."""

    members: Sequence[Member]
    job: IndexJob
    catalog: Catalog
    options: IndexOptions
    workers: int
    progress: Progress | None = None

    def report(self) -> Report:
        if self.options.ray is not None:
            return self._on_ray(self.options.ray)
        return self._here() if self.options.parts is None else self._into_parts(self.options.parts)

    def _here(self) -> Report:
        """Record outcomes as they come, each before it is reported; only the calling thread writes
        the catalog."""
        job, catalog, known = self.job, self.catalog, self.catalog.known(self.job.base.name)
        report, fresh = self._begun(known)
        catalog.relabel(job.base.name, report.relabelled)
        report.begin(fresh, self.progress, job)
        with closing(_recorded(fresh, job, catalog, known, self.workers)) as outcomes:
            for n_done, outcome in enumerate(outcomes, start=1):
                report.add(outcome, self.progress)
                if n_done % SHED_EVERY == 0:
                    catalog.shed_memory()
        self._complete(report)
        return report.end(job.base.bytes_fetched)

    def _into_parts(self, parts: Place) -> Report:
        """Write what is neither known nor in a part as parts, lease by lease: a kill loses the
        current lease. The catalog is only read."""
        job, folder = self.job, PartFolder(str(parts))
        known = self.catalog.known(job.base.name) | folder.known(job.base.name)
        report, fresh = self._begun(known)
        if report.relabelled:
            log.warning(
                "read already: %s; their parts keep the labels that they have: give --labels "
                "again to `deltadex index` on the merged catalog",
                count(len(report.relabelled), "model"),
            )
        report.begin(fresh, self.progress, job)
        for lease in leases(fresh, job.recipes):
            part = read_lease(lease, job, self.workers)
            folder.write(part)
            for outcome in part.outcomes:
                report.add(outcome, self.progress)
        return report.end(job.base.bytes_fetched)

    def _on_ray(self, address: str) -> Report:
        """Commit the parts that a cluster's workers write. Those that an earlier run left are
        committed first; a worker that ends costs its lease's work: the same call goes on."""
        catalog, parts = self.catalog, self.options.parts
        base, base_bytes, known = self.job.base.name, 0, catalog.known(self.job.base.name)
        folder = PartFolder(str(parts or f"{catalog.path}.parts"))
        commit_parts(catalog, folder, base, known)
        report, fresh = self._begun(known)
        catalog.relabel(base, report.relabelled)
        report.begin(fresh, self.progress)
        with closing(_parts(fresh, self.job, folder, address, self.options.workers)) as written:
            for part in written:
                commit_part(catalog, part, known=known)
                base_bytes += part.base_bytes
                for outcome in part.outcomes:
                    report.add(outcome, self.progress)
                catalog.shed_memory()
        self._complete(report)
        if parts is None:
            folder.remove_family(base)
        return report.end(base_bytes)

    def _begun(self, known: Mapping[str, ModelRow]) -> tuple[Report, list[Member]]:
        """A report of what is known, and the members that are to be read."""
        job, footprints = self.job, self.catalog.footprints
        report = Report(base=job.base.name, recipes=job.recipes, wanted=job.wanted_bytes)
        has_footprint = footprints.ids(job.base.name) if job.footprints else known
        answered = footprints.answered(job.base.name) if job.lexicon.may_be else known
        fresh = report.unread(self.members, known, self.options, has_footprint, answered)
        if report.unanswered and job.lexicon.get() is not None:
            return report, fresh + report.unanswered
        for member in report.unanswered:
            report.keep(member, known[member.record.id], has_footprint)
        return report, fresh

    def _complete(self, report: Report) -> None:
        """Read the footprints of models that were indexed without, embeddings alone; settle
        copies."""
        base, catalog = self.job.base.name, self.catalog
        if base not in catalog.bases():
            return
        if report.lacking:
            log.info("reading embeddings: %s", count(len(report.lacking), "indexed model"))
        with single_torch_thread():
            for member in report.lacking:
                self.job.base.stop_if_cancelled()
                checkpoint, footprint = _footprint_alone(member, None, self.job)
                if footprint is not None:
                    catalog.footprints.add(base, member.record.id, footprint)
                if checkpoint is not None:
                    report.bytes_read += checkpoint.bytes_read
                    checkpoint.close()
        catalog.settle_copies(base)


def _recorded(
    members: Sequence[Member],
    job: IndexJob,
    catalog: Catalog,
    known: Mapping[str, ModelRow],
    workers: int,
) -> Generator[Outcome, None, None]:
    """Outcomes once they are recorded: those that end within `GROUP_S` in one transaction. What has
    ended when the run is interrupted, or fails, is recorded too."""
    base, ids = job.base.name, [recipe.id for recipe in job.recipes]
    waiting: list[Outcome] = []
    recorded: list[Outcome] = []

    def record() -> None:
        chosen = [o for o in waiting if may_record(o, known.get(o.model.id))]
        if chosen:
            catalog.record_all(chosen)
        recorded.extend(waiting)
        waiting.clear()

    by_hash = {
        row.content_sha256: id
        for id, row in known.items()
        if row.content_sha256 and _holds(row, row.content_sha256, job)
    }

    def copy(model: ModelRecord) -> Indexed:
        record()
        return catalog.outcome_of_copy(base, model.duplicate_of or model.id, model, ids)

    since = 0.0
    try:
        for outcome in read_members(members, job, workers, by_hash, copy, known, GROUP_S):
            if outcome is not None:
                since = since if waiting else time.monotonic()
                waiting.append(outcome)
            if outcome is None or time.monotonic() >= since + GROUP_S:
                record()
            while recorded:
                yield recorded.pop(0)
    finally:
        record()
    yield from recorded


def commit_parts(
    catalog: Catalog, folder: PartFolder, base: str, known: dict[str, ModelRow]
) -> None:
    """Commit the parts of an earlier run; a damaged one is left, and its models are read again."""
    n_models = 0
    for path in folder.paths(base):
        try:
            n_models += len(commit_part(catalog, folder.read(path), known))
        except StoreDamaged as err:
            log.warning("%s; it counts as if it were not there: delete it", err)
    if n_models:
        log.info("in parts of an earlier run: %s", count(n_models, "model"))


def _parts(
    members: Sequence[Member], job: IndexJob, folder: PartFolder, address: str, workers: int
) -> Generator[Part, None, None]:
    """The part of each lease, as soon as it is written; what is refused unread needs no worker."""
    refused = [member for member in members if member.refusal is not None]
    for lease in leases(refused, job.recipes):
        yield read_lease(lease, job)
    others = [member for member in members if member.refusal is None]
    if queue := deque(leases(others, job.recipes)):
        with opened_cluster(address, workers, job, folder.url) as cluster:
            yield from _written(queue, job, folder, cluster)


def _written(
    queue: deque[Lease], job: IndexJob, folder: PartFolder, cluster: RayCluster
) -> Iterator[Part]:
    deaths: Counter[str] = Counter()
    while queue or cluster.tasks:
        while queue and cluster.idle:
            cluster.submit(queue.popleft())
        lease, path, reason = cluster.ended()
        if path is not None:
            # its worker reads on while the part is committed
            if queue:
                cluster.submit(queue.popleft())
            yield folder.read(path)
        elif reason:
            yield refused_part(lease, job, reason)
        elif again := _again(lease, job.recipes, deaths):
            queue.extendleft(reversed(again))
        else:
            yield refused_part(lease, job, f"its reading ended {TRIES} workers")


def _again(lease: Lease, recipes: Sequence[Recipe], deaths: Counter[str]) -> list[Lease]:
    """What is given out again of a lease whose worker ended: its models one by one."""
    deaths[lease.id] += 1
    if len(lease.members) > 1:
        return [Lease.of([member], recipes) for member in lease.members]
    return [lease] if deaths[lease.id] < TRIES else []
