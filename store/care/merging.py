"""A merge of catalogs and parts: models, families, vectors, slots, studies and data sets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import filterfalse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...errors import REASONS, EmptyCatalog, RequestError, StoreDamaged, StoreError
from ...records import Recipe
from ..catalog import Catalog
from ..exchange import RECIPE_NAME
from ..model_rows import model_faults, short_id
from ..opening import is_file
from ..parts import PartFolder, commit_part
from ..session import Session, Track
from ..tables import outcomes
from ..tables.documents import Signatures, replace_signature
from ..tables.footprints import take_family_tokenizer, take_tokenizer
from ..tables.models import ModelRow, count_models, insert_rows, new_keys, update_models
from ..tables.recipes import BaseRecord, recipe_tables, replace_base, select_base, select_bases

Row = Mapping[str, Any]
"""A row of `models`, by column."""

_LABEL = ("dataset", "dataset_raw", "label_source")
_MAKER = ("author", "run")
_FACTS = ("base_raw", "revision", "content_sha256", "task", "license", "downloads", "created_at")
_TRUST = ("labels", "tags", "card", "model-index", "sentence", "name", None)
"""Where labels come from, the most trusted first."""

FILLED = (*_LABEL, *_MAKER, *_FACTS)
"""Columns that a model of the same weights may fill."""

_SHOWN: dict[str, tuple[str, ...]] = {
    "weights": ("kind", "revision", "signature", "content_sha256", "source", "indexed_at"),
    "labels": ("dataset", "label_source", "author", "run"),
    "data set": ("sha256", "examples", "loss", "recipe", "made_at"),
}


def same_files(ours: Row, theirs: Row) -> bool:
    """Whether two indexed models are known to have the same weights."""
    if ours["content_sha256"] and theirs["content_sha256"]:
        return bool(ours["content_sha256"] == theirs["content_sha256"])
    return bool(ours["signature"] and ours["signature"] == theirs["signature"])


def labelled(ours: Row, theirs: Row) -> dict[str, Any]:
    """Our labels, with what they lack from theirs: a label is taken with where it came from."""
    better = theirs if _trust(theirs) < _trust(ours) else ours
    is_open = not _says(ours) or ours["dataset"] == theirs["dataset"]
    labels = {name: (better if is_open else ours)[name] for name in _LABEL}
    return labels | {name: theirs[name] if ours[name] is None else ours[name] for name in _MAKER}


def filled(ours: Row, theirs: Row) -> dict[str, Any]:
    """Our row, with what it lacks from theirs; labels only, where one has no weights."""
    row = {**ours, **labelled(ours, theirs)}
    if ours["status"] == theirs["status"] == "indexed":
        row |= {name: theirs[name] for name in _FACTS if row[name] is None}
    return row


def labels_differ(ours: Row, theirs: Row) -> bool:
    """Whether both say something, and not the same."""
    if _says(ours) and _says(theirs) and ours["dataset"] != theirs["dataset"]:
        return True
    return any(
        None not in (ours[name], theirs[name]) and ours[name] != theirs[name] for name in _MAKER
    )


def _worth(row: Row) -> tuple[bool, bool, str, str, str]:
    """Higher for the outcome that is kept: indexed before refused, what stays refused before what
    may pass, the later before the earlier. In whichever order catalogs are merged, one and the same
    is left."""
    reason = REASONS.get(row["code"] or "")
    return (
        row["status"] == "indexed",
        reason is not None and not reason.transient,
        str(row["indexed_at"]),
        row["code"] or "",
        row["reason"] or "",
    )


def _says(row: Row) -> bool:
    """Whether anything is known of its dataset, be it that it is unknown."""
    return row["dataset"] is not None or row["label_source"] is not None


def _trust(row: Row) -> tuple[bool, int]:
    """Lower for what is to be believed first."""
    source = row["label_source"]
    return not _says(row), _TRUST.index(source) if source in _TRUST else len(_TRUST)


Name = tuple[str, str]
"""Base and id."""

THESE = "(SELECT unnest(?::BIGINT[]))"


@dataclass(slots=True)
class Counts:
    """What became of the source's models.

    Attributes:
        updated: Known ones that got something they lacked, or a better outcome.
        differing: Known ones of other weights: nothing of them was taken.
        data_sets: Kept data sets that were added.
        damaged: Parts and models that were left out, one line each.
    """

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    differing: int = 0
    data_sets: int = 0
    conflicts: list[Row] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Source:
    """The catalog that is merged; its recipes by id, with the table of their vectors."""

    name: str
    session: Session
    recipes: Mapping[str, tuple[Recipe, str]]
    counts: Counts

    def note_conflict(
        self, about: str, model: str | None, ours: Row, theirs: Row, shown: Sequence[str] = ()
    ) -> None:
        """Note values that differ between two catalogs, as far as they matter: the target's are
        kept, the source's are the other; `model` is an id, or the name of a data set."""
        names = shown or _SHOWN[about]
        where = {"base": ours["base"], "model": model, "about": about, "source": self.name}
        kept, other = ({name: row[name] for name in names} for row in (ours, theirs))
        self.counts.conflicts.append({**where, "kept": kept, "other": other})


