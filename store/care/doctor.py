"""`deltadex doctor`: all checks of a catalog, and of the files beside it; what is derived is
repaired."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from ...errors import BadIndex, DeltadexError, EmptyCatalog, StoreDamaged, StoreError, StoreFull
from ...records import Recipe
from ...results import size
from ..catalog import Catalog
from ..commit_log import listed
from ..derived.footprint_bits import ENDING as FOOTPRINT_ENDING
from ..derived.footprint_bits import footprint_file
from ..derived.index import load_index
from ..derived.row_files import (
    DamagedRows,
    Rows,
    read_shapes,
)
from ..exchange import is_whole
from ..files import LEXICON_ENDING, abandoned, derived_path, index_folder, lexicon_file
from ..model_rows import block_dims
from ..opening import (
    SCHEMA_VERSION,
    is_file,
    refused_logs,
)
from ..published.publication import AttachedIndex, attached_folder
from ..session import Session
from ..tables.outcomes import fetch_keys
from . import checks
from .checks import (
    REPLACE_FILE,
    CheckContext,
    Finding,
    Track,
    counted,
)

INDEX_ENDINGS = (".json", ".faiss")
SKETCH_ENDINGS = (".keys", ".vectors", ".weights", ".sketches")
"""The keys first: without them the other files are not read."""

TRAIT_ENDINGS = (".traitkeys", ".traits", ".traitlock")
EXPORT_ENDINGS = (".qdrant",)
"""Of rows with checksums: a damaged one is not read, and computed again."""

WRITTEN_WITHIN_S = 1.0
"""Between an index and its metadata, while another process saves them."""

ROWS_CHECKED_AT_ONCE = 1024
"""Of a file of sketches; 45 MB of a base of 72 slots."""

LEFT_AFTER_S = 600.0
"""Since a file was last written: its process may run in another container."""

_DERIVED = re.compile(r"([0-9a-f]{16})(\.[a-z]+)")


def _family_files(
    context: CheckContext, endings: Sequence[str]
) -> Iterator[tuple[str, Recipe, Path]]:
    """Base, recipe and path without ending of every family that has one of these files."""
    recipes = context.catalog.recipes()
    for base in context.catalog.bases():
        for recipe in recipes.values():
            path = derived_path(context.catalog.path, base, recipe.id)
            if any(path.with_suffix(ending).exists() for ending in endings):
                yield base, recipe, path


# search indexes


def check_indexes(context: CheckContext) -> Iterator[Finding]:
    """Every family's index file is as it was written; one that is not is made again."""
    files = list(_family_files(context, INDEX_ENDINGS))
    has_faults, n_behind = False, 0
    for base, recipe, path in files:
        index, held = load_index(path, recipe.dim)
        if index is None:
            # another process may be writing it
            time.sleep(WRITTEN_WITHIN_S)
            index, held = load_index(path, recipe.dim)
        if index is None:
            has_faults = True
            yield _repair_index(context, path, base, recipe)
            continue
        n_behind += len(np.setxor1d(held, fetch_keys(context.session, base, recipe, -1).keys))
    if not has_faults:
        later = f"; {n_behind} changes since, which the next search makes" if n_behind else ""
        yield Finding("index", "ok", f"{counted(len(files), 'index file')} as written{later}")


def _repair_index(context: CheckContext, path: Path, base: str, recipe: Recipe) -> Finding:
    detail = f"index file of {base}, {recipe.id}: damaged or incomplete"
    if not context.repairs:
        advice = "the next search rebuilds it, and so does `deltadex doctor` without --check"
        return Finding("index", "problem", detail, advice)
    for ending in INDEX_ENDINGS:
        path.with_suffix(ending).unlink(missing_ok=True)
    n_vectors = len(context.catalog.family(base, recipe).index.keys)
    return Finding("index", "repaired", f"{detail}; rebuilt from {counted(n_vectors, 'vector')}")


# sketch files


def check_sketches(context: CheckContext) -> Iterator[Finding]:
    """Every row of every family's sketch file has its checksum; a damaged file is removed."""
    files = list(_family_files(context, (".keys",)))
    has_faults, n_rows = False, 0
    for base, recipe, stem in files:
        path = stem.with_suffix(".keys")
        fault, rows = _sketch_fault(path, recipe)
        n_rows += rows
        if fault:
            has_faults = True
            yield _remove_sketches(context, path, f"file of {base}, {recipe.id}: {fault}")
    if not has_faults:
        shown = f", {counted(n_rows, 'model')}" if files else ""
        yield Finding("sketches", "ok", f"{counted(len(files), 'file')} as written{shown}")


