"""`deltadex doctor`: all checks of a catalog: its libraries and disk, the blocks, tables, indexes,
commits and rows of the DuckDB file, and the files beside it that nothing reads.

Files that are derived, and those of attached indexes, are compared with their checksums wherever
they are read."""

from __future__ import annotations

import platform
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Literal

from ...errors import DeltadexError, EmptyCatalog, StoreDamaged, StoreError, StoreFull
from ...results import JsonRecord, count, size
from ..catalog import Catalog
from ..commit_log import CommitLog, listed
from ..derived.footprint_bits import footprint_file
from ..derived.row_files import SPARE_BYTES
from ..files import abandoned, beside, derived_path, file_size, index_folder, lexicon_file
from ..model_rows import model_faults, short_id
from ..opening import SCHEMA_VERSION, is_file, read_metadata, refused_logs, schema
from ..session import Track, literal
from ..tables.recipes import recipe_tables

State = Literal["ok", "note", "repaired", "problem"]

MODELS_AT_ONCE = 16_384
"""Whose rows are compared by one query."""

ROWS_AT_ONCE = 4 * 122_880
"""Of a scan: one of DuckDB's row groups for each of four threads."""

REINDEX = "`deltadex rm` each of them, then index it again"


@dataclass(frozen=True, slots=True)
class CheckLine(JsonRecord):
    """One line of the report: what was examined, and advice where something is to be done."""

    check: str
    state: State
    detail: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The open catalog that is examined; whether what is derived is repaired, or only examined."""

    catalog: Catalog
    repairs: bool
    track: Track

    def tables(self) -> list[str]:
        """Names of the catalog's tables, sorted."""
        return self.catalog.column(
            "SELECT table_name FROM duckdb_tables() "
            "WHERE database_name = 'catalog' AND schema_name = 'main' ORDER BY 1"
        )


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


SHOWN_VERSIONS = ("deltadex", "duckdb", "faiss-cpu", "numpy", "torch", "huggingface_hub")
LEAST_FREE = 256 << 20
"""Bytes below which an indexing run may end at any model."""


def versions() -> CheckLine:
    """Of the libraries."""
    shown = [f"Python {platform.python_version()}"]
    for name in SHOWN_VERSIONS:
        try:
            shown.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            shown.append(f"no {name}")
    return CheckLine("versions", "ok", ", ".join(shown))


def space(path: Path) -> CheckLine:
    """What is free on the disk, against what the catalog and its derived files take."""
    folder = next((f for f in (path.parent, *path.parent.parents) if f.exists()), Path())
    free = shutil.disk_usage(folder).free
    catalog = file_size(path) + file_size(beside(path, ".wal"))
    derived = sum(map(file_size, index_folder(path).glob("*")))
    shown = f"catalog {size(catalog)}, derived files {size(derived)}, free {size(free)}"
    if free < LEAST_FREE:
        advice = "free some space before you index models"
        return CheckLine("space", "problem", f"{shown}: the disk is nearly full", advice)
    if free < catalog + SPARE_BYTES:
        advice = "write backups to another disk; the sketch file needs 1 GiB free"
        return CheckLine("space", "note", shown, advice)
    return CheckLine("space", "ok", shown)


COPY_TABLES = (
    "`deltadex backup` copies the tables and makes their indexes: put the copy in its place"
)

REPLACE_FILE = (
    "put a backup in its place, or move it away and run `deltadex index` again; "
    "keep the damaged file until that is done"
)

_TABLE = re.compile(r"^CREATE TABLE (\w+)", re.MULTILINE)