COUNTED = ("added", "updated", "unchanged", "differing", "data_sets")


def merge_models(target: Session, source: Source, names: Sequence[Name]) -> None:
    """Bring the source's models of these names into the target, but for damaged ones."""
    ours = {(row["base"], row["id"]): row for row in _rows(target, names)}
    counts = source.counts
    new: list[Row] = []
    better: list[tuple[Row, Row]] = []
    same: list[tuple[Row, Row]] = []
    for row in _sound_rows(source, names):
        own = ours.get((row["base"], row["id"]))
        if own is None:
            new.append(row)
            continue
        are_indexed = own["status"] == row["status"] == "indexed"
        if are_indexed and not same_files(own, row):
            source.note_conflict("weights", own["id"], own, row)
            counts.differing += 1
            continue
        if labels_differ(own, row):
            source.note_conflict("labels", own["id"], own, row)
        is_better = not are_indexed and _worth(row) > _worth(own)
        (better if is_better else same).append((own, row))
    outcomes.delete_models(target, [own["key"] for own, _ in better])
    _write(target, source, [*new, *({**row, **labelled(own, row)} for own, row in better)])
    n_completed = len(_complete(target, source, same))
    counts.added += len(new)
    counts.updated += len(better) + n_completed
    counts.unchanged += len(same) - n_completed


def _sound_rows(source: Source, names: Sequence[Name]) -> list[dict[str, Any]]:
    """The source's models whose rows are what a catalog may hold; the others are damaged."""
    rows = _rows(source.session, names)
    keys = [row["key"] for row in rows]
    found = model_faults(source.session, source.recipes, f"{{0}} IN {THESE}", [keys])
    faults = {key: fault for key, _, fault in found}
    source.counts.damaged += [
        f"{source.name}: model {short_id(row['id'])} is not what `deltadex index` writes "
        f"({faults[row['key']]}); index it again"
        for row in rows
        if row["key"] in faults
    ]
    return [row for row in rows if row["key"] not in faults]


def _rows(session: Session, names: Sequence[Name]) -> list[dict[str, Any]]:
    """The models of these names, in the order in which they were recorded; each once."""
    table = session.arrow(
        "SELECT m.* FROM models m JOIN (SELECT unnest(?::VARCHAR[]) AS base, "
        "unnest(?::VARCHAR[]) AS id) USING (base, id)",
        [[base for base, _ in names], [id for _, id in names]],
    )
    rows = sorted(table.to_pylist(), key=lambda row: int(row["key"]))
    return list({(row["base"], row["id"]): row for row in rows}.values())


def _write(target: Session, source: Source, rows: Sequence[Row]) -> None:
    """Copy the source's models, whose rows these are, with all that belongs to them."""
    keys = dict(zip([row["key"] for row in rows], new_keys(target, len(rows)), strict=True))
    insert_rows(target, "models", [{**row, "key": keys[row["key"]]} for row in rows])
    _take(target, source, keys)


def _complete(target: Session, source: Source, pairs: Sequence[tuple[Row, Row]]) -> set[int]:
    """Give known models what they lack, and new keys where that is vectors or slots; the source's
    keys of those that lacked something."""
    own_of = {b["key"]: a["key"] for a, b in pairs if a["status"] == b["status"] == "indexed"}
    changed = {b["key"]: (a["key"], row) for a, b in pairs if (row := filled(a, b)) != a}
    columns = [{"key": key} | {name: row[name] for name in FILLED} for key, row in changed.values()]
    update_models(target, columns, ("key",))
    taken = _take(target, source, own_of)
    measured = set().union(*(keys for table, keys in taken.items() if table not in _BESIDE_VECTORS))
    keys = zip(sorted(measured), new_keys(target, len(measured)), strict=True)
    outcomes.move_models(target, {own_of[key]: new for key, new in keys})
    return changed.keys() | set().union(*taken.values())


