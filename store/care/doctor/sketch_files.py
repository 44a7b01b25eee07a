"""Files of sketches against the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from ....arrays import Float64, Int64
from ....records import Recipe
from ...derived.paths import derived_path
from ...derived.sketch_file import SketchFile, read_columns, read_notes
from ...derived.sketch_matrix import SketchMatrix, fetch_matrix, index_bytes
from ...tables.vectors import fetch_vectors_of
from .finding import Finding, counted
from .leftovers import ENDINGS
from .patient import Patient

SAMPLE = 64
"""Rows compared with the catalog's, to the bit."""

LENGTH_TOLERANCE = 1e-5
"""Relative: lengths are sums in another order."""


def check_sketches(patient: Patient) -> Iterator[Finding]:
    """Every family's file of sketches; a wrong one is taken away, for it is made again."""
    recipes = patient.catalog.recipes()
    is_well, n_files, n_rows = True, 0, 0
    for base in patient.catalog.bases():
        for recipe in recipes.values():
            path = derived_path(patient.path, base, recipe.id, ".sketches")
            if not path.exists():
                continue
            n_files += 1
            fault, rows = _fault(patient, path, recipe)
            n_rows += rows
            if fault:
                is_well = False
                yield _mended(patient, path, f"{base}, {recipe.id}", fault)
    if is_well:
        rows_shown = f", {counted(n_rows, 'model')}" if n_files else ""
        yield Finding("sketches", "ok", f"{counted(n_files, 'file')} as the catalog{rows_shown}")


def _fault(patient: Patient, path: Path, recipe: Recipe) -> tuple[str, int]:
    """What is wrong with a file, if anything; and how many rows it has."""
    try:
        notes = read_notes(path)
    except FileNotFoundError:
        return "", 0
    keys, lengths = notes["key"].astype(np.int64), notes["length"].astype(np.float64)
    if not len(keys):
        return "", 0
    if (np.diff(keys) <= 0).any() or not np.isfinite(lengths).all():
        return "its keys are damaged", len(keys)
    if short := _too_short(path, len(keys), recipe.dim):
        return short, len(keys)
    file = SketchFile.read(path)
    if file is None:
        return "", len(keys)
    try:
        return _compared(patient, file, recipe, keys, lengths), len(keys)
    finally:
        file.close()


def _too_short(path: Path, n_rows: int, dim: int) -> str:
    """What the files lack for so many rows: to map them would end the process."""
    try:
        columns, own_dim = read_columns(path)
        if own_dim != dim:
            return f"its vectors have {own_dim} numbers, the recipe's {dim}"
        if path.stat().st_size < index_bytes(columns.width, n_rows):
            return f"it ends before its {n_rows} rows do"
        if path.with_suffix(".vectors").stat().st_size < 4 * dim * n_rows:
            return f"its vectors end before its {n_rows} rows do"
    except (OSError, ValueError, TypeError, KeyError):
        return "its list of slots is damaged"
    return ""


def _compared(
    patient: Patient,
    file: SketchFile,
    recipe: Recipe,
    keys: Int64[np.ndarray, " models"],
    lengths: Float64[np.ndarray, " models"],
) -> str:
    """How a sample of the rows differs from the catalog; of those models that it still has."""
    sample = keys[np.unique(np.linspace(0, len(keys) - 1, SAMPLE).astype(np.int64))]
    sample, vectors = fetch_vectors_of(patient.session, recipe, sample)
    if not len(sample):
        return ""
    keys_there = sample.tolist()
    held, stored = file.matrix(sample), fetch_matrix(patient.session, keys_there, recipe.id)
    if held is None:
        return "it cannot be read"
    own = [file.vector(key) for key in keys_there]
    if not all(v is not None and np.array_equal(v, w) for v, w in zip(own, vectors, strict=True)):
        return "its vectors are not the catalog's"
    noted = lengths[np.searchsorted(keys, sample)]
    if not np.allclose(noted, stored.lengths, rtol=LENGTH_TOLERANCE, atol=0.0):
        return "its lengths are not the catalog's"
    rows = range(len(sample))
    if not all(_same_row(held, stored, row) for row in rows):
        return "its sketches are not the catalog's"
    return ""


def _same_row(held: SketchMatrix, stored: SketchMatrix, row: int) -> bool:
    """Whether every slot of the stored row is as in the file, which has no other."""
    halves = np.frombuffer(held.halves(row), dtype="<u2")
    expected = np.frombuffer(stored.halves(row), dtype="<u2")
    n_other = int(np.count_nonzero(halves))
    for slot, part in stored.columns.of_slot.items():
        own = held.columns.of_slot.get(slot)
        if own is None:
            if expected[part].any():
                return False
            continue
        if not np.array_equal(halves[own], expected[part]):
            return False
        n_other -= int(np.count_nonzero(halves[own]))
    return n_other == 0


def _mended(patient: Patient, path: Path, of_what: str, fault: str) -> Finding:
    shown = f"file of {of_what}: {fault}"
    advice = "end the service, then run `deltadex doctor`: searches read the catalog meanwhile"
    if not patient.repairs:
        advice = "`deltadex doctor` without --check takes it away"
        return Finding("sketches", "problem", shown, advice)
    lock = FileLock(path.with_suffix(".lock"))
    try:
        lock.acquire(timeout=0)
    except (OSError, Timeout):
        return Finding("sketches", "problem", f"{shown}; another process writes it", advice)
    try:
        for ending in ENDINGS["sketches"]:
            path.with_suffix(ending).unlink(missing_ok=True)
    finally:
        lock.release()
    return Finding("sketches", "repaired", f"{shown}; taken away, `deltadex serve` makes it again")
