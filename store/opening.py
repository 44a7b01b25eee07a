"""Opening a catalog file: made, held or joined.

What a power loss left while DuckDB wrote is repaired. DuckDB syncs its log before it reports a
commit, and its file before a new header counts. Two states that a power loss can leave it refuses
nevertheless, though nothing that was reported is missing:

* The log's last transaction is incomplete in its middle: the end of the file is on the disk, a
  page before it is not. DuckDB drops a transaction that ends too early, but calls a checksum that
  differs damage (duckdb/duckdb pull request 13758). The transaction was not reported, since the
  log was not synced: the log is cut before it.
* A checkpoint was interrupted within a block of metadata. A checkpoint adds parts to such a block
  and leaves those that the file's header needs as they are, but writes the whole block in its
  place, with one checksum over all parts. The parts that count are whole, the checksum is not: it
  is computed again. The log tells that a checkpoint was going on: its last entry says so, and is
  synced before the checkpoint writes.

Anything else stays refused, and no byte is changed.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from contextlib import closing, suppress
from importlib.resources import files
from pathlib import Path
from typing import Literal, NamedTuple

import duckdb

from ..errors import (
    EmptyCatalog,
    ForeignDatabase,
    OtherSchema,
    StoreDamaged,
    StoreError,
    StoreFull,
)
from .files import atomic_file, beside, make_folder, refuse_links
from .session import Access, Session, literal, translated
from .sharing import (
    CommitLog,
    Ledger,
    LocalSession,
    Losses,
    RawSession,
    Unwritten,
    signals_raised,
)

SCHEMA_VERSION = 9
"""A catalog of another one is not opened."""


def ensure_schema(own: LocalSession, path: Path, *, read_only: bool) -> None:
    """Make a file that this process holds, and that is empty, a catalog, in one transaction."""
    if has_schema(own, path):
        return
    if read_only:
        raise EmptyCatalog(f"{path}: an empty catalog; `deltadex index` fills it")
    own.begin()
    try:
        own.execute(schema())
        own.execute("UPDATE meta SET schema_version = ?", [SCHEMA_VERSION])
        own.commit()
    except BaseException:
        own.rollback()
        raise


def schema() -> str:
    """What makes an empty file a catalog."""
    return (files(__package__) / "schema.sql").read_text("utf-8")


def has_schema(session: RawSession, path: Path) -> bool:
    """Whether an open file is a catalog; False for a database that holds nothing.

    Raises:
        OtherSchema: of another version of deltadex.
        ForeignDatabase: it is not a catalog.
    """
    with suppress(duckdb.CatalogException, duckdb.BinderException):
        sql = "SELECT schema_version FROM meta WHERE application = 'deltadex'"
        for (version,) in session.execute(sql):
            if version != SCHEMA_VERSION:
                raise OtherSchema(
                    f"{path}: schema version {version}, this deltadex has {SCHEMA_VERSION}: "
                    "index again into another --db, or use the deltadex that made it"
                )
            return True
    sql = "SELECT count(*) FROM information_schema.tables WHERE table_catalog = 'catalog'"
    if session.execute(sql) == [(0,)]:
        return False
    raise ForeignDatabase(
        f"{path}: a DuckDB database, but not a deltadex catalog; choose another --db"
    )


log = logging.getLogger(__name__)

Create = bool | Literal["late"]

NEW = "STORAGE_VERSION 'v1.5.0'"
"""Files that DuckDB 1.5 and every later one can open."""

WRITING = "ROW_GROUP_SIZE 2048"
"""DuckDB rewrites the last group of a growing table; its default size is two gigabytes of
vectors."""

NO_EXTENSIONS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
}
"""A file of another kind must not make DuckDB download what reads it."""

OF_DUCKDB = "TYPE duckdb"
"""Of an attached file: DuckDB does not look what else it may be."""

NOTHING_ELSE = "SET enable_external_access = false"
"""From now on DuckDB opens no other file and no address."""

LOGS_EVERYTHING = "auto_checkpoint_skip_wal_threshold = 9223372036854775807"
"""A large commit is logged before its checkpoint begins too: the log says that one was going on
(see the head of this file)."""

NOT_FOR_SKETCHES = "dict_fsst,fsst,zstd"
"""Compression of text and bytes. To pack sketches saves a tenth of the file, for forty times the
time of writing it."""

CACHE_SHARE = "50%"
"""Of the memory; a search index of a large family needs the other half."""


def connect(
    path: Path,
    *,
    read_only: bool,
    create: Create,
    cache: str | None = None,
    repairs: bool = True,
) -> Access:
    """Access to the catalog at `path`: held, or through its holder.

    A new catalog appears under its name once it is complete.

    Args:
        create: Whether a file that is not there is made; `late` makes it with the first change.
        repairs: Repair what a power loss left, also for one who only reads.

    Raises:
        EmptyCatalog: there is no file and none is to be made.
        StoreError: one of its subclasses, naming the file.
    """
    if not is_file(path):
        if not create:
            raise EmptyCatalog(f"{path}: no catalog there yet; `deltadex index` makes one")
        if create != "late":
            _make(path.resolve())
        read_only = False

    def open_own() -> LocalSession:
        if create == "late" and not is_file(path):
            return _unwritten(path)
        own = _open_file(path, read_only=read_only, cache=cache or CACHE_SHARE, repairs=repairs)
        try:
            with translated(path):
                _warn_of(find_losses(own, path) if read_only else own.follow(path), path)
        except BaseException:
            own.close()
            raise
        return own

    def check_guest(guest: RawSession) -> None:
        has_schema(guest, path)
        _warn_of(find_losses(guest, path), path)

    return Access(path, open_own, check_guest, shares=not read_only)


def memory_connection(**settings: str) -> duckdb.DuckDBPyConnection:
    """DuckDB without a file, which loads no extension by itself, and prints nothing."""
    config: dict[str, str | bool | int | float | list[str]] = {**NO_EXTENSIONS, **settings}
    connection = duckdb.connect(":memory:", config=config)
    is_on = "SELECT current_setting('enable_progress_bar')"
    # on where Python has no main file; refused as one of the settings above, and in a notebook
    # without ipywidgets, where it is off
    with signals_raised():
        if connection.execute(is_on).fetchone() == (True,):
            connection.execute("SET enable_progress_bar = false")
    return connection


def find_losses(session: RawSession | Session, path: Path) -> Losses:
    """Commits that were reported and are not in the catalog."""
    noted = CommitLog(path).read()
    # a commit is in the catalog before it is in its log
    [(catalog, commits)] = session.execute("SELECT catalog, commits FROM meta")
    return noted.losses_of(str(catalog), int(commits))


def _warn_of(losses: Losses, path: Path) -> None:
    if losses:
        log.warning("%s: %s; `deltadex doctor` lists them", path, losses)


def is_file(path: Path) -> bool:
    """Whether a file is there; `StoreError` for anything else, for which DuckDB may wait for ever,
    and for symbolic links there or beside it."""
    if not path.name:
        raise StoreError(f"{path}: a folder, not a file; a catalog is a single file")
    refuse_links(path)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    except OSError as err:
        raise StoreError(f"{path}: {(err.strerror or str(err)).lower()}") from err
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "a pipe, socket or device"
        raise StoreError(f"{path}: {what}, not a file; a catalog is a single file")
    return True


def _unwritten(path: Path) -> Unwritten:
    """A session on a catalog that is still to be made; `StoreFull` where nothing can be."""
    target = path.resolve()
    folder = next(place for place in target.parents if place.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise StoreFull(f"{path}: cannot be made: {folder} is no folder that can be written to")
    connection = memory_connection()
    empty = LocalSession(connection, Ledger())
    empty.execute("ATTACH ':memory:' AS catalog")
    empty.execute("USE catalog")
    ensure_schema(empty, path, read_only=False)
    return Unwritten(connection, lambda: _make(target), lambda: is_file(path))


def _make(path: Path) -> None:
    """An empty catalog at `path`, unless another process has made one meanwhile."""
    make_folder(path.parent)
    options = f"{OF_DUCKDB}, {WRITING}, {NEW}"
    with atomic_file(path, replaces=False) as temporary, translated(path):
        try:
            with closing(_attached(temporary, options, CACHE_SHARE)) as own:
                ensure_schema(own, path, read_only=False)
                own.execute("CHECKPOINT")
        finally:
            log_path(temporary).unlink(missing_ok=True)


def _open_file(path: Path, *, read_only: bool, cache: str, repairs: bool = True) -> LocalSession:
    """A session on an existing file; what a power loss left is repaired, where that is wanted and
    the file may be written."""
    seen = Seen.of(path)
    try:
        with translated(path):
            own = _attached(path, f"{OF_DUCKDB}, {'READ_ONLY' if read_only else WRITING}", cache)
            try:
                if seen.has_begun_checkpoint:
                    _read_metadata(own)
                ensure_schema(own, path, read_only=read_only)
            except BaseException:
                own.close()
                raise
    except StoreDamaged as err:
        if repairs and repair(path, str(err.__cause__), seen):
            return _open_file(path, read_only=read_only, cache=cache)
        raise
    return own


def _read_metadata(own: LocalSession) -> None:
    """Read every block of metadata: DuckDB reads most of them when a query needs them."""
    sql = "SELECT table_name FROM duckdb_tables() WHERE database_name = 'catalog'"
    for (table,) in own.execute(sql):
        own.execute("SELECT count(*) FROM pragma_storage_info(?)", [table])


def _attached(path: Path, options: str, cache: str) -> LocalSession:
    """A session whose default database is the file."""
    connection = memory_connection(memory_limit=cache)
    own = LocalSession(connection, Ledger(log_path(path)), cache)
    try:
        with suppress(duckdb.CatalogException):  # unknown to DuckDB 1.5
            own.execute(f"SET {LOGS_EVERYTHING}")
        with translated(path):
            own.execute(f"SET disabled_compression_methods = '{NOT_FOR_SKETCHES}'")
            own.execute(f"ATTACH {literal(path)} AS catalog ({options})")
            own.execute("USE catalog")
    except BaseException:
        own.close()
        raise
    return own


# after a power loss

TORN_ENTRY = re.compile(r"entry at byte position (\d+) computed checksum \d+ does not match stored")
"""Where an entry of the log begins after its size and checksum, in DuckDB's words."""

