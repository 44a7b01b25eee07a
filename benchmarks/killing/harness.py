"""One process, one moment, `kill -9`; then everything is looked at, and the work goes on."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from .child import hold, watch, work
from .contents import Contents, Findings, check, read_contents
from .tasks import Prepared, Step, Task

PRELOADED = (
    "deltadex.cli",
    "deltadex.indexer",
    "deltadex.search",
    "deltadex.terminal",
    "faiss",
    "pyarrow",
    "torch",
)
LONGEST_S = 120.0
"""An undisturbed run takes a second; what takes this long hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """One kill and what came after.

    Attributes:
        share: The moment, as a share of an undisturbed run.
        phase: What the process was at.
        acknowledged: Changes that it had told of.
        is_unfinished: It was killed before its end.
        findings: Right after the kill, and after the work was continued.
        litter: Unfinished files that are left in the end.
    """

    task: str
    share: float
    phase: str
    acknowledged: int
    is_unfinished: bool
    findings: Findings
    litter: tuple[str, ...]

    def named(self, task: str) -> Death:
        """The same of a task of another name."""
        return replace(self, task=task)


@dataclass(slots=True)
class Told:
    """What a trace says.

    Attributes:
        done: Exit codes of the steps that have ended, by number, and how many bytes the process had
            printed by then.
    """

    there: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    phases: list[str] = field(default_factory=list)
    done: dict[int, tuple[int, int]] = field(default_factory=dict)
    has_ended: bool = False

    @classmethod
    def read(cls, path: Path) -> Told:
        return cls.of(path.read_text("utf-8").splitlines() if path.exists() else ())

    @classmethod
    def of(cls, lines: Iterable[str]) -> Told:
        """What these lines say."""
        told = cls()
        for line in lines:
            sign, _, rest = line.partition(" ")
            if sign == ">":
                told.phases.append(rest)
            elif sign == "<":
                told.phases.remove(rest)
            elif sign == "there":
                told.there.add(rest)
            elif sign == "gone":
                told.there.discard(rest)
                told.gone.add(rest)
            elif sign == "done":
                number, code, n_bytes = map(int, rest.split())
                told.done[number] = (code, n_bytes)
            elif sign == "end":
                told.has_ended = True
        return told

    @property
    def phase(self) -> str:
        if self.has_ended:
            return "after the end"
        return self.phases[-1] if self.phases else "between"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A process that has ended: its exit code, what it said, and which models it recorded."""

    code: int
    said: str
    there: set[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Undisturbed:
    """How a task ends when nobody dies.

    Attributes:
        whole: Every model that was there at some time.
        before, after: What is in the catalog; after, in its copy where the task copies.
    """

    seconds: float
    before: Contents | None
    after: Contents

    @property
    def whole(self) -> Contents:
        return self.after | self.before if self.before else self.after


class Nursery:
    """Starts processes that have everything imported already."""

    def __init__(self, library: Path | None = None) -> None:
        """`library`: One that every process loads before libc; only the first nursery has one."""
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload(list(PRELOADED))
        if library is not None:
            os.environ["LD_PRELOAD"] = str(library)
            try:
                forkserver.ensure_running()
            finally:
                del os.environ["LD_PRELOAD"]

    def start(self, task: Task, prepared: Prepared, db: Path, *, again: bool) -> ForkServerProcess:
        """The task's process, begun: its trace has said `start`."""
        steps = task.steps_in(db.parent, again=again)
        trace = trace_path(db)
        trace.unlink(missing_ok=True)
        output = db.with_suffix(".output")
        return self.begun(work, (steps, prepared.family, db, trace, output, task.small_log), trace)

    def again(self, task: Task, prepared: Prepared, db: Path) -> None:
        """Continue the task, to its end."""
        ended(self.start(task, prepared, db, again=True))

    def do(self, steps: Sequence[Step], family: Path, db: Path) -> Done:
        """Do steps to their end; where the catalog is may be full."""
        with tempfile.TemporaryDirectory() as folder:
            trace, output = Path(folder) / "trace", Path(folder) / "output"
            process = self.begun(work, (steps, family, db, trace, output, False), trace)
            ended(process)
            said = output.read_text("utf-8")
            return Done(code=process.exitcode or 0, said=said, there=Told.read(trace).there)

    def hold(self, db: Path) -> ForkServerProcess:
        """A process that holds the catalog."""
        trace = db.with_suffix(".holding")
        process = self.begun(hold, (db, trace), trace)
        trace.unlink()
        return process

    def watch(self, db: Path) -> ForkServerProcess:
        """A process that reads the catalog whenever another holds it."""
        process = self._context.Process(target=watch, args=(db, trace_path(db)))
        process.start()
        return process

    def begun(self, target: object, args: tuple[object, ...], trace: Path) -> ForkServerProcess:
        """A process that does something; its trace has said `start`."""
        process = self._context.Process(target=target, args=args)  # type: ignore[arg-type]
        process.start()
        given_up_at = time.monotonic() + LONGEST_S
        while not (trace.exists() and "start" in trace.read_text("utf-8")):
            if time.monotonic() > given_up_at or not process.is_alive():
                raise RuntimeError(f"a process did not start (exit {process.exitcode})")
            time.sleep(0.0005)
        return process


def trace_path(db: Path) -> Path:
    return db.with_suffix(".trace")


