"""What runs in the process that will be killed: real commands, and a trace of how far they came.

The trace is a file, a line an event: `start SECONDS`, `> PHASE`, `< PHASE`, `there ID`, `gone ID`
(each after the catalog has answered that it is done), `done N CODE BYTES` after a step: its number,
its exit code and how much has been printed by then, `end`.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import duckdb

from deltadex.cli import main
from deltadex.commands.command_line import EXIT_NOTHING_DONE
from deltadex.errors import DeltadexError
from deltadex.records import Indexed
from deltadex.search import prepare_search
from deltadex.store import Catalog

PREPARE = "@prepare"
"""A step that is no command: what a service does after a change, for every family."""

OPEN = "@open"
"""Another: the catalog is opened for writing, and closed."""

LOWERED: Mapping[tuple[str, str], float] = {
    ("indexer.run", "GROUP_S"): 0.01,
    ("store.derived.index", "PERSIST_FROM"): 4,
    ("store.derived.row_files", "AT_ONCE"): 2,
    ("store.derived.row_files", "SPARE_BYTES"): 0,
    ("search.neighbours", "SKETCH_FILE_MIN_MODELS"): 4,
}
"""For a small family to have the files that a large one has."""

CHECKPOINT_AT = "48KB"
"""DuckDB folds its log into the file every few models, which it else does every few thousand."""

SIGNALLED = (130, 143)
"""Exit codes after SIGINT and SIGTERM, as a shell has them."""

PHASES: Sequence[tuple[str, str, str]] = (
    ("store.session", "Access.__init__", "opening"),
    ("store.opening", "_make", "making"),
    ("store.opening", "migrate", "migrating"),
    ("store.sharing", "LocalSession.commit", "committing"),
    ("store.catalog", "Catalog.record_all", "recording"),
    ("store.catalog", "Catalog.remove", "removing"),
    ("store.catalog", "Catalog.close", "closing"),
    ("indexer.run", "fingerprint_member", "reading"),
    ("store.derived.index", "_save", "saving the index"),
    ("store.derived.row_files", "Rows.append", "writing sketches"),
    ("store.derived.row_files", "Rows.empty", "emptying sketches"),
    ("store.care.backup", "_fill", "copying"),
)


@contextmanager
def lowered() -> Iterator[None]:
    """Thresholds that a family of a dozen models passes."""
    before = {}
    for (module, name), value in LOWERED.items():
        room = import_module(f"deltadex.{module}")
        before[room, name] = getattr(room, name)
        setattr(room, name, value)
    try:
        yield
    finally:
        for (room, name), old in before.items():
            setattr(room, name, old)


class Trace:
    """Events, each on the disk's cache before the next thing happens."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def say(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())

    def around(self, function: Callable[..., Any], phase: str) -> Callable[..., Any]:
        """The function, its beginning and its end told."""

        @functools.wraps(function)
        def told(*args: Any, **kwargs: Any) -> Any:
            self.say(f"> {phase}")
            answer = function(*args, **kwargs)
            self._acknowledge(phase, args, answer)
            self.say(f"< {phase}")
            return answer

        return told

    def _acknowledge(self, phase: str, args: tuple[Any, ...], answer: Any) -> None:
        if phase == "recording":
            for outcome in args[1]:
                if isinstance(outcome, Indexed):
                    self.say(f"there {outcome.model.id}")
        elif phase == "removing":
            self.say(f"gone {answer.id}")


def work(
    steps: Sequence[Sequence[str]],
    cwd: Path,
    db: Path,
    trace_path: Path,
    output: Path,
    small_log: bool,
) -> None:
    """Do the steps one after another in this process; its output goes to a file.

    Signals act as on a terminal, also below a job runner that ignores them.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.chdir(cwd)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    trace = Trace(trace_path)
    _tell_phases(trace)
    if small_log:
        _keep_the_log_small()
    with lowered():
        trace.say(f"start {time.monotonic()}")
        code = 0
        for number, step in enumerate(steps):
            ended = _do(step, db)
            sys.stdout.flush()
            trace.say(f"done {number} {ended} {os.stat(output).st_size}")
            code = ended or code
            if code in SIGNALLED:
                _leave(code)
        trace.say("end")
    _leave(code)


def hold(db: Path, trace_path: Path) -> None:
    """Hold the catalog, and let others in; never ends."""
    with Catalog.open(db):
        Trace(trace_path).say("start")
        time.sleep(3600)


def watch(db: Path, trace_path: Path) -> None:
    """Say which models another process's catalog has, as a reader sees them; never ends."""
    trace, seen = Trace(trace_path), set[str]()
    note = db.with_name(db.name + ".holder")
    while True:
        time.sleep(0.002)
        if not note.exists():
            continue
        try:
            with Catalog.open(db, read_only=True, create=False) as catalog:
                while True:
                    ids = {row.id for row in catalog.models(status="indexed")}
                    for id in sorted(ids - seen):
                        trace.say(f"there {id}")
                    seen |= ids
                    time.sleep(0.005)
        except DeltadexError:
            continue


def _leave(code: int) -> NoReturn:
    """End without the other process's clean-up, which was forked along."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _do(step: Sequence[str], db: Path) -> int:
    """Do one step; its exit code."""
    if step[0] in (OPEN, PREPARE):
        try:
            with Catalog.open(db, create=False) as catalog:
                for base in catalog.bases() if step[0] == PREPARE else ():
                    prepare_search(catalog, base, catalog.find_recipe("sketch", base))
        except DeltadexError as err:
            print(f"Error: {err}", flush=True)
            return EXIT_NOTHING_DONE
        return 0
    try:
        main([*step, "--db", str(db)], standalone_mode=True)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def _tell_phases(trace: Trace) -> None:
    for module, name, phase in PHASES:
        owner: Any = import_module(f"deltadex.{module}")
        *outer, last = name.split(".")
        for part in outer:
            owner = getattr(owner, part)
        setattr(owner, last, trace.around(getattr(owner, last), phase))


def _keep_the_log_small() -> None:
    connect = duckdb.connect

    def connect_small(database: str, **options: Any) -> duckdb.DuckDBPyConnection:
        config = {**options.pop("config", {}), "checkpoint_threshold": CHECKPOINT_AT}
        return connect(database, config=config, **options)

    duckdb.connect = connect_small  # type: ignore[assignment]
