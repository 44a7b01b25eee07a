"""What a catalog stands in: versions, threads, room on the disk."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path

from ...derived.paths import index_folder
from .finding import Finding, counted

SHOWN_VERSIONS = ("deltadex", "duckdb", "faiss-cpu", "numpy", "torch", "huggingface_hub")
THREADED = ("numpy", "faiss", "torch")
LEAST_FREE = 256 << 20
"""Bytes below which an indexing run may end at any model."""

ROOM_BESIDE = 1 << 30
"""What stays free where sketches are kept at hand."""


def look_around(path: Path) -> Iterator[Finding]:
    """Versions, threads and free space."""
    yield versions()
    yield threads()
    yield space(path)


def versions() -> Finding:
    """The libraries' versions, against those that deltadex asks for."""
    shown = [f"Python {platform.python_version()}"]
    for name in SHOWN_VERSIONS:
        found = _version(name)
        shown.append(f"{name} {found}" if found else f"no {name}")
    wrong = _not_as_asked()
    if wrong:
        asked = ", ".join(wrong)
        return Finding(
            "versions",
            "problem",
            f"other versions than deltadex is made for: {asked}",
            "install what it asks for: pip install --upgrade deltadex",
        )
    return Finding("versions", "ok", ", ".join(shown))


def threads() -> Finding:
    """Which OpenMP runtimes are loaded together, and how many threads they have."""
    from threadpoolctl import threadpool_info

    for name in THREADED:
        if name in sys.modules or _version(name):
            import_module(name)
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "openmp"]
    names = sorted({str(pool["prefix"]) for pool in pools})
    n_threads = max((int(pool["num_threads"]) for pool in pools), default=1)
    settings = [f"{name}={os.environ[name]}" for name in _settings() if name in os.environ]
    shown = ", ".join([counted(n_threads, "thread"), f"OpenMP: {' + '.join(names)}", *settings])
    if {"libomp", "libiomp"} <= set(names):
        return Finding(
            "threads",
            "problem",
            f"{shown}: LLVM's and Intel's OpenMP in one process may hang or crash",
            "install faiss, torch and numpy from one source, all by pip or all by conda",
        )
    if len(pools) > 1 and sys.platform == "darwin":
        return Finding(
            "threads",
            "problem",
            f"{shown}, loaded {len(pools)} times: torch and faiss may crash on macOS",
            "set OMP_NUM_THREADS=1",
        )
    if n_threads > (cores := os.cpu_count() or 1):
        advice = f"set OMP_NUM_THREADS={cores}"
        return Finding("threads", "note", f"{shown} on {counted(cores, 'core')}: slow", advice)
    return Finding("threads", "ok", shown)


def space(path: Path) -> Finding:
    """What is free on the disk, against what the catalog and its derived files take."""
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    catalog = sum(_size(file) for file in (path, path.with_name(path.name + ".wal")))
    derived = sum(map(_size, index_folder(path).glob("*")))
    shown = f"catalog {catalog >> 20} MiB, derived files {derived >> 20} MiB, free {free >> 20} MiB"
    if free < LEAST_FREE:
        advice = "make room before anything is indexed"
        return Finding("space", "problem", f"{shown}: nearly nothing", advice)
    if free < catalog + ROOM_BESIDE:
        advice = "a backup belongs on another disk; sketches are kept at hand from 1 GiB free"
        return Finding("space", "note", shown, advice)
    return Finding("space", "ok", shown)


def _not_as_asked() -> list[str]:
    """`name version (asked)` of required libraries of another version; none where deltadex runs
    without having been installed."""
    from packaging.requirements import Requirement

    try:
        asked = [Requirement(line) for line in metadata.requires("deltadex") or ()]
    except metadata.PackageNotFoundError:
        return []
    wrong = []
    for one in asked:
        if one.marker is not None and not one.marker.evaluate({"extra": ""}):
            continue
        found = _version(one.name)
        if found is None or not one.specifier.contains(found, prereleases=True):
            wrong.append(f"{one.name} {found or 'not there'} ({one.specifier})")
    return wrong


def _version(name: str) -> str | None:
    """Of an installed package, by its own name or its module's."""
    try:
        return metadata.version({"faiss": "faiss-cpu"}.get(name, name))
    except metadata.PackageNotFoundError:
        return None


def _settings() -> tuple[str, ...]:
    return "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "KMP_DUPLICATE_LIB_OK", "MKL_NUM_THREADS"


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
