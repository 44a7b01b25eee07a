"""All checks, one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import duckdb

from ....errors import DeltadexError, StoreDamaged, StoreError, StoreFull, StoreLocked
from ...catalog import Catalog
from ...schema import SCHEMA_VERSION, schema_version
from ...session import Session, translated
from ...sharing import Ledger, Own
from .belonging import check_belonging
from .finding import Finding, Track, untracked
from .fingerprints import check_recipes, check_vectors
from .holder import Holding
from .leftovers import check_leftovers
from .patient import Patient
from .search_index import check_indexes
from .sketch_files import check_sketches
from .surroundings import look_around
from .tables import ADVICE, check_keys, check_tables, check_views

CACHE = "15%"
"""Of the memory: everything is read once."""

_Check = tuple[str, Callable[[Patient], Iterator[Finding]]]
_FIRST: tuple[_Check, ...] = (("tables", check_tables), ("recipes", check_recipes))
_THEN: tuple[_Check, ...] = (
    ("views", check_views),
    ("keys", check_keys),
    ("vectors", check_vectors),
    ("rows", check_belonging),
    ("index", check_indexes),
    ("sketches", check_sketches),
    ("leftovers", check_leftovers),
)


def examine(path: Path, *, repairs: bool = True, track: Track = untracked) -> Iterator[Finding]:
    """Findings about a catalog, what is derived from it, and what it stands in.

    Reads every block of the file once, a part at a time; other processes go on meanwhile if they
    hold it already, or if it may be written.

    Args:
        repairs: Mends what is derived: views, the next key, index files, sketches, notes and
            temporary files. Nothing else is ever changed, but for the schema's version.
        track: Shows how far the long checks are.
    """
    yield from look_around(path)
    holding = Holding.of(path)
    catalog, opened, repairs = _opened(path, repairs)
    yield holding.told(path)
    yield opened
    if catalog is None:
        return
    with catalog, closing(Session(catalog.access)) as session:
        patient = Patient(catalog, session, repairs, track)
        for name, check in _FIRST:
            findings = list(_checked(patient, name, check))
            yield from findings
            if any(finding.state == "problem" for finding in findings):
                advice = "mend that first"
                yield Finding("rest", "problem", "not looked at: the catalog is damaged", advice)
                return
        for name, check in _THEN:
            yield from _checked(patient, name, check)


def _checked(
    patient: Patient, name: str, check: Callable[[Patient], Iterator[Finding]]
) -> Iterator[Finding]:
    """What a check finds, or that it could not be made."""
    try:
        yield from check(patient)
    except StoreError as err:
        yield Finding(name, "problem", str(err), ADVICE if isinstance(err, StoreDamaged) else "")


def _opened(path: Path, repairs: bool) -> tuple[Catalog | None, Finding, bool]:
    """The catalog, what there is to say of its opening, and whether it may be written."""
    if not path.exists():
        line = f"{path}: no catalog there yet"
        return None, Finding("catalog", "problem", line, "`deltadex index` makes one"), False
    if not path.stat().st_size:
        advice = "remove it, or put a backup in its place"
        return None, Finding("catalog", "problem", f"{path}: an empty file", advice), False
    try:
        before = _schema_before(path)
        if before == 0:
            line = f"{path}: a database without a table, not a catalog"
            return None, Finding("catalog", "problem", line, "choose another --db"), False
        catalog, repairs = _open(path, repairs)
    except DeltadexError as err:
        advice = ADVICE if isinstance(err, StoreDamaged) else ""
        return None, Finding("catalog", "problem", str(err), advice), False
    if before is not None and before < SCHEMA_VERSION:
        line = f"brought from schema version {before} to {SCHEMA_VERSION}"
        return catalog, Finding("catalog", "repaired", line), repairs
    how = "" if repairs else ", read only"
    return (
        catalog,
        Finding("catalog", "ok", f"opens{how}, schema version {SCHEMA_VERSION}"),
        repairs,
    )


def _open(path: Path, repairs: bool) -> tuple[Catalog, bool]:
    """The catalog, for writing where that is wanted and allowed."""
    if repairs:
        try:
            return Catalog.open(path, create=False, cache=CACHE), True
        except StoreFull:
            pass
    return Catalog.open(path, create=False, read_only=True, cache=CACHE), False


def _schema_before(path: Path) -> int | None:
    """The schema's version before anything is changed; None while another process holds it.

    Raises:
        StoreError: the file cannot be opened.
    """
    place = str(path).replace("'", "''")
    with closing(Own(duckdb.connect(":memory:"), Ledger())) as own:
        try:
            with translated(path):
                own.execute(f"ATTACH '{place}' AS catalog (READ_ONLY)")
                own.execute("USE catalog")
                return schema_version(own, path)
        except StoreError as err:
            if isinstance(err, StoreLocked):
                return None
            raise
