"""What every check of the doctor is given and returns; checks of what a catalog depends on, and of
the DuckDB file: blocks, tables, indexes, views, keys, recipes, vectors, references."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from ...errors import StoreError
from ...records import Recipe
from ...results import JsonRecord, size
from ..catalog import Catalog
from ..files import file_size, index_folder
from ..model_rows import (
    UNIT_TOLERANCE,
    model_faults,
    short_id,
)
from ..opening import find_losses, log_path, read_metadata, schema
from ..remote import join
from ..session import Session, literal
from ..sharing import CommitLog, holder_path, listed, read_holder
from ..tables.footprints import FOOTPRINT_COLUMNS, footprint_of
from ..tables.outcomes import BESIDE, refresh_view
from ..tables.recipes import tables
from ..tables.signatures import run_bytes
from .backup import manifest_path, read_backup_manifest

Track = Callable[[Sequence[tuple[str, int, int]], str], Iterator[tuple[str, int, int]]]
"""Gives the same parts, and shows the progress of the named work."""

State = Literal["ok", "note", "repaired", "problem"]

MODELS_AT_ONCE = 16_384
"""Whose rows are compared by one query."""

ROWS_AT_ONCE = 4 * 122_880
"""Of a scan: one of DuckDB's row groups for each of four threads."""

REINDEX = "`deltadex rm` each of them, then index it again"

RUN_REPAIR = "`deltadex doctor` without --check repairs it"

RowRange = tuple[str, int, int]
"""A table, and the first and the last number of some of its rows."""


@dataclass(frozen=True, slots=True)
class Finding(JsonRecord):
    """One line of the report: what was examined, and advice where something is to be done."""

    check: str
    state: State
    detail: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The open catalog that is examined, in a session of its own; whether what is derived is
    repaired, or only examined."""

    catalog: Catalog
    session: Session
    repairs: bool
    track: Track

    def select(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows that a statement gives."""
        return self.session.execute(sql, list(values))

    def n_commits(self) -> int:
        [(commits,)] = self.select("SELECT commits FROM meta")
        return int(commits)

    def tables(self) -> list[str]:
        """Names of the catalog's tables, sorted."""
        rows = self.select(
            "SELECT table_name FROM duckdb_tables() "
            "WHERE database_name = 'catalog' AND schema_name = 'main' ORDER BY 1"
        )
        return [str(name) for (name,) in rows]

    def parts(self, table: str) -> list[RowRange]:
        """All rows of a table, in parts."""
        [(last,)] = self.select(f"SELECT coalesce(max(rowid), -1) FROM {quoted(table)}")
        starts = range(0, int(last) + 1, ROWS_AT_ONCE)
        return [(table, start, start + ROWS_AT_ONCE - 1) for start in starts]


def counted(n: int, noun: str) -> str:
    """`1 model`, `2 models`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


SHOWN_VERSIONS = ("deltadex", "duckdb", "faiss-cpu", "numpy", "torch", "huggingface_hub")
THREADED = ("numpy", "faiss", "torch")
RUNTIMES = ("libgomp", "libiomp", "libomp")
THREAD_SETTINGS = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "KMP_DUPLICATE_LIB_OK", "MKL_NUM_THREADS")
LEAST_FREE = 256 << 20
"""Bytes below which an indexing run may end at any model."""

SKETCH_FILE_FREE = 1 << 30
"""Bytes that stay free where a sketch file is written."""


def versions() -> Finding:
    """The libraries' versions, against those that deltadex requires."""
    shown = [f"Python {platform.python_version()}"]
    for name in SHOWN_VERSIONS:
        version = _version(name)
        shown.append(f"{name} {version}" if version else f"no {name}")
    if wrong := _unmet_requirements():
        detail = f"other versions than deltadex is made for: {', '.join(wrong)}"
        return Finding("versions", "problem", detail, "run: pip install --upgrade deltadex")
    return Finding("versions", "ok", ", ".join(shown))


def _unmet_requirements() -> list[str]:
    """`name version (required)` of required libraries of another version; none where deltadex
    runs without having been installed."""
    from packaging.requirements import Requirement

    requirements, wrong = [], []
    with suppress(metadata.PackageNotFoundError):
        requirements = [Requirement(line) for line in metadata.requires("deltadex") or ()]
    for requirement in requirements:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        version = _version(requirement.name)
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{requirement.name} {version or 'missing'} ({requirement.specifier})")
    return wrong