_BESIDE_VECTORS = ("linear_sketches", "studies", "footprints")
"""Of these no derived file is made."""


def _take(target: Session, source: Source, keys: Mapping[int, int]) -> dict[str, set[int]]:
    """Give models what they lack of the source's: key there → key here. By the target's table, the
    source's keys of those that lacked some."""
    of_recipes = {table: recipe for recipe, table in source.recipes.values()}
    taken: dict[str, set[int]] = {}
    for table in (*of_recipes, *outcomes.BESIDE) if keys else ():
        sql = f"SELECT * FROM {table} WHERE model IN {THESE}"
        rows = source.session.arrow(sql, [list(keys)])
        if not rows.num_rows:
            continue
        own = outcomes.ensure_table(target, of_recipes[table]) if table in of_recipes else table
        with target.registered("merged_rows", rows):
            taken[own] = outcomes.take_rows(target, own, "merged_rows", keys)
        if table == "footprints":
            named = rows.select(["model", "tokenizer", "lexicon"]).to_pylist()
            lacked = [row for row in named if row["model"] in taken[own]]
            hashes = {row[name] for row in lacked for name in ("tokenizer", "lexicon")}
            for sha256 in hashes - {None}:
                take_tokenizer(target, source.session, sha256)
    return taken


HOW_DATA_WAS_READ = ("sha256", "examples", "loss", "recipe", "settings")
"""Columns that are equal where two data sets were made of the same bytes in the same way."""


def merge_data_sets(target: Session, source: Source) -> None:
    """Copy the data sets whose names the target has not; under one name the target's stays."""
    ours = {(row["base"], row["name"]): row for row in outcomes.select_data_sets(target)}
    for row in outcomes.select_data_sets(source.session):
        own = ours.get((row["base"], row["name"]))
        if own is None:
            outcomes.replace_data_set(target, outcomes.data_set_of(source.session, row))
            source.counts.data_sets += 1
        elif any(own[column] != row[column] for column in HOW_DATA_WAS_READ):
            source.note_conflict("data set", own["name"], own, row)


def merge_signatures(target: Session, source: Source) -> None:
    """Copy the signatures of bases that the target has not."""
    held = {signature.base for signature in Signatures(target).all()}
    for signature in Signatures(source.session).all():
        if signature.base not in held:
            replace_signature(target, signature)


def holds_parts(source: str | Path) -> bool:
    """Whether a source of a merge is a folder of parts, or its address; not a catalog's file."""
    return "://" in str(source) or Path(source).is_dir()


@contextmanager
def _catalog_of(source: str | Path, counts: Counts, track: Track) -> Iterator[Path]:
    """The file of a source: itself, or a temporary one of the parts in a folder, but for damaged
    ones."""
    if not holds_parts(source):
        yield Path(source)
        return
    parts = PartFolder(str(source))
    paths = parts.paths()
    if not paths:
        raise EmptyCatalog(f"{source}: no parts there; name a folder of `deltadex index --parts`")
    known: dict[str, dict[str, ModelRow]] = {}
    with TemporaryDirectory() as place:
        path = Path(place) / "parts.duckdb"
        with Catalog.open(path) as catalog:
            for name in track(paths, "merging"):
                try:
                    part = parts.read(name)
                    commit_part(catalog, part, known.setdefault(part.base, {}))
                except StoreError as err:
                    counts.damaged.append(str(err))
            for base in catalog.bases():
                catalog.save_family(BaseRecord(base=base))
        yield path


AT_ONCE = 256
"""Models of one transaction: 10 MB of sketches, of a base of 36 slots."""

CACHE = "10%"
"""Of the memory, for a source: every page of it is read once."""


