"""A run over a family: new and changed members are read and fingerprinted, outcomes recorded."""

from __future__ import annotations

import logging
import time
import traceback
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from ..errors import REASONS, BaseError, ModelError
from ..records import Indexed, ModelRecord, Outcome, Recipe, Refused
from ..store import Known
from .checkpoint import READ_AGAIN, Checkpoint
from .family import LabelMatches, Member, refuse_strangers, with_card_label
from .fingerprint import UpdateCollector
from .hub import HubWeights
from .job import ALL_BYTES, Job, WantedBytes, single_torch_thread, thread_pool
from .options import IndexOptions
from .updates import collect_adapter, collect_full

log = logging.getLogger(__name__)

MISFITS = ("wrong-base", "shape-mismatch", "layer-mismatch")
"""Codes that a model of another base can end with."""


@runtime_checkable
class Progress(Protocol):
    """What a run reports to as it goes; the command line draws it."""

    def begin(self, models: int, bytes_total: int) -> None: ...

    def outcome(self, outcome: Outcome) -> None: ...


@runtime_checkable
class ReadingProgress(Progress, Protocol):
    def reading(self, bytes_read: Callable[[], tuple[int, int]]) -> None:
        """What to call, at any moment and from any thread, for the bytes that have come and all
        that will have."""


@runtime_checkable
class ListingProgress(Progress, Protocol):
    def listing(self, members: Iterable[Member]) -> Iterable[Member]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """What a newer version of a family's recipe costs; the vectors of the older one stay."""

    earlier: str
    recipe: str
    models: int
    bytes_to_read: int
    catalog_bytes: int

    def __str__(self) -> str:
        return (
            f"{self.earlier} → {self.recipe}: reads {self.models} models again, about "
            f"{self.bytes_to_read / 1e6:,.1f} MB; the catalog grows by about "
            f"{self.catalog_bytes / 1e6:,.1f} MB, and the earlier fingerprints stay in it"
        )


@dataclass(slots=True)
class Report:
    """What a run did: indexed models are only counted, for there may be many. `guessed`: models
    indexed with a label guessed from their name; `base_bytes_read`: of a base on the Hub, in
    `bytes_read` too; `relabelled`: members that need not be read, with the labels that a file gives
    them."""

    base: str
    recipes: Sequence[Recipe]
    unchanged: int = 0
    indexed: int = 0
    refused: list[Refused] = field(default_factory=list)
    bytes_read: int = 0
    bytes_total: int = 0
    seconds: float = 0.0
    labels: LabelMatches | None = None
    guessed: int = 0
    upgrade: Upgrade | None = None
    wanted: WantedBytes = ALL_BYTES
    bytes_wanted: int = 0
    base_bytes_read: int = 0
    relabelled: list[ModelRecord] = field(default_factory=list)
    _start: float = field(default_factory=time.monotonic)

    def begin(
        self, fresh: Sequence[Member], progress: Progress | None, job: Job | None = None
    ) -> None:
        if progress is None:
            return
        sizes = {
            m.record.id: 0 if m.refusal else self.wanted.of(m.record.kind, m.stated_bytes)
            for m in fresh
        }
        progress.begin(len(fresh), sum(sizes.values()))
        if job is not None and isinstance(progress, ReadingProgress):
            job.meter.expect(sizes)
            progress.reading(job.bytes_read)

    def end(self, base_bytes: int) -> Report:
        self.base_bytes_read = base_bytes
        self.bytes_read += base_bytes
        self.seconds = time.monotonic() - self._start
        return self

    def unread(
        self, members: Iterable[Member], known: Mapping[str, Known], options: IndexOptions
    ) -> list[Member]:
        """The members whose files must be read; the others are counted. `known`: the family's
        models in the catalog."""
        recipes, fresh = {recipe.id for recipe in self.recipes}, []
        for member in members:
            before, signature = known.get(member.record.id), member.record.signature
            if before is None or not signature or before.signature != signature:
                fresh.append(_refuse_taken_id(member, before))
            elif options.verify and before.verified == "unverified":
                fresh.append(member)
            elif before.status == "indexed" and recipes <= set(before.recipes):
                self.unchanged += 1
                self.bytes_total += before.bytes_total
                self._relabel(member)
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
                self._relabel(member)
                reason = before.reason or ""
                self.add(Refused(model=member.record, code=before.code, reason=reason))
        return fresh

    def _relabel(self, member: Member) -> None:
        if member.record.label_source == "labels":
            self.relabelled.append(member.record)

    def add(self, outcome: Outcome, progress: Progress | None = None) -> None:
        """Count a model, be it indexed, refused now, or refused before and not read again."""
        if isinstance(outcome, Indexed):
            self.indexed += 1
            self.guessed += outcome.model.label_source == "name"
        else:
            insort(self.refused, outcome, key=lambda o: o.model.id)
        self.bytes_read += outcome.bytes_read
        self.bytes_total += outcome.model.bytes_total
        is_whole = isinstance(outcome, Indexed) and outcome.bytes_read > 0
        size = self.wanted.of(outcome.model.kind, outcome.model.bytes_total)
        self.bytes_wanted += size if is_whole else outcome.bytes_read
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
            "bytes_read": self.bytes_read,
            "bytes_total": self.bytes_total,
            "bytes_wanted": self.bytes_wanted,
            "base_bytes_read": self.base_bytes_read,
            "seconds": round(self.seconds, 3),
            "labels": self.labels.to_json() if self.labels else None,
            "labels_guessed": self.guessed,
            "upgrade": asdict(self.upgrade) if self.upgrade else None,
        }