def _version(name: str) -> str | None:
    """Of an installed package, by its own name or its module's."""
    try:
        return metadata.version({"faiss": "faiss-cpu"}.get(name, name))
    except metadata.PackageNotFoundError:
        return None


def threads() -> Finding:
    """Which OpenMP runtimes are loaded together, and how many threads they have."""
    from threadpoolctl import threadpool_info

    for name in THREADED:
        if name not in sys.modules and _version(name) and not _has_runtime(name):
            import_module(name)
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "openmp"]
    names = sorted({str(pool["prefix"]) for pool in pools})
    n_threads = max((int(pool["num_threads"]) for pool in pools), default=1)
    settings = [f"{name}={os.environ[name]}" for name in THREAD_SETTINGS if name in os.environ]
    shown = ", ".join([counted(n_threads, "thread"), f"OpenMP: {' + '.join(names)}", *settings])
    if {"libomp", "libiomp"} <= set(names):
        detail = f"{shown}: LLVM's and Intel's OpenMP in one process may hang or crash"
        advice = "install faiss, torch and numpy from one source, all by pip or all by conda"
        return Finding("threads", "problem", detail, advice)
    if len(pools) > 1 and sys.platform == "darwin":
        detail = f"{shown}, loaded {len(pools)} times: torch and faiss may crash on macOS"
        return Finding("threads", "problem", detail, "set OMP_NUM_THREADS=1")
    if n_threads > (cores := os.cpu_count() or 1):
        advice = f"set OMP_NUM_THREADS={cores}"
        return Finding("threads", "note", f"{shown} on {counted(cores, 'core')}: slow", advice)
    return Finding("threads", "ok", shown)


def _has_runtime(name: str) -> bool:
    """Load the OpenMP runtime that a library has in its folder, or else its own shared object: to
    import torch would take most of a doctor's time. False where there is none."""
    spec = find_spec(name)
    for folder in (spec and spec.submodule_search_locations) or ():
        for prefix in (*RUNTIMES, f"lib{name}_cpu"):
            for path in Path(folder, "lib").glob(f"{prefix}*"):
                with suppress(OSError):
                    ctypes.CDLL(str(path))
                    return True
    return False


def space(path: Path) -> Finding:
    """What is free on the disk, against what the catalog and its derived files take."""
    folder = next((f for f in (path.parent, *path.parent.parents) if f.exists()), Path())
    free = shutil.disk_usage(folder).free
    catalog = file_size(path) + file_size(log_path(path))
    derived = sum(map(file_size, index_folder(path).glob("*")))
    shown = f"catalog {size(catalog)}, derived files {size(derived)}, free {size(free)}"
    if free < LEAST_FREE:
        advice = "free some space before you index models"
        return Finding("space", "problem", f"{shown}: the disk is nearly full", advice)
    if free < catalog + SKETCH_FILE_FREE:
        advice = "write backups to another disk; the sketch file needs 1 GiB free"
        return Finding("space", "note", shown, advice)
    return Finding("space", "ok", shown)


def check_holder(path: Path) -> Callable[[], Finding]:
    """Look at the holder file beside a catalog before that is opened; gives the finding once it was
    opened, or could not be."""
    content, note = _holder_file(path), read_holder(path)
    guest = join(path) if note is not None else None
    if guest is not None:
        guest.close()

    def finding() -> Finding:
        if note is not None and guest is not None:
            detail = f"process {note.pid} holds it and serves other processes"
            return Finding("holder", "ok", detail)
        if content is None:
            return Finding("holder", "ok", "no process holds it")
        owner = f"process {note.pid}" if note else "another machine, or damaged"
        detail = f"holder file of {owner}, which does not answer"
        if _holder_file(path) != content:
            return Finding("holder", "repaired", f"{detail}: removed")
        return Finding("holder", "note", f"{detail}: the next command that writes removes it")

    return finding


def _holder_file(path: Path) -> bytes | None:
    try:
        return holder_path(path).read_bytes()
    except OSError:
        return None


_SHA256 = (
    "import hashlib, sys; file = open(sys.argv[1], 'rb'); "
    "print(hashlib.file_digest(file, 'sha256').hexdigest())"
)