def _sketch_fault(path: Path, recipe: Recipe) -> tuple[str, int]:
    """The fault of a file, if any; and how many rows it has."""
    try:
        shapes = read_shapes(path)
        if (shapes.dim, shapes.blocks) != (recipe.dim, block_dims(recipe)):
            return f"its rows are not those of {recipe.id}", 0
        rows = Rows.read(path, shapes.to_json(), shapes.columns)
        n_rows = (path.stat().st_size - len(rows.header) - 1) // rows.entries.itemsize
        places = np.arange(len(rows.keys))
        for start in range(0, len(places), ROWS_CHECKED_AT_ONCE):
            rows.take(places[start : start + ROWS_CHECKED_AT_ONCE], *shapes.columns)
    except FileNotFoundError:
        return "", 0
    except (OSError, ValueError, TypeError, KeyError):
        return "its list of slots is damaged", 0
    except DamagedRows as err:
        return f"{counted(len(err.keys), 'row')} at least differ from their checksums", 0
    return "it ends before its rows do" if len(places) < n_rows else "", n_rows


def _remove_sketches(context: CheckContext, path: Path, detail: str) -> Finding:
    if not context.repairs:
        advice = "`deltadex doctor` without --check removes it"
        return Finding("sketches", "problem", detail, advice)
    try:
        lock = FileLock(path.with_suffix(".lock")).acquire(timeout=0)
    except (OSError, Timeout):
        advice = "end the service, then run `deltadex doctor`: searches read the catalog meanwhile"
        return Finding("sketches", "problem", f"{detail}; another process writes it", advice)
    with lock:
        for ending in SKETCH_ENDINGS:
            path.with_suffix(ending).unlink(missing_ok=True)
    return Finding("sketches", "repaired", f"{detail}; removed, `deltadex serve` writes it again")


# files that no family or process needs


def check_leftovers(context: CheckContext) -> Iterator[Finding]:
    """No file beside the catalog is of an unknown family, or of a process that ended."""
    folder = index_folder(context.catalog.path)
    unused = [*_of_no_family(context, folder), *_temporaries(folder, "")]
    unused += _temporaries(context.catalog.path.parent, context.catalog.path.name)
    others = [p for p in _temporaries(context.catalog.path.parent, "") if p not in unused]
    taken = size(sum(path.stat().st_size for path in unused))
    names = listed([path.name for path in unused])
    detail = f"{counted(len(unused), 'unused file')}, {taken}: {names}"
    if not unused:
        yield Finding("leftovers", "ok", "none")
    elif context.repairs:
        yield _remove_files(unused, detail)
    else:
        advice = "`deltadex doctor` without --check removes them"
        yield Finding("leftovers", "problem", detail, advice)
    if others:
        names = listed([path.name for path in others])
        detail = f"incomplete files beside the catalog, perhaps of a backup: {names}"
        yield Finding("leftovers", "note", detail, "remove them if no process writes them")


def _of_no_family(context: CheckContext, folder: Path) -> list[Path]:
    """Files named after a family and a recipe that the catalog does not have together."""
    pairs = context.select("SELECT DISTINCT m.base, r.id FROM models m, recipes r")
    known = {derived_path(context.catalog.path, base, recipe).name for base, recipe in pairs}
    for file_of in (footprint_file, lexicon_file):
        known |= {file_of(context.catalog.path, base).stem for base, _ in pairs}
    endings = (
        *(*INDEX_ENDINGS, *SKETCH_ENDINGS, *TRAIT_ENDINGS, *EXPORT_ENDINGS),
        *(FOOTPRINT_ENDING, LEXICON_ENDING, ".lock"),
    )
    return [
        path
        for path in sorted(folder.glob("*"))
        if (match := _DERIVED.fullmatch(path.name))
        and match[1] not in known
        and match[2] in endings
    ]


def _temporaries(folder: Path, name: str) -> list[Path]:
    """Of `abandoned` files those that were written some time ago."""
    old = []
    for path in abandoned(folder, name):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > LEFT_AFTER_S:
                old.append(path)
    return old