TORN_BLOCK = re.compile(
    r"Corrupt database file: computed checksum (\d+) does not match stored checksum \d+ "
    r"in block at location (\d+)"
)
"""The checksum of a block of the file, and where the block begins, in DuckDB's words."""

ENTRY_HEADER = 16
"""Bytes of an entry's size and checksum."""

CHECKSUM_BYTES = 8

END = rb"\x05\0{7}.{8}d\0d\xff\xff"
"""The entry that ends a transaction: five bytes long, a checksum, field 100 with the value 100."""

COMMITTED = re.compile(END, re.DOTALL)
CHECKPOINT_BEGUN = re.compile(rb"[\x0a-\x20]\0{7}.{8}d\0c.{1,28}\xff\xff" + END + rb"\Z", re.DOTALL)
"""The log's end during a checkpoint: field 100 with the value 99, and the transaction's end."""

END_BYTES = 128

MOST_BYTES = 1 << 28
"""Of a log's end that is looked through; DuckDB keeps its log below 16 MiB."""


class Repair(NamedTuple):
    """What makes a catalog open again: bytes to be written at a place of a file; None cuts it."""

    path: Path
    at: int
    data: bytes | None


def log_path(catalog: Path) -> Path:
    """Where DuckDB has the log of a catalog."""
    return beside(catalog, ".wal")