def _sha256(path: Path, track: Track) -> str:
    """SHA-256 of a file, by a process of its own: a process that closes a file loses all its locks
    on it, DuckDB's too (POSIX)."""
    command = [sys.executable, "-c", _SHA256, str(path.absolute())]
    for _ in track([("", 0, file_size(path))], f"reading {path.name}"):
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError((done.stderr.strip().splitlines() or ["not read"])[-1])
    return done.stdout.strip()


ANOTHER_COPY = "take another copy of the backup; keep this one until that is done"


def check_manifest(path: Path, track: Track) -> Callable[[CheckContext | None], Finding] | None:
    """Compare a file with its manifest before it is opened; gives the finding once the catalog was
    opened (None: it could not be). None without a manifest."""
    is_same = False
    try:
        manifest = read_backup_manifest(path)
        if manifest is None:
            return None
        is_same = _sha256(path, track) == manifest.sha256
    except (ValueError, OSError):
        manifest = None

    def finding(context: CheckContext | None) -> Finding:
        if manifest is None:
            detail = f"{manifest_path(path).name} cannot be read, or its file cannot"
            return Finding("manifest", "problem", detail, ANOTHER_COPY)
        of_then = f"the backup of {manifest.made_at}"
        if is_same:
            models = counted(manifest.models, "model")
            return Finding("manifest", "ok", f"{of_then}: {models}, SHA-256 as written")
        if context is not None and context.n_commits() > manifest.commits:
            return Finding("manifest", "note", f"{of_then}, changed since by deltadex")
        detail = f"not {of_then}: its SHA-256 is another"
        return Finding("manifest", "problem", detail, ANOTHER_COPY)

    return finding


COPY_TABLES = (
    "`deltadex backup` copies the tables and makes their indexes: put the copy in its place"
)

REPLACE_FILE = (
    "put a backup in its place, or move it away and run `deltadex index` again; "
    "keep the damaged file until that is done"
)

_TABLE = re.compile(r"^CREATE TABLE (\w+)", re.MULTILINE)
_VIEW = re.compile(r"(^CREATE VIEW (\w+) AS\n.*?;$)", re.MULTILINE | re.DOTALL)


def check_tables(context: CheckContext) -> Iterator[Finding]:
    """Read everything once: DuckDB compares each block with its checksum."""
    present = context.tables()
    missing = [name for name in _TABLE.findall(schema()) if name not in present]
    if missing:
        yield Finding("tables", "problem", f"missing: {', '.join(missing)}", REPLACE_FILE)
    parts = [part for table in present for part in context.parts(table)]
    damaged: dict[str, str] = {}
    n_rows = 0
    for table, first, last in context.track(parts, "reading tables"):
        try:
            # the hash of a row needs every column of it
            [(rows, _)] = context.select(
                f"SELECT count(*), bit_xor(hash(t)) FROM {quoted(table)} t "
                "WHERE t.rowid BETWEEN ? AND ?",
                first,
                last,
            )
            n_rows += rows
        except StoreError as err:
            damaged.setdefault(table, _line(err))
    try:
        read_metadata(context.session.execute)
    except StoreError as err:
        damaged.setdefault("a description of a table", _line(err))
    for table, fault in damaged.items():
        yield Finding("tables", "problem", f"{table} cannot be read ({fault})", REPLACE_FILE)
    if not missing and not damaged:
        yield Finding("tables", "ok", f"{counted(len(present), 'table')}, {n_rows} rows read")


def _line(err: StoreError) -> str:
    return str(err.__cause__ or err).splitlines()[0][:200]


def check_commits(context: CheckContext) -> Iterator[Finding]:
    """Every commit that the commit log knows is in the catalog."""
    path = context.catalog.path
    losses = find_losses(context.session, path)
    forgotten = f"removing {CommitLog(path).path.name} forgets them"
    if not losses:
        yield Finding("commits", "ok", f"all {context.n_commits()} of them")
        return
    detail, advice = f"{losses}; none of them recorded a model", "label, remove or study again"
    if losses.models:
        names = ", ".join(id for _, id in losses.models)
        missing = counted(losses.commits, "saved change")
        detail = f"missing from the catalog: {missing}; index again: {names}"
        advice = "`deltadex index` or `deltadex add`"
    yield Finding("commits", "problem", detail, f"{advice}; {forgotten}")


