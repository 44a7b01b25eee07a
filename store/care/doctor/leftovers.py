"""Derived files of families that are gone, and what processes that ended left half written."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from glob import escape
from pathlib import Path

from filelock import FileLock, Timeout

from ...derived.paths import derived_path, index_folder
from .finding import Finding, counted, some
from .patient import Patient

ENDINGS = {
    "index": (".json", ".faiss"),
    # without keys the other files are not read
    "sketches": (".keys", ".slots", ".vectors", ".sketches"),
    "lock": (".lock",),
}

_DERIVED = re.compile(r"([0-9a-f]{16})(\.[a-z]+)")
_TEMPORARY = re.compile(r"\..+\.(\d+)(?:\.\d+)?\.partial(?:\.wal)?")

LEFT_AFTER_S = 600.0
"""Since a file was last written: its process may be in another container, and not be seen."""


def check_leftovers(patient: Patient) -> Iterator[Finding]:
    """Nothing beside the catalog that no family or process needs."""
    folder = index_folder(patient.path)
    gone = [*_of_no_family(patient, folder), *_temporaries(folder, "")]
    gone += _temporaries(patient.path.parent, patient.path.name)
    others = [p for p in _temporaries(patient.path.parent, "") if p not in gone]
    size = sum(path.stat().st_size for path in gone) >> 20
    names = some([path.name for path in gone])
    shown = f"{counted(len(gone), 'file')} of no use, {size} MiB: {names}"
    if not gone:
        yield Finding("leftovers", "ok", "none")
    elif patient.repairs:
        yield _removed(gone, shown)
    else:
        advice = "`deltadex doctor` without --check removes them"
        yield Finding("leftovers", "problem", shown, advice)
    if others:
        names = some([path.name for path in others])
        detail = f"half-written files beside the catalog, a backup's perhaps: {names}"
        yield Finding("leftovers", "note", detail, "remove them if they are nobody's")


def _of_no_family(patient: Patient, folder: Path) -> list[Path]:
    """Files named after a family and a recipe that the catalog does not have together."""
    pairs = patient.ask("SELECT DISTINCT m.base, r.id FROM models m, recipes r")
    known = {derived_path(patient.path, base, recipe).name for base, recipe in pairs}
    endings = {ending for some_ in ENDINGS.values() for ending in some_}
    found = []
    for path in sorted(folder.glob("*")):
        match = _DERIVED.fullmatch(path.name)
        if match and match[1] not in known and match[2] in endings:
            found.append(path)
    return found


def _temporaries(folder: Path, name: str) -> list[Path]:
    """Files that a process which ended was writing, to become one whose name begins so."""
    return [
        path
        for path in sorted(folder.glob(f".{escape(name)}*.partial*"))
        if (match := _TEMPORARY.fullmatch(path.name))
        and not _is_running(int(match[1]))
        and _age_s(path) > LEFT_AFTER_S
    ]


def _removed(gone: list[Path], shown: str) -> Finding:
    """Take the files away, but for those of a family whose sketches are being written."""
    kept = []
    for path in gone:
        lock = FileLock(path.with_suffix(".lock")) if _DERIVED.fullmatch(path.name) else None
        try:
            if lock is not None:
                lock.acquire(timeout=0)
            path.unlink(missing_ok=True)
        except (OSError, Timeout):
            kept.append(path.name)
        finally:
            if lock is not None:
                lock.release()
                path.with_suffix(".lock").unlink(missing_ok=True)
    if kept:
        detail = f"{shown}; in use or not ours to remove: {some(kept)}"
        return Finding("leftovers", "problem", detail, "end what uses them, then look again")
    return Finding("leftovers", "repaired", f"{shown}: removed")


def _is_running(pid: int) -> bool:
    """Whether there is such a process; where that cannot be asked harmlessly, no."""
    if os.name != "posix":
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