def merge_catalogs(
    target: Catalog, sources: Sequence[str | Path], *, track: Track = lambda things, _: iter(things)
) -> dict[str, Any]:
    """Bring all that the sources know into the target, one after the other. Returns the counts of
    models, their sums and by source, every conflict, and what was left out.

    A source is only read, and may be held by another process. A model that the target has not
    is copied; one of the same weights gets the vectors, slots, studies and labels that it lacks;
    one of other weights stays as the target has it, and is reported. What was merged before an
    error or a kill stays, and the same merge goes on. Walks of the Hub are not merged. A
    data set is copied where the target has none of that name.

    Args:
        sources: Files, or folders and fsspec addresses of parts.

    Raises:
        RequestError: a source is the target itself.
        EmptyCatalog: there is no such source.
        StoreError: a source is damaged, or of another version; or the target cannot be written.
    """
    started = time.perf_counter()
    for path in map(Path, filterfalse(holds_parts, sources)):
        if not is_file(path):
            raise EmptyCatalog(f"{path}: no catalog there; name a file that `deltadex index` made")
        if is_file(target.path) and path.samefile(target.path):
            raise RequestError(f"{path}: this is the target itself; name another catalog")
    by_source: dict[str, Counts] = {}
    for place in sources:
        counts = by_source.setdefault(str(place), Counts())
        with _catalog_of(place, counts, track) as path:
            _merge_catalog(target, str(place), counts, path, track)
    for base in select_bases(target):
        target.settle_copies(base)
    listed = [
        {"source": place, **{name: getattr(counts, name) for name in COUNTED}}
        for place, counts in by_source.items()
    ]
    return {
        "target": str(target.path),
        **{name: sum(source[name] for source in listed) for name in COUNTED},
        "conflicts": [row for counts in by_source.values() for row in counts.conflicts],
        "sources": listed,
        "models": count_models(target, ()),
        "damaged": [line for counts in by_source.values() for line in counts.damaged],
        "seconds": round(time.perf_counter() - started, 3),
    }


def _merge_catalog(target: Catalog, name: str, counts: Counts, path: Path, track: Track) -> None:
    with Catalog.open(path, read_only=True, create=False, cache=CACHE, repairs=False) as reading:
        source = Source(name, reading, _recipes(reading, path), counts)

        def write(change: Callable[[Session, Source], None]) -> None:
            """Change the target in one transaction, from one moment of the source."""
            target.write(lambda writing: reading.look(lambda: change(writing, source)))

        write(merge_families)
        names = reading.execute("SELECT base, id FROM models GROUP BY ALL ORDER BY min(key)")
        batches = [names[start : start + AT_ONCE] for start in range(0, len(names), AT_ONCE)]
        for batch in track(batches, "merging"):
            write(partial(merge_models, names=batch))
        write(merge_data_sets)
        write(merge_signatures)


def merge_families(target: Session, source: Source) -> None:
    """Bring what the source knows of bases into the target."""
    stored = "SELECT base FROM families ORDER BY base"
    held = target.column(stored)
    for base in source.session.column(stored):
        ours, theirs = (select_base(session, base) for session in (target, source.session))
        joined, layout = ours.completed(theirs), tuple(sorted({*ours.layout, *theirs.layout}))
        joined = replace(joined, shapes=dict(sorted(joined.shapes.items())), layout=layout)
        if joined != ours or base not in held:
            replace_base(target, joined)
        take_family_tokenizer(target, source.session, base)
        kept, other = _facts(ours), _facts(theirs)
        both = [name for name in kept if None not in (kept[name], other.get(name))]
        if differ := [name for name in both if kept[name] != other[name]]:
            source.note_conflict("base", None, kept, other, differ)


def _facts(record: BaseRecord) -> dict[str, Any]:
    """What two catalogs may say differently of a base."""
    facts = {
        name: getattr(record, name) for name in ("base", "revision", "architecture", "license")
    }
    return facts | {slot: list(shape) for slot, shape in sorted(record.shapes.items())}


def _recipes(reading: Session, path: Path) -> dict[str, tuple[Recipe, str]]:
    """The source's recipes by id, with their tables; a name that is unsafe in SQL is refused."""
    recipes = recipe_tables(reading)
    for id, (recipe, table) in recipes.items():
        is_named = recipe.id == id and table == outcomes.vectors_name(recipe)
        if not (is_named and RECIPE_NAME.fullmatch(recipe.name)):
            raise StoreDamaged(f"{path}: recipe {id!r} is not what its id promises")
    return recipes