def check_recipes(context: CheckContext) -> Iterator[Finding]:
    """Each recipe has the identity that its id states, and its table."""
    columns = "id, name, rank, dim, seed, version, params, vectors"
    recipes = context.select(f"SELECT {columns} FROM recipes")
    sql = "SELECT table_name, data_type FROM duckdb_columns() WHERE database_name = 'catalog'"
    types = dict(context.select(f"{sql} AND column_name = 'vector'"))
    faults: dict[str, str] = {}
    for id, *settings, table in recipes:
        if types.get(table) != f"FLOAT[{settings[2]}]":
            faults[id] = f"{table} does not hold its vectors as FLOAT[{settings[2]}]"
        elif _identity(*settings) != id:
            faults[id] = "its settings do not match its id"
    advice = "restore a backup: its vectors cannot be told from those of other recipes"
    for id, fault in faults.items():
        yield Finding("recipes", "problem", f"{id}: {fault}", advice)
    known = {row[-1] for row in recipes}
    lone = [t for t in context.tables() if t.startswith("vectors_") and t not in known]
    if lone:
        advice = "nothing reads them; with DuckDB: " + " ".join(f"DROP TABLE {t};" for t in lone)
        yield Finding("recipes", "problem", f"vectors of no recipe: {', '.join(lone)}", advice)
    elif not faults:
        yield Finding("recipes", "ok", counted(len(recipes), "recipe"))


def _identity(name: str, rank: int, dim: int, seed: int, version: int, params: str) -> str | None:
    """The id of a recipe of these settings; None where they cannot be read."""
    try:
        pairs = tuple((str(key), str(value)) for key, value in json.loads(params))
    except (ValueError, TypeError):
        return None
    return Recipe(name=name, rank=rank, dim=dim, seed=seed, version=version, params=pairs).id


def check_views(context: CheckContext) -> Iterator[Finding]:
    """Every view can be read; else all are made again from the schema."""
    made = _VIEW.findall(schema())
    has_vectors = bool(tables(context.session))
    wanted = [name for _, name in made] + ["fingerprints"] * has_vectors
    broken = [name for name in wanted if not _is_readable(context, name)]
    names = ", ".join(broken)
    if not broken:
        yield Finding("views", "ok", counted(len(wanted), "view"))
    elif not context.repairs:
        yield Finding("views", "problem", f"missing or unreadable: {names}", RUN_REPAIR)
    else:
        for sql, _ in made:
            replacing = sql.replace("VIEW", "OR REPLACE VIEW", 1)
            context.session.write(lambda s, sql=replacing: s.execute(sql))  # type: ignore[misc]
        if has_vectors:
            context.session.write(refresh_view)
        yield Finding("views", "repaired", f"made again: {names}")


def _is_readable(context: CheckContext, view: str) -> bool:
    with suppress(StoreError):
        context.select(f"SELECT * FROM {quoted(view)} LIMIT 0")
        return True
    return False


def check_keys(context: CheckContext) -> Iterator[Finding]:
    """A model has one key and one row, and the next key is above all keys."""
    duplicates = context.select(
        "SELECT id, count(*) OVER () FROM models GROUP BY base, id HAVING count(*) > 1 LIMIT 3"
    )
    if duplicates:
        names = listed([str(id) for id, _ in duplicates], duplicates[0][1])
        yield Finding("keys", "problem", f"stored twice: {names}", REINDEX)
    [(last,)] = context.select("SELECT coalesce(max(key), 0) FROM models")
    [(following,)] = context.select(
        "SELECT max(coalesce(last_value + increment_by, start_value)) FROM duckdb_sequences() "
        "WHERE database_name = 'catalog' AND sequence_name = 'model_keys'"
    )
    if following is not None and following > last:
        if not duplicates:
            yield Finding("keys", "ok", f"the next key, {following}, is above all keys")
    elif context.repairs:
        sql = f"CREATE OR REPLACE SEQUENCE model_keys START {last + 1}"
        context.session.write(lambda s: s.execute(sql))
        yield Finding("keys", "repaired", f"new keys begin at {last + 1}, above all keys")
    else:
        detail = f"the next key, {following}, is not above the last, {last}"
        yield Finding("keys", "problem", detail, RUN_REPAIR)


