"""What every check is given and returns; checks of what a catalog depends on: library versions,
threads, disk space, its holder, its manifest as a backup."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Literal

from ...catalog import Catalog
from ...files import index_folder
from ...opening import SCHEMA_VERSION
from ...recovery import log_path
from ...session import Session
from ...sharing import holder_path, read_holder
from ...sharing.remote import join
from ..backup import BackupManifest, manifest_path, read_backup_manifest
from ..raw_file import read_in_child

State = Literal["ok", "note", "repaired", "problem"]

NAMES_SHOWN = 3
"""Names that a finding lists; it counts the others."""

ROWS_AT_ONCE = 4 * 122_880
"""Of a scan: one of DuckDB's row groups for each of four threads."""

REINDEX = "`deltadex rm` each of them, then index it again"

RUN_REPAIR = "`deltadex doctor` without --check repairs it"

RowRange = tuple[str, int, int]
"""A table, and the first and the last number of some of its rows."""

Track = Callable[[Sequence[RowRange], str], Iterator[RowRange]]
"""Gives the same parts, and shows the progress of the named work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        check: What was examined.
        advice: What to do about it; empty where nothing is to be done.
    """

    check: str
    state: State
    detail: str
    advice: str = ""

    def to_json(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The open catalog that is examined.

    Attributes:
        session: A session of its own.
        repairs: Whether derived data is repaired, or only examined.
    """

    catalog: Catalog
    session: Session
    repairs: bool
    track: Track

    def select(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows that a statement gives."""
        return self.session.execute(sql, list(values))

    def n_commits(self) -> int:
        """How many changes were committed since deltadex counts them."""
        return int(self.select("SELECT commits FROM meta")[0][0])

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


def listed(names: Sequence[str], n_all: int | None = None) -> str:
    """`a, b, c and 5 more`."""
    more = (n_all if n_all is not None else len(names)) - min(NAMES_SHOWN, len(names))
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def counted(n: int, noun: str) -> str:
    """`1 model`, `2 models`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


SHOWN_VERSIONS = ("deltadex", "duckdb", "faiss-cpu", "numpy", "torch", "huggingface_hub")
THREADED = ("numpy", "faiss", "torch")
THREAD_SETTINGS = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "KMP_DUPLICATE_LIB_OK", "MKL_NUM_THREADS")
LEAST_FREE = 256 << 20
"""Bytes below which an indexing run may end at any model."""

SKETCH_FILE_FREE = 1 << 30
"""Bytes that stay free where a sketch file is written."""


def check_environment(path: Path) -> Iterator[Finding]:
    """Versions, threads and free space."""
    yield versions()
    yield threads()
    yield space(path)


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

    try:
        requirements = [Requirement(line) for line in metadata.requires("deltadex") or ()]
    except metadata.PackageNotFoundError:
        return []
    wrong = []
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
        if name in sys.modules or _version(name):
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


def space(path: Path) -> Finding:
    """What is free on the disk, against what the catalog and its derived files take."""
    folder = next((f for f in (path.parent, *path.parent.parents) if f.exists()), Path())
    free = shutil.disk_usage(folder).free
    catalog = sum(_size(file) for file in (path, log_path(path)))
    derived = sum(map(_size, index_folder(path).glob("*")))
    shown = f"catalog {catalog >> 20} MiB, derived files {derived >> 20} MiB, free {free >> 20} MiB"
    if free < LEAST_FREE:
        advice = "free some space before you index models"
        return Finding("space", "problem", f"{shown}: the disk is nearly full", advice)
    if free < catalog + SKETCH_FILE_FREE:
        advice = "write backups to another disk; the sketch file needs 1 GiB free"
        return Finding("space", "note", shown, advice)
    return Finding("space", "ok", shown)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


@dataclass(frozen=True, slots=True)
class HolderCheck:
    """What the holder file beside a catalog said before the catalog was opened.

    Attributes:
        content: Its bytes; None without one.
        pid: Of the process that it names; None where it cannot be read, or is of another machine.
        answers: Whether that process serves others.
    """

    content: bytes | None
    pid: int | None
    answers: bool

    @classmethod
    def of(cls, path: Path) -> HolderCheck:
        """As of now."""
        content, note = _holder_file(path), read_holder(path)
        guest = join(path) if note is not None else None
        if guest is not None:
            guest.close()
        return cls(content, note.pid if note else None, guest is not None)

    def finding(self, path: Path) -> Finding:
        """The finding, once the catalog was opened or could not be."""
        if self.answers:
            detail = f"process {self.pid} holds it and serves other processes"
            return Finding("holder", "ok", detail)
        if self.content is None:
            return Finding("holder", "ok", "no process holds it")
        owner = f"process {self.pid}" if self.pid else "another machine, or damaged"
        detail = f"holder file of {owner}, which does not answer"
        if _holder_file(path) != self.content:
            return Finding("holder", "repaired", f"{detail}: removed")
        return Finding("holder", "note", f"{detail}: the next command that writes removes it")


def _holder_file(path: Path) -> bytes | None:
    try:
        return holder_path(path).read_bytes()
    except OSError:
        return None


ANOTHER_COPY = "take another copy of the backup; keep this one until that is done"


@dataclass(frozen=True, slots=True)
class ManifestCheck:
    """A file and its manifest, before the file was opened.

    Attributes:
        manifest: As it was written; None where it cannot be read.
        is_same: Whether the file has its SHA-256.
    """

    path: Path
    manifest: BackupManifest | None
    is_same: bool

    @classmethod
    def of(cls, path: Path) -> ManifestCheck | None:
        """As of now; None for a file without manifest."""
        try:
            manifest = read_backup_manifest(path)
            if manifest is None:
                return None
            return cls(path, manifest, read_in_child("sha256", path) == manifest.sha256)
        except (ValueError, OSError):
            return cls(path, None, False)

    def finding(self, context: CheckContext | None) -> Finding:
        """The finding, once the catalog was opened; None: it could not be."""
        manifest = self.manifest
        if manifest is None:
            name = manifest_path(self.path).name
            detail = f"{name} cannot be read, or its file cannot"
            return Finding("manifest", "problem", detail, ANOTHER_COPY)
        of_then = f"the backup of {manifest.made_at}"
        if self.is_same:
            models = counted(manifest.models, "model")
            return Finding("manifest", "ok", f"{of_then}: {models}, SHA-256 as written")
        if context is not None and (
            context.n_commits() > manifest.commits or manifest.schema_version < SCHEMA_VERSION
        ):
            return Finding("manifest", "note", f"{of_then}, changed since by deltadex")
        detail = f"not {of_then}: its SHA-256 is another"
        return Finding("manifest", "problem", detail, ANOTHER_COPY)
