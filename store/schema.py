"""The catalog's schema version: read, checked, migrated."""

from __future__ import annotations

from contextlib import suppress
from importlib.resources import files
from pathlib import Path

import duckdb

from ..errors import EmptyCatalog, ForeignDatabase, NewerSchema, OlderSchema, StoreLocked
from .sharing import HolderNote, LocalSession, RawSession

SCHEMA_VERSION = 7


def migrate(own: LocalSession, path: Path, *, read_only: bool) -> None:
    """Bring a file that this process holds up to this version, in one transaction.

    Raises:
        OlderSchema: it is older, and opened read-only.
        StoreError: another of its subclasses.
    """
    version = schema_version(own, path)
    _refuse_newer(version, path)
    if version == 0 and read_only:
        raise EmptyCatalog(f"{path}: an empty catalog; `deltadex index` fills it")
    if read_only and version < SCHEMA_VERSION:
        raise OlderSchema(
            f"{path}: schema version {version}, this deltadex has {SCHEMA_VERSION}; "
            "`deltadex doctor` brings a file that may be written up to date"
        )
    if version == SCHEMA_VERSION:
        return
    own.begin()
    try:
        for script in scripts()[version:]:
            own.execute(script)
        own.execute("UPDATE meta SET schema_version = ?", [SCHEMA_VERSION])
        own.commit()
    except BaseException:
        own.rollback()
        raise


def check_schema(guest: RawSession, note: HolderNote, path: Path) -> None:
    """Refuse a catalog of another version that another process holds.

    Raises:
        StoreError: it is of another version; a guest migrates nothing.
    """
    version = schema_version(guest, path)
    _refuse_newer(version, path)
    if version < SCHEMA_VERSION:
        raise StoreLocked(
            f"{path}: process {note.pid}, of an older deltadex, holds this catalog; end it first"
        )


def scripts() -> list[str]:
    """The migrations, from an empty file to this version."""
    folder = files(__package__) / "migrations"
    numbers = range(1, SCHEMA_VERSION + 1)
    return [(folder / f"{number:04}.sql").read_text("utf-8") for number in numbers]


def _refuse_newer(version: int, path: Path) -> None:
    if version > SCHEMA_VERSION:
        raise NewerSchema(
            f"{path}: schema version {version}, this deltadex knows up to {SCHEMA_VERSION}; "
            "upgrade it"
        )


def schema_version(session: RawSession, path: Path) -> int:
    """The version of an open file; 0 for a database that holds nothing.

    Raises:
        ForeignDatabase: it is not a catalog.
    """
    with suppress(duckdb.CatalogException, duckdb.BinderException):
        sql = "SELECT schema_version FROM meta WHERE application = 'deltadex'"
        for (version,) in session.execute(sql):
            return int(version)
    sql = "SELECT count(*) FROM information_schema.tables WHERE table_catalog = 'catalog'"
    if session.execute(sql) == [(0,)]:
        return 0
    raise ForeignDatabase(
        f"{path}: a DuckDB database, but not a deltadex catalog; choose another --db"
    )