def fingerprint_member(member: Member, job: Job, remote: HubWeights | None = None) -> Outcome:
    """The model's fingerprints and statistics, or why there are none; never raises for a model, but
    `Cancelled` if the run is being stopped. A refusal of a Hub model that a changed byte could
    explain is not believed at once: the second reading counts. `remote`: its weight files on the
    Hub, where they were looked up already. Peak: a tensor pair in float32 for each of the job's
    threads, and what the reader coalesces."""
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
        member = member.with_config(job.session)
        if member.is_adapter:
            member = refuse_strangers(member, job.wanted)
            if member.refusal is not None:
                raise member.refusal
        checkpoint = remote.open() if remote else member.checkpoint(job.plan, job.session)
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


def _refuse_taken_id(member: Member, before: Known | None) -> Member:
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
    job: Job,
    workers: int,
    by_hash: dict[str, str],
    copy: Callable[[ModelRecord], Indexed],
) -> Iterator[Outcome]:
    """Each member's outcome as soon as it is there, at most `workers` at work. `by_hash`: indexed
    models by the hash of their weights; `copy`: the outcome of a copy of one, which is not read."""

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
                    running.add(pool.submit(_work, member, job, by_hash))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield finish(future.result())
        except BaseException:
            job.session.cancelled.set()
            for future in running:
                future.cancel()
            raise


def _work(member: Member, job: Job, by_hash: Mapping[str, str]) -> Outcome | ModelRecord:
    """One member's outcome; of a Hub model whose bytes the catalog has, the record alone."""
    remote: HubWeights | None = None
    model = member.hub
    if model is not None and member.refusal is None:
        member = with_card_label(member, job.session)
        try:
            remote = HubWeights(model, job.plan, session=job.session)
            sha256 = remote.sha256()
        except Exception as err:
            job.meter.closed(member.record.id)
            code, reason = refusal(err, member.record.id)
            return Refused(model=member.record, code=code, reason=reason)
        member = replace(member, record=replace(member.record, content_sha256=sha256))
        original = by_hash.get(sha256) if sha256 else None
        # an adapter's ΔW depends on its config too, and its files are small
        if original is not None and original != member.record.id and not member.is_adapter:
            return replace(member.record, duplicate_of=original)
    return fingerprint_member(member, job, remote)