def check_tables(context: CheckContext) -> Iterator[CheckLine]:
    """Read everything once: DuckDB compares each block with its checksum."""
    present = context.tables()
    missing = [name for name in _TABLE.findall(schema()) if name not in present]
    if missing:
        yield CheckLine("tables", "problem", f"missing: {', '.join(missing)}", REPLACE_FILE)
    parts = []
    for table in present:
        [(last,)] = context.catalog.execute(f"SELECT coalesce(max(rowid), -1) FROM {quoted(table)}")
        parts += [(table, start) for start in range(0, last + 1, ROWS_AT_ONCE)]
    damaged: dict[str, str] = {}
    n_rows = 0
    for table, start in context.track(parts, "reading tables"):
        try:
            # the hash of a row needs every column of it
            [(rows, _)] = context.catalog.execute(
                f"SELECT count(*), bit_xor(hash(t)) FROM {quoted(table)} t "
                "WHERE t.rowid BETWEEN ? AND ?",
                [start, start + ROWS_AT_ONCE - 1],
            )
            n_rows += rows
        except StoreError as err:
            damaged.setdefault(table, _line(err))
    try:
        read_metadata(context.catalog.execute)
    except StoreError as err:
        damaged.setdefault("a description of a table", _line(err))
    for table, fault in damaged.items():
        yield CheckLine("tables", "problem", f"{table} cannot be read ({fault})", REPLACE_FILE)
    if not missing and not damaged:
        yield CheckLine(
            "tables", "ok", f"{count(len(present), 'table')}, {count(n_rows, 'row')} read"
        )


def _line(err: StoreError) -> str:
    return str(err.__cause__ or err).splitlines()[0][:200]


def check_commits(context: CheckContext) -> Iterator[CheckLine]:
    """Every commit that the commit log knows is in the catalog."""
    log = CommitLog(context.catalog.path)
    noted = log.read()
    # a commit is in the catalog before it is in its log
    [(catalog, n_commits)] = context.catalog.execute("SELECT catalog, commits FROM meta")
    if not noted.catalog and log.path.exists() and not log.read().catalog:
        detail = f"{log.path.name} cannot be read: whether a saved change is missing is not known"
        yield CheckLine("commits", "note", detail, "the next change of the catalog writes it again")
        return
    if not (losses := noted.losses_of(str(catalog), int(n_commits))):
        yield CheckLine("commits", "ok", f"{count(int(n_commits), 'commit')}, none lost")
        return
    forgotten = f"removing {log.path.name} forgets them"
    detail, advice = f"{losses}; none of them recorded a model", "label, remove or study again"
    if losses.models:
        names = ", ".join(id for _, id in losses.models)
        missing = count(losses.commits, "saved change")
        detail = f"missing from the catalog: {missing}; index again: {names}"
        advice = "`deltadex index` or `deltadex add`"
    yield CheckLine("commits", "problem", detail, f"{advice}; {forgotten}")


def check_models(context: CheckContext) -> Iterator[CheckLine]:
    """Every model has all its rows, and each of them is one that `index` writes."""
    recipes, present = recipe_tables(context.catalog), set(context.tables())
    recipes = {id: pair for id, pair in recipes.items() if pair[1] in present}
    ranges = context.catalog.execute(
        "SELECT min(key), max(key) FROM (SELECT key, (row_number() OVER (ORDER BY key) "
        f"- 1) // {MODELS_AT_ONCE} AS part FROM models) GROUP BY part ORDER BY 1"
    )
    wrong: dict[str, list[str]] = {}
    for keys in context.track(ranges, "checking"):
        for _, id, fault in model_faults(context.catalog, recipes, "{0} BETWEEN ? AND ?", keys):
            wrong.setdefault(fault, []).append(short_id(id))
    for fault, ids in sorted(wrong.items()):
        detail = f"{count(len(ids), 'model')} with rows out of range ({fault}): {listed(ids)}"
        yield CheckLine("models", "problem", detail, REINDEX)
    if not wrong:
        sql = "SELECT count(*) FROM models WHERE status = 'indexed'"
        [(n_models,)] = context.catalog.execute(sql)
        yield CheckLine("models", "ok", f"{count(n_models, 'indexed model')} with all rows")


