"""Checks of what a catalog depends on: library versions, threads, disk space, its holder."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path

from ...files import index_folder
from ...recovery import log_path
from ...sharing import note_path, read_note
from ...sharing.guest import join
from .checks import Finding, counted

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
        content, note = _holder_file(path), read_note(path)
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
        return note_path(path).read_bytes()
    except OSError:
        return None
