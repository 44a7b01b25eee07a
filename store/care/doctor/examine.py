"""All checks, one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from ....errors import DeltadexError, StoreDamaged, StoreError, StoreFull, StoreLocked
from ...catalog import Catalog
from ...opening import (
    NOTHING_ELSE,
    OF_DUCKDB,
    SCHEMA_VERSION,
    is_file,
    memory_connection,
    schema_version,
)
from ...recovery import Seen, find_repair
from ...session import Session, translated
from ...sharing import Ledger, LocalSession
from .checks import (
    RUN_REPAIR,
    CheckContext,
    Finding,
    HolderCheck,
    ManifestCheck,
    Track,
    check_environment,
)
from .database import (
    REPLACE_FILE,
    check_blocks,
    check_commits,
    check_data_sets,
    check_keys,
    check_linear,
    check_models,
    check_recipes,
    check_references,
    check_slots,
    check_table_indexes,
    check_tables,
    check_vectors,
    check_views,
)
from .derived_files import check_attached, check_indexes, check_leftovers, check_sketches

CACHE = "15%"
"""Of the memory: everything is read once."""

_Check = tuple[str, Callable[[CheckContext], Iterator[Finding]]]
_FIRST: tuple[_Check, ...] = (
    ("tables", check_tables),
    ("table indexes", check_table_indexes),
    ("blocks", check_blocks),
    ("recipes", check_recipes),
)
_THEN: tuple[_Check, ...] = (
    ("commits", check_commits),
    ("views", check_views),
    ("keys", check_keys),
    ("models", check_models),
    ("vectors", check_vectors),
    ("slots", check_slots),
    ("linear", check_linear),
    ("data sets", check_data_sets),
    ("rows", check_references),
    ("index", check_indexes),
    ("sketches", check_sketches),
    ("attached", check_attached),
    ("leftovers", check_leftovers),
)


def examine(
    path: Path, *, repairs: bool = True, track: Track = lambda parts, _: iter(parts)
) -> Iterator[Finding]:
    """Findings about a catalog, its derived files, and its environment.

    Reads every block of the file once, a part at a time; other processes go on meanwhile if they
    hold it already, or if it may be written.

    Args:
        repairs: Repair what is derived: views, the next key, index files, sketches, holder files
            and temporary files. Nothing else is ever changed, but for the schema's version.
        track: Shows the progress of the long checks.
    """
    yield from check_environment(path)
    holder, manifest = HolderCheck.of(path), ManifestCheck.of(path)
    catalog, opened, repairs = _opened(path, repairs)
    yield holder.finding(path)
    yield opened
    if catalog is None:
        if manifest is not None:
            yield manifest.finding(None)
        return
    with catalog, closing(Session(catalog.access)) as session:
        context = CheckContext(catalog, session, repairs, track)
        if manifest is not None:
            yield manifest.finding(context)
        for name, check in _FIRST:
            findings = list(_checked(context, name, check))
            yield from findings
            if any(finding.state == "problem" for finding in findings):
                advice = "repair that first"
                yield Finding("rest", "problem", "not checked: the catalog is damaged", advice)
                return
        for name, check in _THEN:
            yield from _checked(context, name, check)


def _checked(
    context: CheckContext, name: str, check: Callable[[CheckContext], Iterator[Finding]]
) -> Iterator[Finding]:
    """The findings of a check, or why it could not be made."""
    try:
        yield from check(context)
    except StoreError as err:
        yield _problem(err, name)


def _problem(err: DeltadexError, check: str = "catalog") -> Finding:
    return Finding(
        check, "problem", str(err), REPLACE_FILE if isinstance(err, StoreDamaged) else ""
    )


def _opened(path: Path, repairs: bool) -> tuple[Catalog | None, Finding, bool]:
    """The catalog, the finding about its opening, and whether it may be written."""
    detail = advice = ""
    try:
        is_there = is_file(path)
    except StoreError as err:
        return None, _problem(err), False
    if not is_there:
        detail, advice = f"{path}: no catalog there yet", "`deltadex index` makes one"
    elif not path.stat().st_size:
        detail, advice = f"{path}: an empty file", "remove it, or put a backup in its place"
    if detail:
        return None, Finding("catalog", "problem", detail, advice), False
    try:
        before, is_interrupted = _state_before(path)
        if is_interrupted and not repairs:
            detail = f"{path}: the machine stopped while this catalog was written"
            return None, Finding("catalog", "problem", detail, RUN_REPAIR), False
        if before == 0:
            detail = f"{path}: a database without a table, not a catalog"
            return None, Finding("catalog", "problem", detail, "choose another --db"), False
        catalog, repairs = _open(path, repairs)
    except DeltadexError as err:
        return None, _problem(err), False
    if is_interrupted:
        detail = "what was not complete when the machine stopped is undone"
        return catalog, Finding("catalog", "repaired", detail), repairs
    if before is not None and before < SCHEMA_VERSION:
        detail = f"brought from schema version {before} to {SCHEMA_VERSION}"
        return catalog, Finding("catalog", "repaired", detail), repairs
    detail = f"opens{'' if repairs else ', read only'}, schema version {SCHEMA_VERSION}"
    return catalog, Finding("catalog", "ok", detail), repairs


def _open(path: Path, repairs: bool) -> tuple[Catalog, bool]:
    """The catalog, for writing where that is wanted and allowed."""
    if repairs:
        try:
            return Catalog.open(path, create=False, cache=CACHE), True
        except StoreFull:
            pass
    return Catalog.open(path, create=False, read_only=True, cache=CACHE, migrates=False), False


def _state_before(path: Path) -> tuple[int | None, bool]:
    """As `_schema_before`, and whether the file is as a power loss left it, to be repaired."""
    try:
        return _schema_before(path), False
    except StoreDamaged as err:
        if find_repair(path, str(err.__cause__), Seen.of(path)) is None:
            raise
        return None, True


def _schema_before(path: Path) -> int | None:
    """The schema's version before anything is changed; None while another process holds it."""
    quoted = str(path).replace("'", "''")
    with closing(LocalSession(memory_connection(), Ledger())) as own:
        try:
            with translated(path):
                own.execute(f"ATTACH '{quoted}' AS catalog ({OF_DUCKDB}, READ_ONLY)")
                own.execute("USE catalog")
                own.execute(NOTHING_ELSE)
                return schema_version(own, path)
        except StoreLocked:
            return None