def check_models(context: CheckContext) -> Iterator[Finding]:
    """Every model has all its rows, and each of them is one that `index` writes."""
    stored, present = dict(tables(context.session)), set(context.tables())
    recipes = context.catalog.recipes().items()
    of_recipes = {id: (recipe, stored[id]) for id, recipe in recipes if stored[id] in present}
    ranges = context.select(
        "SELECT 'models', min(key), max(key) FROM (SELECT key, (row_number() OVER (ORDER BY key) "
        f"- 1) // {MODELS_AT_ONCE} AS part FROM models) GROUP BY part ORDER BY 2"
    )
    wrong: dict[str, list[str]] = {}
    for _, first, last in context.track([(n, int(a), int(b)) for n, a, b in ranges], "checking"):
        sql, values = model_faults(of_recipes, "{0} BETWEEN ? AND ?", [first, last])
        query = f"SELECT m.id, fault FROM ({sql}) f(key, fault) JOIN models m USING (key)"
        for id, fault in context.session.execute(f"{query} ORDER BY 1", values):
            wrong.setdefault(fault, []).append(short_id(id))
    for fault, ids in sorted(wrong.items()):
        detail = f"{counted(len(ids), 'model')} with rows out of range ({fault}): {listed(ids)}"
        yield Finding("models", "problem", detail, REINDEX)
    if not wrong:
        [(n_models,)] = context.select("SELECT count(*) FROM models WHERE status = 'indexed'")
        yield Finding("models", "ok", f"{counted(n_models, 'indexed model')} with all their rows")


def check_footprints(context: CheckContext) -> Iterator[Finding]:
    """Every footprint can be read, and every tokenizer that one is of is there."""
    wrong = []
    columns = ", ".join(f"f.{name}" for name in FOOTPRINT_COLUMNS)
    rows = context.select(
        f"SELECT coalesce(m.id, '(no model)'), {columns} FROM footprints f "
        "LEFT JOIN models m ON m.key = f.model ORDER BY 1"
    )
    for id, *values in rows:
        try:
            footprint_of(**dict(zip(FOOTPRINT_COLUMNS, values, strict=True)))
        except ValueError:
            wrong.append(str(id))
    missing = context.select(
        "SELECT DISTINCT tokenizer FROM (SELECT tokenizer FROM footprints UNION "
        "SELECT lexicon FROM footprints UNION SELECT tokenizer FROM families) "
        "WHERE tokenizer IS NOT NULL "
        "AND tokenizer NOT IN (SELECT sha256 FROM tokenizers) ORDER BY 1"
    )
    if wrong:
        names = listed([short_id(id) for id in wrong])
        detail = f"{counted(len(wrong), 'model')} with a damaged footprint: {names}"
        yield Finding("footprints", "problem", detail, REINDEX)
    if missing:
        detail = f"{counted(len(missing), 'tokenizer')} of footprints not there"
        yield Finding("footprints", "problem", detail, REINDEX)
    if not wrong and not missing:
        yield Finding("footprints", "ok", f"footprints of {counted(len(rows), 'model')}")


def check_data_sets(context: CheckContext) -> Iterator[Finding]:
    """Every kept data set has sketches and a finite vector of unit length, and one row."""
    wrong = context.select(
        "SELECT d.name FROM data_sets d LEFT JOIN data_sketches s "
        "ON s.base = d.base AND s.name = d.name AND s.part = 'whole' "
        "GROUP BY d.base, d.name HAVING count(DISTINCT d.rowid) <> 1 OR count(s.name) = 0 OR "
        "NOT bool_and(coalesce(abs(sqrt(list_sum(list_transform(d.vector, lambda x: x * x))) - 1) "
        f"<= {UNIT_TOLERANCE} AND isfinite(d.norm), false)) "
        "UNION SELECT DISTINCT s.name FROM data_sketches s ANTI JOIN data_sets d "
        "ON s.base = d.base AND s.name = d.name ORDER BY 1"
    )
    if wrong:
        names = listed([str(name) for (name,) in wrong])
        detail = f"{counted(len(wrong), 'data set')} damaged: {names}"
        advice = "`deltadex data rm` each of them, then keep it again"
        yield Finding("data sets", "problem", detail, advice)
        return
    [(n_kept,)] = context.select("SELECT count(*) FROM data_sets")
    yield Finding("data sets", "ok", counted(n_kept, "kept data set"))