class Seen(NamedTuple):
    """A catalog and its log before DuckDB tried to open them: what tells whether one of them was
    changed since, and whether the log says that a checkpoint was going on."""

    files: tuple[tuple[int, int, int] | None, ...]
    has_begun_checkpoint: bool

    @classmethod
    def of(cls, catalog: Path) -> Seen:
        end = _read(log_path(catalog), -END_BYTES)
        files = tuple(map(_state, (catalog, log_path(catalog))))
        return cls(files, CHECKPOINT_BEGUN.search(end) is not None)


def find_repair(catalog: Path, error: str, seen: Seen) -> Repair | None:
    """What a power loss explains of an error of DuckDB's; None if it explains nothing."""
    if found := TORN_ENTRY.search(error):
        start = int(found[1]) - ENTRY_HEADER
        rest = _read(log_path(catalog), start)
        # a transaction that was synced later would follow: only one at a time is written
        ends = [match.end() for match in COMMITTED.finditer(rest)]
        if len(rest) < MOST_BYTES and ends in ([], [len(rest)]):
            return Repair(log_path(catalog), start, None)
    elif (found := TORN_BLOCK.search(error)) and seen.has_begun_checkpoint:
        checksum = int(found[1]).to_bytes(CHECKSUM_BYTES, "little")
        return Repair(catalog, int(found[2]), checksum)
    return None


def repair(catalog: Path, error: str, seen: Seen) -> bool:
    """Make the repair that an error asks for; whether the catalog should be opened again.

    Args:
        seen: From before the attempt that gave the error. This process must not have the catalog
            open: a file that it closes loses the locks of all its others.
    """
    found = find_repair(catalog, error, seen)
    if found is None or os.name != "posix":
        return False
    import fcntl

    try:
        with catalog.open("rb+") as held, found.path.open("rb+") as file:
            # DuckDB's own lock: nobody else has the catalog open now, or opens it
            fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if Seen.of(catalog) == seen:
                if found.data is None:
                    file.truncate(found.at)
                else:
                    file.seek(found.at)
                    file.write(found.data)
                file.flush()
                os.fsync(file.fileno())
                log.warning(
                    "%s: the machine stopped while this catalog was written; what was not "
                    "complete is undone, and nothing that was reported is lost",
                    catalog,
                )
    except OSError as err:
        log.info("%s: not repaired: %s", catalog, err)
        return False
    return True


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _read(path: Path, at: int) -> bytes:
    """A file from a position on, or its last bytes; nothing of a file that is not there."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(at if at >= 0 else max(0, size + at))
            return file.read(MOST_BYTES)
    except OSError:
        return b""