INDEXED = (("families", "base"), ("models", "id"), ("models", "key"), ("recipes", "id"))
"""Tables and columns that have an index."""

LOOKED_UP_AT_ONCE = 1_500
"""Values of one lookup; DuckDB scans the table for more than 2,048."""


def check_table_indexes(context: CheckContext) -> Iterator[CheckLine]:
    """Every value of an indexed column is found by its index."""
    n_found = 0
    for table, column in INDEXED:
        values = context.catalog.column(f"SELECT DISTINCT {column} FROM {table}")
        starts = range(0, len(values), LOOKED_UP_AT_ONCE)
        for start in context.track(starts, f"looking up {table}.{column}"):
            some = values[start : start + LOOKED_UP_AT_ONCE]
            # an index is used for values that are written out
            wanted = ", ".join(map(literal, some))
            query = f"SELECT DISTINCT {column} FROM {table} WHERE {column} IN ({wanted})"
            try:
                n_found += (n := len(context.catalog.execute(query)))
                fault = f"it knows no row of {count(len(some) - n, 'value')}"
            except StoreError as err:
                n, fault = -1, _line(err)
            if n < len(some):
                detail = f"an index of {table}: {fault}"
                yield CheckLine("table indexes", "problem", detail, COPY_TABLES)
                return
    yield CheckLine("table indexes", "ok", f"{count(n_found, 'value')} found where they are")


LEFT_AFTER_S = 600.0
"""Since a file was last written: its process may run in another container."""

_DERIVED = re.compile(r"([0-9a-f]{16})\.[a-z]+")


# files that no family or process needs


def check_leftovers(context: CheckContext) -> Iterator[CheckLine]:
    """No file beside the catalog is of an unknown family, or of a process that ended."""
    folder = index_folder(context.catalog.path)
    unused = [*_of_no_family(context, folder), *_temporaries(folder, "")]
    unused += _temporaries(context.catalog.path.parent, context.catalog.path.name)
    others = [p for p in _temporaries(context.catalog.path.parent, "") if p not in unused]
    taken = size(sum(path.stat().st_size for path in unused))
    names = listed([path.name for path in unused])
    detail = f"{count(len(unused), 'unused file')}, {taken}: {names}"
    if not unused:
        yield CheckLine("leftovers", "ok", "none")
    elif context.repairs:
        yield _remove_files(unused, detail)
    else:
        advice = "`deltadex doctor` without --check removes them"
        yield CheckLine("leftovers", "problem", detail, advice)
    if others:
        names = listed([path.name for path in others])
        detail = f"incomplete files beside the catalog, perhaps of a backup: {names}"
        yield CheckLine("leftovers", "note", detail, "remove them if no process writes them")


def _of_no_family(context: CheckContext, folder: Path) -> list[Path]:
    """Files named after a family and a recipe that the catalog does not have together."""
    pairs = context.catalog.execute("SELECT DISTINCT m.base, r.id FROM models m, recipes r")
    known = {derived_path(context.catalog.path, base, recipe).name for base, recipe in pairs}
    for file_of in (footprint_file, lexicon_file):
        known |= {file_of(context.catalog.path, base).stem for base, _ in pairs}
    return [
        path
        for path in sorted(folder.glob("*"))
        if (match := _DERIVED.fullmatch(path.name)) and match[1] not in known
    ]


def _temporaries(folder: Path, name: str) -> list[Path]:
    """Of `abandoned` files those that were written some time ago."""
    old = []
    for path in abandoned(folder, name):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > LEFT_AFTER_S:
                old.append(path)
    return old


def _remove_files(unused: list[Path], detail: str) -> CheckLine:
    """Remove the files; a process that has one of them open keeps what it reads."""
    for path in unused:
        with suppress(OSError):
            path.unlink(missing_ok=True)
    if left := [path.name for path in unused if path.exists()]:
        detail = f"{detail}; not ours to remove: {listed(left)}"
        return CheckLine("leftovers", "problem", detail, "remove them as their owner")
    return CheckLine("leftovers", "repaired", f"{detail}: removed")