def _remove_files(unused: list[Path], detail: str) -> Finding:
    """Remove the files; a process that has one of them open keeps what it reads."""
    for path in unused:
        with suppress(OSError):
            path.unlink(missing_ok=True)
    if left := [path.name for path in unused if path.exists()]:
        detail = f"{detail}; not ours to remove: {listed(left)}"
        return Finding("leftovers", "problem", detail, "remove them as their owner")
    return Finding("leftovers", "repaired", f"{detail}: removed")


def check_attached(context: CheckContext) -> Iterator[Finding]:
    """Every file of every attached index has the SHA-256 with which it was fetched."""
    catalog, has_faults, n_files = context.catalog, False, 0
    for attachment, _ in catalog.attachments.all():
        folder = attached_folder(catalog.path, attachment.name)
        try:
            files = AttachedIndex(folder, attachment.manifest).manifest.parts
            parts = [(file.name, 0, file.bytes) for file in files]
            tracked = zip(files, context.track(parts, f"reading {attachment.name}"), strict=True)
            wrong = [file.name for file, _ in tracked if not is_whole(folder / file.name, file)]
            fault = f"missing or changed: {listed(wrong)}" if wrong else ""
            n_files += len(files)
        except BadIndex:
            fault = "its manifest is missing or changed"
        except StoreFull as err:
            fault = str(err)
        if fault:
            has_faults = True
            advice = f"`deltadex attach --refresh --name {attachment.name}` fetches it again"
            yield Finding("attached", "problem", f"{attachment.name}: {fault}", advice)
    if not has_faults:
        yield Finding("attached", "ok", f"{counted(n_files, 'file')} as fetched")


CACHE = "15%"
"""Of the memory: everything is read once."""

Check = Callable[[CheckContext], Iterator[Finding]]
CHECKS: dict[str, Check] = {
    "tables": checks.check_tables,
    "table indexes": checks.check_table_indexes,
    "commits": checks.check_commits,
    "models": checks.check_models,
    "index": check_indexes,
    "sketches": check_sketches,
    "attached": check_attached,
    "leftovers": check_leftovers,
}
READS_ALL = ("tables", "models", "sketches", "attached")
"""What a quick examination leaves out: the time of these grows with the bytes of the catalog."""

FIRST = ("tables", "table indexes")
"""Without these the others are not made."""


def examine(
    path: Path,
    *,
    repairs: bool = True,
    quick: bool = False,
    track: Track = lambda parts, _: iter(parts),
) -> Iterator[Finding]:
    """Findings about a catalog, its derived files, and its environment.

    Reads every block of the file once, a part at a time; other processes go on between two parts.

    Args:
        repairs: Make index files again, remove damaged sketches and temporary files; set a log
            aside that DuckDB refuses. Nothing else is ever changed.
        quick: Leave out what reads all of the file; nor is a backup compared with its manifest.
        track: Shows the progress of the long checks.
    """
    yield from (checks.versions(), checks.threads(), checks.space(path))
    manifest = None if quick else checks.check_manifest(path, track)
    catalog, opened, repairs = _opened(path, repairs)
    yield opened
    if catalog is None:
        if manifest is not None:
            yield manifest(None)
        return
    with catalog, closing(Session(catalog.access)) as session:
        context = CheckContext(catalog, session, repairs, track)
        if manifest is not None:
            yield manifest(context)
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
                yield Finding("rest", "problem", "not checked: the catalog is damaged", advice)
                return
    if quick:
        advice = "`deltadex doctor` reads them"
        yield Finding("rest", "note", f"not checked: {', '.join(READS_ALL)}", advice)


def _problem(err: DeltadexError, check: str = "catalog") -> Finding:
    advice = REPLACE_FILE if isinstance(err, StoreDamaged) else ""
    return Finding(check, "problem", str(err), advice)


def _opened(path: Path, repairs: bool) -> tuple[Catalog | None, Finding, bool]:
    """The catalog, the finding about its opening, and whether it may be written."""
    problem = partial(Finding, "catalog", "problem")
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
        return catalog, Finding("catalog", "repaired", detail), repairs
    detail = f"opens{'' if repairs else ', read only'}, schema version {SCHEMA_VERSION}"
    return catalog, Finding("catalog", "ok", detail), repairs


def _open(path: Path, repairs: bool) -> tuple[Catalog, bool]:
    """The catalog, for writing where that is wanted and allowed."""
    only_read = partial(Catalog.open, path, create=False, read_only=True, cache=CACHE)
    if repairs:
        only_read().close()  # writing would make an empty database a catalog
        with suppress(StoreFull):
            return Catalog.open(path, create=False, cache=CACHE), True
    return only_read(repairs=False), False