def read_trace(db: Path) -> Told:
    """What the last process of a catalog has told."""
    return Told.read(trace_path(db))


def ended(process: ForkServerProcess) -> None:
    """Wait for a process; it must not hang."""
    process.join(LONGEST_S)
    if process.is_alive():
        process.kill()
        raise RuntimeError(f"no end within {LONGEST_S:.0f} s")


def undisturbed(nursery: Nursery, prepared: Prepared, task: Task, folder: Path) -> Undisturbed:
    """The task in a new folder, to its end."""
    db = prepared.begin(task, folder)
    before = _contents_before(db) if task.start is not None else None
    process, holder = _started(nursery, prepared, task, db)
    start = time.monotonic()
    ended(process)
    seconds = time.monotonic() - start
    _end(holder)
    after = read_contents(result_of(task, db))
    shutil.rmtree(folder)
    return Undisturbed(seconds=seconds, before=before, after=after)


def kill_once(
    nursery: Nursery,
    prepared: Prepared,
    task: Task,
    expected: Undisturbed,
    folder: Path,
    share: float,
) -> Death:
    """Kill the task at `share` of its time, look, continue it, look again.

    Files are removed unless something is amiss.
    """
    db = prepared.begin(task, folder)
    process, holder = _started(nursery, prepared, task, db)
    time.sleep(share * expected.seconds)
    told = _kill(task, process, holder, db)
    findings = look(task, expected, db, told)
    if task.killed != "holder":
        nursery.again(task, prepared, db)
    return finish(task, expected, folder, share, told, findings)


def kill_cold(
    nursery: Nursery,
    prepared: Prepared,
    task: Task,
    expected: Undisturbed,
    folder: Path,
    share: float,
    seconds: float,
) -> Death:
    """The same with `python -m deltadex`, seen by a reader: what it has seen must stay."""
    db = prepared.begin(task, folder)
    watcher = nursery.watch(db)
    with subprocess.Popen(
        cold_command(task, db),
        cwd=prepared.family,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        time.sleep(share * seconds)
        is_unfinished = process.poll() is None
        process.kill()
    _end(watcher)
    told = read_trace(db)
    told.phases, told.has_ended = ["unseen (cold)"], not is_unfinished
    findings = look(task, expected, db, told)
    nursery.again(task, prepared, db)
    return finish(task, expected, folder, share, told, findings)


def cold_command(task: Task, db: Path) -> list[str]:
    """A task of one command, as a user types it."""
    (step,) = task.steps_in(db.parent)
    return [sys.executable, "-m", "deltadex", *step, "--db", str(db)]


def moments(n: int, rng: random.Random) -> list[float]:
    """Shares of a run, one from each of `n` equal parts, in random order."""
    shares = [(i + rng.random()) / n for i in range(n)]
    rng.shuffle(shares)
    return shares


def _started(
    nursery: Nursery, prepared: Prepared, task: Task, db: Path
) -> tuple[ForkServerProcess, ForkServerProcess | None]:
    """The task's process, begun, and the one that holds the catalog where it is another."""
    holder = nursery.hold(db) if task.killed != "worker" else None
    return nursery.start(task, prepared, db, again=False), holder


def _end(process: ForkServerProcess | None) -> None:
    if process is not None:
        process.kill()
        process.join()


def _kill(
    task: Task, process: ForkServerProcess, holder: ForkServerProcess | None, db: Path
) -> Told:
    """What the trace says once whoever is to die has died, and nobody is left."""
    if task.killed == "holder":
        assert holder is not None
        told = read_trace(db)
        holder.kill()
        ended(process)
        told.there |= read_trace(db).there
        return told
    _end(process)
    _end(holder)
    return Told.read(trace_path(db))


def look(task: Task, expected: Undisturbed, db: Path, told: Told) -> Findings:
    """What is amiss right after."""
    before = expected.before.ids if expected.before else set()
    there = (before - task.removable) | told.there
    findings = Findings()
    if db.exists():
        findings = check(db, expected.whole, there=there, gone=told.gone)
    elif there:
        findings.lost += sorted(there)
    if task.copies and result_of(task, db).exists():
        findings.extend(check(result_of(task, db), expected.whole, there=before, searched=False))
    return findings


def finish(
    task: Task, expected: Undisturbed, folder: Path, share: float, told: Told, findings: Findings
) -> Death:
    """After the work was continued."""
    result = result_of(task, folder / "c.duckdb")
    ids = expected.after.ids
    findings.extend(check(result, expected.after, there=ids, may_be=ids, searched=not task.copies))
    litter = tuple(sorted(p.name for p in folder.rglob("*.partial*")))
    if not findings:
        shutil.rmtree(folder)
    return Death(
        task=task.name,
        share=share,
        phase=told.phase,
        acknowledged=len(told.there) + len(told.gone),
        is_unfinished=not told.has_ended,
        findings=findings,
        litter=litter,
    )


def result_of(task: Task, db: Path) -> Path:
    return db.parent / "copy.duckdb" if task.copies else db


def _contents_before(db: Path) -> Contents:
    """Of a copy, for looking brings a catalog up to date."""
    copy = db.with_name("before.duckdb")
    shutil.copy(db, copy)
    try:
        return read_contents(copy)
    finally:
        copy.unlink()
