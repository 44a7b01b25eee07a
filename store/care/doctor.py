"""`deltadex doctor`: all checks of a catalog, and which files beside it nothing reads.

Files that are derived, and those of attached indexes, are compared with their checksums wherever
they are read."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from ...errors import DeltadexError, EmptyCatalog, StoreDamaged, StoreError, StoreFull
from ...results import count, size
from ..catalog import Catalog
from ..commit_log import listed
from ..derived.footprint_bits import footprint_file
from ..files import abandoned, derived_path, index_folder, lexicon_file
from ..opening import SCHEMA_VERSION, is_file, refused_logs
from ..session import Track
from . import checks
from .checks import REPLACE_FILE, CheckContext, CheckLine

LEFT_AFTER_S = 600.0
"""Since a file was last written: its process may run in another container."""

_DERIVED = re.compile(r"([0-9a-f]{16})\.[a-z]+")


# files that no family or process needs


def check_leftovers(context: CheckContext) -> Iterator[CheckLine]:
    """No file beside the catalog is of an unknown family, or of a process that ended."""
    folder = index_folder(context.catalog.path)
    unused = [*_of_no_family(context, folder), *_temporaries(folder, "")]
    unused += _temporaries(context.catalog.path.parent, context.catalog.path.name)
    others = [p for p in _temporaries(context.catalog.path.parent, "") if p not in unused]
    taken = size(sum(path.stat().st_size for path in unused))
    names = listed([path.name for path in unused])
    detail = f"{count(len(unused), 'unused file')}, {taken}: {names}"
    if not unused:
        yield CheckLine("leftovers", "ok", "none")
    elif context.repairs:
        yield _remove_files(unused, detail)
    else:
        advice = "`deltadex doctor` without --check removes them"
        yield CheckLine("leftovers", "problem", detail, advice)
    if others:
        names = listed([path.name for path in others])
        detail = f"incomplete files beside the catalog, perhaps of a backup: {names}"
        yield CheckLine("leftovers", "note", detail, "remove them if no process writes them")


def _of_no_family(context: CheckContext, folder: Path) -> list[Path]:
    """Files named after a family and a recipe that the catalog does not have together."""
    pairs = context.catalog.execute("SELECT DISTINCT m.base, r.id FROM models m, recipes r")
    known = {derived_path(context.catalog.path, base, recipe).name for base, recipe in pairs}
    for file_of in (footprint_file, lexicon_file):
        known |= {file_of(context.catalog.path, base).stem for base, _ in pairs}
    return [
        path
        for path in sorted(folder.glob("*"))
        if (match := _DERIVED.fullmatch(path.name)) and match[1] not in known
    ]


def _temporaries(folder: Path, name: str) -> list[Path]:
    """Of `abandoned` files those that were written some time ago."""
    old = []
    for path in abandoned(folder, name):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > LEFT_AFTER_S:
                old.append(path)
    return old


def _remove_files(unused: list[Path], detail: str) -> CheckLine:
    """Remove the files; a process that has one of them open keeps what it reads."""
    for path in unused:
        with suppress(OSError):
            path.unlink(missing_ok=True)
    if left := [path.name for path in unused if path.exists()]:
        detail = f"{detail}; not ours to remove: {listed(left)}"
        return CheckLine("leftovers", "problem", detail, "remove them as their owner")
    return CheckLine("leftovers", "repaired", f"{detail}: removed")


CACHE = "15%"
"""Of the memory: everything is read once."""

Check = Callable[[CheckContext], Iterator[CheckLine]]
CHECKS: dict[str, Check] = {
    "tables": checks.check_tables,
    "table indexes": checks.check_table_indexes,
    "commits": checks.check_commits,
    "models": checks.check_models,
    "leftovers": check_leftovers,
}
READS_ALL = ("tables", "models")
"""What a quick examination leaves out: the time of these grows with the bytes of the catalog."""

FIRST = ("tables", "table indexes")
"""Without these the others are not made."""


def examine(
    path: Path,
    *,
    repairs: bool = True,
    quick: bool = False,
    track: Track = lambda parts, _: iter(parts),
) -> Iterator[CheckLine]:
    """Findings about a catalog, its derived files, and its environment.

    Reads every block of the file once, a part at a time; other processes go on between two parts.

    Args:
        repairs: Remove files that nothing reads; set a log aside that DuckDB refuses. Nothing
            else is ever changed.
        quick: Leave out what reads all of the file.
        track: Shows the progress of the long checks.
    """
    yield from (checks.versions(), checks.space(path))
    catalog, opened, repairs = _opened(path, repairs)
    yield opened
    if catalog is None:
        return
    with catalog:
        context = CheckContext(catalog, repairs, track)
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
                yield CheckLine("rest", "problem", "not checked: the catalog is damaged", advice)
                return
    if quick:
        advice = "`deltadex doctor` reads them"
        yield CheckLine("rest", "note", f"not checked: {', '.join(READS_ALL)}", advice)


def _problem(err: DeltadexError, check: str = "catalog") -> CheckLine:
    advice = REPLACE_FILE if isinstance(err, StoreDamaged) else ""
    return CheckLine(check, "problem", str(err), advice)


def _opened(path: Path, repairs: bool) -> tuple[Catalog | None, CheckLine, bool]:
    """The catalog, the finding about its opening, and whether it may be written."""
    problem = partial(CheckLine, "catalog", "problem")
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
        return catalog, CheckLine("catalog", "repaired", detail), repairs
    detail = f"opens{'' if repairs else ', read only'}, schema version {SCHEMA_VERSION}"
    return catalog, CheckLine("catalog", "ok", detail), repairs


def _open(path: Path, repairs: bool) -> tuple[Catalog, bool]:
    """The catalog, for writing where that is wanted and allowed."""
    only_read = partial(Catalog.open, path, create=False, read_only=True, cache=CACHE)
    if repairs:
        only_read().close()  # writing would make an empty database a catalog
        with suppress(StoreFull):
            return Catalog.open(path, create=False, cache=CACHE), True
    return only_read(repairs=False), False
