"""A folder of parts merged: new models at once, known ones as a catalog's are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ....errors import EmptyCatalog, StoreError
from ...catalog import Catalog
from ...parts import Part, PartFolder, commit_part, save_family
from ...tables.models import Known
from .model_batch import Counts

AT_ONCE = 1024
"""Models of one catalog, and of what DuckDB's cache holds, about: 30 MB of a base of 36 slots."""


def holds_parts(source: str | Path) -> bool:
    """Whether a source of a merge is a folder of parts, or its address; not a catalog's file."""
    return "://" in str(source) or Path(source).is_dir()


def merge_parts(
    target: Catalog,
    folder: str,
    counts: Counts,
    *,
    merge_catalog: Callable[[Path], None],
    tracked: Callable[[Sequence[Any]], Iterable[Any]],
) -> None:
    """Bring the parts of a folder into the target, but for damaged ones.

    Args:
        counts: Of the folder; models that the target did not know, and damaged parts, are added to
            it.
        merge_catalog: Merges a catalog with models that the target knows.
        tracked: Passes on the paths of the parts.

    Raises:
        EmptyCatalog: the folder has no parts.
    """
    parts = PartFolder(folder)
    paths = parts.paths()
    if not paths:
        raise EmptyCatalog(f"{folder}: no parts there; name a folder of `deltadex index --parts`")
    known: dict[str, dict[str, Known]] = {}
    batch: list[Part] = []
    n_held = 0
    for path in tracked(paths):
        try:
            part = parts.read(path)
        except StoreError as err:
            counts.damaged.append(str(err))
            continue
        if part.base not in known:
            known[part.base] = target.known(part.base)
        if _is_new(target, part, known[part.base]):
            n_new = len(commit_part(target, part, known[part.base]))
            counts.added, n_held = counts.added + n_new, n_held + n_new
            if n_held >= AT_ONCE:
                target.shed_memory()
                n_held = 0
            continue
        batch.append(part)
        for outcome in part.outcomes:
            known[part.base][outcome.model.id] = Known.of_outcome(outcome, part.written_at)
        if sum(len(part.outcomes) for part in batch) >= AT_ONCE:
            _merge_known(batch, merge_catalog)
            batch = []
    _merge_known(batch, merge_catalog)
    for base in known:
        save_family(target, base, None, None, ())


def _is_new(target: Catalog, part: Part, known: dict[str, Known]) -> bool:
    """Whether the target knows nothing that a part could contradict."""
    ids = [outcome.model.id for outcome in part.outcomes]
    if len(set(ids)) < len(ids) or not known.keys().isdisjoint(ids):
        return False
    base = target.base(part.base)
    return base is None or (base.revision, base.architecture) == (part.revision, part.architecture)


def _merge_known(parts: Sequence[Part], merge_catalog: Callable[[Path], None]) -> None:
    if not parts:
        return
    with TemporaryDirectory() as place:
        path = Path(place) / "parts.duckdb"
        with Catalog.open(path) as catalog:
            known: dict[str, dict[str, Known]] = {}
            for part in parts:
                commit_part(catalog, part, known.setdefault(part.base, {}))
            for base in known:
                save_family(catalog, base, None, None, ())
        merge_catalog(path)
