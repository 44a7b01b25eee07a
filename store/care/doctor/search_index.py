"""Index files against the catalog."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import faiss
import numpy as np

from ....arrays import Int64
from ....records import Recipe
from ...derived.index import load_index
from ...derived.paths import derived_path
from ...derived.shortlist import coarse_search, fits, is_exact
from ...tables.vectors import fetch_keys, fetch_vectors_of
from .finding import Finding, counted
from .patient import Patient

SAMPLE = 64
"""Vectors compared with the catalog's."""

NEAREST = 28
"""Candidates among which a coarse index is to find a vector itself."""

WRITTEN_WITHIN_S = 1.0
"""Between an index and the note that vouches for it, while another process saves them."""


def check_indexes(patient: Patient) -> Iterator[Finding]:
    """Every family's index file: as it was written, and of these models' vectors."""
    recipes = patient.catalog.recipes()
    is_well, n_files, n_behind = True, 0, 0
    for base in patient.catalog.bases():
        for recipe in recipes.values():
            path = derived_path(patient.path, base, recipe.id)
            if not _is_there(path):
                continue
            n_files += 1
            keys = np.array(
                [key for key, *_ in fetch_keys(patient.session, base, recipe, -1)], np.int64
            )
            fault, behind = _fault(patient, path, recipe, keys)
            n_behind += behind
            if fault:
                is_well = False
                yield _mended(patient, path, base, recipe, fault)
    if is_well:
        later = f"; {n_behind} changes since, which the next search makes" if n_behind else ""
        yield Finding("index", "ok", f"{counted(n_files, 'index file')} as the catalog{later}")


def _fault(
    patient: Patient, path: Path, recipe: Recipe, keys: Int64[np.ndarray, " models"]
) -> tuple[str, int]:
    """What is wrong with a file, if anything; and how many models it is behind."""
    index, held = _loaded(path, recipe.dim)
    if index is None:
        return "damaged or incomplete", 0
    behind = len(np.setxor1d(held, keys))
    if not fits(index, len(keys)):
        return f"of another kind than {len(keys)} vectors need", behind
    if (np.diff(held) <= 0).any() or not _has(index, held):
        return "of other models than its note says", behind
    common = np.intersect1d(held, keys)
    sample = common[np.unique(np.linspace(0, len(common) - 1, SAMPLE).astype(np.int64))]
    if len(common) and not _same(patient, index, held, recipe, sample):
        return "of other vectors than the catalog's", behind
    return "", behind


def _is_there(path: Path) -> bool:
    return any(path.with_suffix(ending).exists() for ending in (".faiss", ".json"))


def _loaded(path: Path, dim: int) -> tuple[faiss.Index | None, Int64[np.ndarray, " models"]]:
    """The index in a file; looked at twice, for another process may be writing it."""
    index, held = load_index(path, dim)
    if index is None:
        time.sleep(WRITTEN_WITHIN_S)
        index, held = load_index(path, dim)
    return index, held


def _has(index: faiss.Index, held: Int64[np.ndarray, " models"]) -> bool:
    """Whether a coarse index knows these keys and no others; an exact one knows none."""
    if is_exact(index):
        return True
    lists = faiss.extract_index_ivf(index).invlists
    assert lists is not None
    ids = [
        faiss.rev_swig_ptr(lists.get_ids(number), lists.list_size(number)).copy()
        for number in range(lists.nlist)
        if lists.list_size(number)
    ]
    return bool(np.array_equal(np.sort(np.concatenate(ids)), held)) if ids else not len(held)


def _same(
    patient: Patient,
    index: faiss.Index,
    held: Int64[np.ndarray, " models"],
    recipe: Recipe,
    sample: Int64[np.ndarray, " sample"],
) -> bool:
    """Whether a sample's vectors are the catalog's to the bit; or, where the index has codes
    only, whether most of them are found by their vectors."""
    present, vectors = fetch_vectors_of(patient.session, recipe, sample)
    if not len(present):
        return True
    if is_exact(index):
        rows = np.searchsorted(held, present)
        return bool(np.array_equal(index.reconstruct_batch(rows), vectors))
    hits = [
        key in coarse_search(index, vector, NEAREST, None)
        for key, vector in zip(present, vectors, strict=True)
    ]
    return sum(hits) * 2 > len(hits)


def _mended(patient: Patient, path: Path, base: str, recipe: Recipe, fault: str) -> Finding:
    of_what = f"{base}, {recipe.id}"
    if not patient.repairs:
        advice = "the next search makes it again, and so does `deltadex doctor` without --check"
        return Finding("index", "problem", f"index file of {of_what}: {fault}", advice)
    for ending in (".json", ".faiss"):
        path.with_suffix(ending).unlink(missing_ok=True)
    n_vectors = len(patient.catalog.family(base, recipe).index.keys)
    detail = f"index file of {of_what}: {fault}; made again of {counted(n_vectors, 'vector')}"
    return Finding("index", "repaired", detail)