CACHE = "15%"
"""Of the memory: everything is read once."""

Check = Callable[[CheckContext], Iterator[CheckLine]]
CHECKS: dict[str, Check] = {
    "tables": check_tables,
    "table indexes": check_table_indexes,
    "commits": check_commits,
    "models": check_models,
    "leftovers": check_leftovers,
}
READS_ALL = ("tables", "models")
"""What a quick examination leaves out: the time of these grows with the bytes of the catalog."""

FIRST = ("tables", "table indexes")
"""Without these the others are not made."""


def examine(
    path: Path,
    *,
    repairs: bool = True,
    quick: bool = False,
    track: Track = lambda parts, _: iter(parts),
) -> Iterator[CheckLine]:
    """Findings about a catalog, its derived files, and its environment.

    Reads every block of the file once, a part at a time; other processes go on between two parts.

    Args:
        repairs: Remove files that nothing reads; set a log aside that DuckDB refuses. Nothing
            else is ever changed.
        quick: Leave out what reads all of the file.
        track: Shows the progress of the long checks.
    """
    yield from (versions(), space(path))
    catalog, opened, repairs = _opened(path, repairs)
    yield opened
    if catalog is None:
        return
    with catalog:
        context = CheckContext(catalog, repairs, track)
        for name, check in CHECKS.items():
            if quick and name in READS_ALL:
                continue
            is_damaged = False
            try:
                for finding in check(context):
                    is_damaged |= finding.state == "problem"
                    yield finding
            except StoreError as err:
                is_damaged = True
                yield _problem(err, name)
            if is_damaged and name in FIRST:
                advice = "repair that first"
                yield CheckLine("rest", "problem", "not checked: the catalog is damaged", advice)
                return
    if quick:
        advice = "`deltadex doctor` reads them"
        yield CheckLine("rest", "note", f"not checked: {', '.join(READS_ALL)}", advice)


def _problem(err: DeltadexError, check: str = "catalog") -> CheckLine:
    advice = REPLACE_FILE if isinstance(err, StoreDamaged) else ""
    return CheckLine(check, "problem", str(err), advice)


def _opened(path: Path, repairs: bool) -> tuple[Catalog | None, CheckLine, bool]:
    """The catalog, the finding about its opening, and whether it may be written."""
    problem = partial(CheckLine, "catalog", "problem")
    try:
        if not is_file(path):
            refusal = problem(f"{path}: no catalog there yet", "`deltadex index` makes one")
            return None, refusal, False
        if not path.stat().st_size:
            refusal = problem(f"{path}: an empty file", "remove it, or put a backup in its place")
            return None, refusal, False
        before = refused_logs(path)
        catalog, repairs = _open(path, repairs)
    except EmptyCatalog:
        detail = f"{path}: a database without a table, not a catalog"
        return None, problem(detail, "choose another --db"), False
    except DeltadexError as err:
        return None, _problem(err), False
    if new := [log.name for log in refused_logs(path) if log not in before]:
        detail = f"its log cannot be read: as of its last checkpoint; the log is {listed(new)} now"
        return catalog, CheckLine("catalog", "repaired", detail), repairs
    detail = f"opens{'' if repairs else ', read only'}, schema version {SCHEMA_VERSION}"
    return catalog, CheckLine("catalog", "ok", detail), repairs


def _open(path: Path, repairs: bool) -> tuple[Catalog, bool]:
    """The catalog, for writing where that is wanted and allowed."""
    only_read = partial(Catalog.open, path, create=False, read_only=True, cache=CACHE)
    if repairs:
        only_read().close()  # writing would make an empty database a catalog
        with suppress(StoreFull):
            return Catalog.open(path, create=False, cache=CACHE), True
    return only_read(repairs=False), False