def check_signatures(context: CheckContext) -> Iterator[Finding]:
    """Every known base has one signature, whose runs have the length that its list says."""
    rows = context.select(
        "SELECT base, matrices, octet_length(runs), count(*) OVER (PARTITION BY base) "
        "FROM base_signatures ORDER BY base"
    )
    wrong = [base for base, text, n_bytes, n in rows if n > 1 or run_bytes(text) != n_bytes]
    if wrong:
        names = listed(list(dict.fromkeys(wrong)))
        detail = f"{counted(len(set(wrong)), 'base')} with a damaged signature: {names}"
        yield Finding("bases", "problem", detail, "`deltadex bases add` each of them again")
        return
    yield Finding("bases", "ok", f"signatures of {counted(len(rows), 'base')}")


def check_references(context: CheckContext) -> Iterator[Finding]:
    """No rows of removed models."""
    present = set(context.tables())
    vectors = [table for _, table in tables(context.session) if table in present]
    problems = list(_orphans(context, vectors))
    if not problems:
        yield Finding("rows", "ok", "all of models that are there")
    yield from problems
    bases = context.select(
        "SELECT base FROM families WHERE base NOT IN (SELECT base FROM models) ORDER BY base"
    )
    if bases:
        names = listed([str(base) for (base,) in bases])
        yield Finding("rows", "note", f"{counted(len(bases), 'base')} without models: {names}")


def _orphans(context: CheckContext, vectors: list[str]) -> Iterator[Finding]:
    """Rows without their model, which are derived from nothing, and stay."""
    for table in (*vectors, *BESIDE):
        # studies and footprints are also of models that could not be indexed
        is_of_all = table in ("studies", "footprints")
        condition = "" if is_of_all else " WHERE status = 'indexed'"
        where = f"model NOT IN (SELECT key FROM models{condition})"
        [(n_rows,)] = context.select(f"SELECT count(*) FROM {quoted(table)} WHERE {where}")
        if n_rows:
            sql = f"DELETE FROM {table} WHERE {where};"
            advice = f"no search reads them; after a backup, with DuckDB: {sql}"
            detail = f"{table}: {counted(n_rows, 'row')} of models that are not indexed"
            yield Finding("rows", "problem", detail, advice)


LOOKED_UP_AT_ONCE = 1_500
"""Values of one lookup; DuckDB scans the table for more than 2,048."""


def check_table_indexes(context: CheckContext) -> Iterator[Finding]:
    """Every row of an indexed table is found by its index."""
    faults: dict[str, str] = {}
    n_lookups = 0
    for table, column in indexed_columns(context):
        parts = [(table, first, last) for _, first, last in context.parts(table)]
        for part in context.track(parts, f"looking up {table}.{column}"):
            try:
                n_lookups += _look_up(context, part, column)
            except StoreError as err:
                faults[table] = _line(err)
            except LookupError as err:
                faults[table] = str(err)
    if not faults:
        yield Finding("table indexes", "ok", f"{counted(n_lookups, 'value')} found where they are")
    for table, fault in faults.items():
        yield Finding("table indexes", "problem", f"an index of {table}: {fault}", COPY_TABLES)


def indexed_columns(context: CheckContext) -> list[tuple[str, str]]:
    """Tables and columns with an index of their own."""
    rows = context.select(
        "SELECT table_name, unnest(constraint_column_names) FROM duckdb_constraints() "
        "WHERE database_name = 'catalog' AND constraint_type IN ('PRIMARY KEY', 'UNIQUE') "
        "UNION SELECT table_name, trim(expressions, '[]\"''') FROM duckdb_indexes() "
        "WHERE database_name = 'catalog' ORDER BY 1, 2"
    )
    return [(str(table), str(column)) for table, column in rows]


def _look_up(context: CheckContext, part: RowRange, column: str) -> int:
    """Look up a column's values in some rows of a table; their number. `LookupError` where the
    index does not give the rows that have them, `StoreError` where it cannot be read."""
    table, first, last = part
    name = quoted(column)
    values = context.select(
        f"SELECT DISTINCT {name} FROM {quoted(table)} t WHERE t.rowid BETWEEN ? AND ?", first, last
    )
    for start in range(0, len(values), LOOKED_UP_AT_ONCE):
        some = [value for (value,) in values[start : start + LOOKED_UP_AT_ONCE]]
        # an index is used for values that are written out
        wanted = ", ".join(str(v) if isinstance(v, int) else literal(v) for v in some)
        found = context.select(
            f"SELECT DISTINCT {name} FROM {quoted(table)} WHERE {name} IN ({wanted})"
        )
        if len(found) != len(some):
            raise LookupError(f"{len(some) - len(found)} values are in no row that it knows")
    return len(values)
