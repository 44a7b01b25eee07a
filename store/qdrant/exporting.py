"""A family's vectors brought to Qdrant: what is new is written, what is gone removed, all checked;
and the choice of what gives the candidates of searches.

The collection itself says how far an export came. A point is right where its payload is the one
that the catalog gives, which has a checksum of the vector: a model that changed has another key.
So an export that was killed is continued by running it again, and a second one writes differences.
At the end every vector is read back.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from ...arrays import Int64, UInt64
from ...errors import EmptyCatalog, EngineError, RecipeMismatch, RequestError, StoreFull
from ...records import Recipe
from ..catalog import Catalog
from ..files import derived_path, make_folder, write_atomically
from ..session import Session
from ..tables.outcomes import CLOSE, fetch_vectors_of
from .index import (
    DIGEST_DIGITS,
    FORMS,
    NUMBERS_AT_ONCE,
    READ_AT_ONCE,
    UPSERTED_AT_ONCE,
    EdgeTarget,
    ExportedFamilies,
    Keys,
    Payload,
    PointCollection,
    Target,
    Vectors,
    digests,
    is_target,
    keys_of,
    pages,
    parse_target,
    search_points,
)

log = logging.getLogger(__name__)

KEPT = 32
"""Nearest that are kept of each query: the ten, and those as good as the tenth."""

NEAREST = 10

NOTE_ENDING = ".qdrant"
"""Of the file beside a catalog that tells of a family's last complete export."""


class ExactNeighbours:
    """The nearest of some queries among vectors that are given batch by batch."""

    def __init__(self, keys: Keys, vectors: Vectors) -> None:
        """Queries are models themselves, and no neighbours of their own."""
        self.keys, self.vectors = keys, vectors
        self._scores = np.full((len(keys), KEPT), -np.inf, dtype=np.float32)
        self._nearest = np.full((len(keys), KEPT), -1, dtype=np.int64)

    def add(self, keys: Keys, vectors: Vectors) -> None:
        """Compare the queries with some models."""
        if not len(keys) or not len(self.keys):
            return
        scores = self.vectors @ vectors.T  # (queries, models)
        scores[self.keys[:, None] == keys[None, :]] = -np.inf
        n_best = min(KEPT, len(keys))
        best = np.argpartition(-scores, n_best - 1, axis=1)[:, :n_best]
        scores = np.concatenate([self._scores, np.take_along_axis(scores, best, axis=1)], axis=1)
        nearest = np.concatenate([self._nearest, keys[best]], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :KEPT]
        self._scores = np.take_along_axis(scores, order, axis=1)
        self._nearest = np.take_along_axis(nearest, order, axis=1)

    def recall(self, query: int, answer: Int64[np.ndarray, " found"]) -> float:
        """Share of the ten nearest of a query, or of all if there are fewer, that an answer holds;
        another as good as the tenth counts like it."""
        n_nearest = min(NEAREST, int((self._nearest[query] >= 0).sum()))
        if not n_nearest:
            return 1.0
        least = self._scores[query, n_nearest - 1] - CLOSE
        as_good = self._nearest[query][(self._scores[query] >= least) & (self._nearest[query] >= 0)]
        hits = np.isin(answer[answer != self.keys[query]][:n_nearest], as_good).sum()
        return float(hits) / n_nearest


RECALL_QUERIES = 1_000
VECTORS_AT_ONCE = 512
"""Points of a page with vectors."""

REMOVED_AT_ONCE = 10_000

FIELDS = ("kind", "dataset", "author", "run", "task", "license", "downloads")
"""Columns of `models` that a point's payload has beside base, recipe, model, key and digest."""

Tracked = Callable[[Iterable[Any], str, int], Iterator[Any]]
"""Passes on things and shows how far they are; takes what they are, and how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What an export did, and what the check at its end found.

    Attributes:
        models: Points in the collection.
        added: Points that were written, of new models and of changed labels.
        removed: Points of models that are gone.
        repaired: Points whose vectors differed, and were written again.
        bytes: On the disk, where the engine is in this process.
        checksum: SHA-256 over keys and vectors as they were read back; the catalog's is the same.
        recall_at_10: Of `queries` models as queries, against all vectors of the catalog.
        newest_key: Of the family's models at the start: every change of a model has a newer one.
    """

    target: str
    base: str
    recipe: str
    models: int
    added: int
    removed: int
    repaired: int
    bytes: int | None
    checksum: str
    recall_at_10: float
    queries: int
    newest_key: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The documented keys, ready for json.dumps."""
        return asdict(self)


def export_vectors(
    catalog: Catalog, target: Target, *, base: str, recipe: Recipe, tracked: Tracked
) -> Exported:
    """Bring a family's vectors under a recipe to a target, and check them there.

    Raises:
        EmptyCatalog: there are none.
        RecipeMismatch: the target holds vectors of another recipe, family or program.
        EngineError: the engine fails, or does not give back what was written.
        StoreFull: the target has no space left.
    """
    started = time.monotonic()
    view = catalog.family(base, recipe, is_current=True)
    if not len(view):
        raise EmptyCatalog(f"no model of {base} has a {recipe.name} fingerprint")
    collection = open_collection(target)
    try:
        with closing(Session(catalog.access)) as session:
            export = _Export(collection, session, base, recipe, view.keys, tracked)
            recall = export.run()
            size = collection.seal()
    finally:
        collection.close()
    exported = Exported(
        target=collection.target,
        base=base,
        recipe=recipe.id,
        models=len(export.present),
        added=export.n_added,
        removed=export.n_removed,
        repaired=export.n_repaired,
        bytes=size,
        checksum=export.checksum.hexdigest(),
        recall_at_10=recall,
        queries=len(export.neighbours.keys),
        newest_key=int(view.keys[-1]),
        seconds=round(time.monotonic() - started, 3),
    )
    try:
        path = derived_path(catalog.path, base, recipe.id, NOTE_ENDING)
        make_folder(path.parent)
        write_atomically(path, json.dumps(exported.to_json(), indent=1).encode())
    except StoreFull as err:
        log.warning("the export is complete, but not noted beside the catalog: %s", err)
    return exported


class _Export:
    """One run of an export: a family's points as the catalog gives them, and what was written.

    Attributes:
        present: Keys of the models that had a vector when it was read, rising.
        digests: The checksum of the vector of each.
        checksum: Over all keys and vectors.
        neighbours: The nearest of a sample of models.
    """

    def __init__(
        self,
        collection: PointCollection,
        session: Session,
        base: str,
        recipe: Recipe,
        keys: Keys,
        tracked: Tracked,
    ) -> None:
        self._collection, self._session, self._tracked = collection, session, tracked
        self._base, self._recipe, self._keys = base, recipe, keys
        # of those models that still have one
        self._vectors = partial(fetch_vectors_of, session, recipe)
        self.present: Int64[np.ndarray, " present"] = np.zeros(0, dtype=np.int64)
        self.digests: UInt64[np.ndarray, " present"] = np.zeros(0, dtype=np.uint64)
        self.checksum = hashlib.sha256()
        spread = np.linspace(0, len(keys) - 1, min(RECALL_QUERIES, len(keys))).astype(np.int64)
        self.neighbours = ExactNeighbours(*self._vectors(keys[spread]))
        self.n_added = self.n_removed = self.n_repaired = 0

    def run(self) -> float:
        """Write the differences, have the graph made, and check everything; the recall."""
        keys_before, checksums_before = self._points_before()
        if self._collection.dim is None:
            self._collection.create(self._recipe.dim)
        for keys, vectors, payloads in self._batches():
            checksums = np.array([_payload_checksum(one) for one in payloads], dtype=np.uint64)
            places = np.searchsorted(keys_before, keys)
            is_new = np.append(keys_before, -1)[places] != keys
            is_new |= np.append(checksums_before, 0)[places] != checksums
            self._write(keys, vectors, payloads, np.flatnonzero(is_new))
            self.n_added += int(is_new.sum())
        gone = np.setdiff1d(keys_before, self.present)
        for start in range(0, len(gone), REMOVED_AT_ONCE):
            self._collection.delete(gone[start : start + REMOVED_AT_ONCE])
        self.n_removed = len(gone)
        self._build()
        self._check_vectors()
        return self._measure_recall()

    def _payloads(self, keys: Keys, vectors: Vectors) -> list[Payload]:
        """What the points of some models carry beside their vectors."""
        columns = ", ".join(("key", "id", *FIELDS))
        rows = self._session.execute(
            f"SELECT {columns} FROM models WHERE key IN (SELECT unnest(?::BIGINT[]))",
            [keys.tolist()],
        )
        by_key = {row[0]: row[1:] for row in rows}
        return [
            {
                "base": self._base,
                "recipe": self._recipe.id,
                "key": key,
                "digest": f"{own:0{DIGEST_DIGITS}x}",
                **dict(zip(("model", *FIELDS), by_key.get(key, ()), strict=False)),
            }
            for key, own in zip(keys.tolist(), digests(vectors).tolist(), strict=True)
        ]

    def _batches(self) -> Iterator[tuple[Keys, Vectors, list[Payload]]]:
        """Every point, by rising key; the attributes are complete after the last."""
        starts, read = range(0, len(self._keys), READ_AT_ONCE), []
        for start in self._tracked(starts, "exporting", len(starts)):
            keys, vectors = self._vectors(self._keys[start : start + READ_AT_ONCE])
            read.append((keys, digests(vectors)))
            self.checksum.update(_bytes_of(keys, vectors))
            self.neighbours.add(keys, vectors)
            yield keys, vectors, self._payloads(keys, vectors)
        self.present = np.concatenate([self.present, *(keys for keys, _ in read)])
        self.digests = np.concatenate([self.digests, *(values for _, values in read)])

    def _points_before(self) -> tuple[Keys, UInt64[np.ndarray, " models"]]:
        """Keys, rising, and checksums of the payloads of the points that are there; raises
        `RecipeMismatch` if they are not of this family and recipe; nothing was changed."""
        target, dim, recipe = self._collection.target, self._collection.dim, self._recipe
        if dim not in (None, recipe.dim):
            raise RecipeMismatch(
                f"{target} holds vectors of {dim} numbers, and {recipe.name} has {recipe.dim}: "
                "name another target"
            )
        points: dict[int, int] = {}
        for page in pages(self._collection, READ_AT_ONCE, with_vectors=False) if dim else ():
            for point in page:
                of = point.payload.get("base"), point.payload.get("recipe")
                if of != (self._base, recipe.id):
                    whose = "of another program" if None in of else f"of {of[0]} under {of[1]}"
                    raise RecipeMismatch(
                        f"{target} holds points {whose}, not of {self._base} under {recipe.id}: "
                        "name another target"
                    )
                points[point.key] = _payload_checksum(point.payload)
        return np.array(list(points), np.int64), np.array(list(points.values()), np.uint64)

    def _write(
        self,
        keys: Keys,
        vectors: Vectors,
        payloads: list[Payload],
        places: Int64[np.ndarray, " places"],
    ) -> None:
        at_once = max(1, min(UPSERTED_AT_ONCE, NUMBERS_AT_ONCE // vectors.shape[1]))
        for start in range(0, len(places), at_once):
            chosen = places[start : start + at_once]
            self._collection.upsert(
                keys[chosen], vectors[chosen], [payloads[place] for place in chosen.tolist()]
            )

    def _build(self) -> None:
        for _ in self._tracked(range(1), "building the graph", 1):
            self._collection.build()

    def _check_vectors(self) -> None:
        """Read everything back, and write again, once, what differs; raises `EngineError` if it
        differs still."""
        wrong = self._differing()
        if not len(wrong):
            return
        self.n_repaired = len(wrong)
        for start in range(0, len(wrong), READ_AT_ONCE):
            present, vectors = self._vectors(wrong[start : start + READ_AT_ONCE])
            payloads = self._payloads(present, vectors)
            self._write(present, vectors, payloads, np.arange(len(present)))
        self._build()
        wrong = self._differing()
        if len(wrong):
            raise EngineError(
                f"{self._collection.target}: {len(wrong)} points differ from the catalog after "
                f"they were written twice (keys {', '.join(map(str, wrong[:3].tolist()))}): remove "
                "it and run `deltadex export` again"
            )

    def _differing(self) -> Int64[np.ndarray, " wrong"]:
        """Keys of the points that differ, are missing, or should not be there; raises `EngineError`
        if all points are right, and their count or checksum is not."""
        checksum, n_models = hashlib.sha256(), len(self.present)
        here, wrong = [self.present[:0]], [self.present[:0]]
        read = pages(self._collection, VECTORS_AT_ONCE, with_vectors=True)
        for page in self._tracked(read, "checking", -(-n_models // VECTORS_AT_ONCE)):
            keys = keys_of(page)
            vectors = np.stack([point.vector for point in page if point.vector is not None])
            checksum.update(_bytes_of(keys, vectors))
            places = np.searchsorted(self.present, keys)
            is_right = np.append(self.present, -1)[places] == keys
            is_right &= np.append(self.digests, 0)[places] == digests(vectors)
            here.append(keys)
            wrong.append(keys[~is_right])
        wrong.append(np.setdiff1d(self.present, np.concatenate(here)))
        differing: Int64[np.ndarray, " wrong"] = np.concatenate(wrong)
        is_equal = checksum.digest() == self.checksum.digest()
        n_here = self._collection.count()
        if not len(differing) and not (is_equal and n_here == n_models):
            raise EngineError(
                f"{self._collection.target}: {n_here} points, where the catalog has "
                f"{n_models}; the checksums {'agree' if is_equal else 'differ'}: does "
                "another process write to it? Run the same command again"
            )
        return differing

    def _measure_recall(self) -> float:
        recalls, queries = [], list(enumerate(self.neighbours.vectors))
        for number, vector in self._tracked(queries, "measuring recall", len(queries)):
            found, _ = search_points(
                self._collection, self.present, len(self.present), vector, NEAREST + 1
            )
            recalls.append(self.neighbours.recall(number, found))
        return round(float(np.mean(recalls)), 4) if recalls else 1.0


def _payload_checksum(payload: Payload) -> int:
    """A checksum of a payload, whatever the order of its fields."""
    text = json.dumps(dict(payload), sort_keys=True, default=str)
    return xxhash.xxh3_64_intdigest(text.encode())


def _bytes_of(keys: Keys, vectors: Vectors) -> bytes:
    """Keys and vectors, point by point, for a checksum."""
    points = np.empty(len(keys), dtype=[("key", "<i8"), ("vector", "<f4", vectors.shape[1:])])
    points["key"], points["vector"] = keys, vectors
    return points.tobytes()


def read_note(catalog: Path, base: str, recipe: str) -> dict[str, Any] | None:
    """The last complete export of a family; None where none is noted."""
    try:
        note = json.loads(derived_path(catalog, base, recipe, NOTE_ENDING).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return dict(note) if isinstance(note, dict) and isinstance(note.get("target"), str) else None


def open_collection(target: Target) -> PointCollection:
    """The collection at a target; with `dim` None, where there is none yet.

    Raises:
        EngineError: it is damaged, not reached, or not ours.
        RequestError: the engine is not installed.
    """
    try:
        if isinstance(target, EdgeTarget):
            from .edge import EdgeCollection

            return EdgeCollection(target.folder)
        from .server import ServerCollection

        return ServerCollection.at(target)
    except ModuleNotFoundError as err:
        name = (err.name or "").split(".")[0]
        if name not in ("qdrant_edge", "qdrant_client"):
            raise
        raise RequestError(
            f"{target} needs {name.replace('_', '-')}: pip install 'deltadex[qdrant]'"
        ) from err


TARGET_VARIABLE = "DELTADEX_QDRANT"


def use_exported(catalog: Catalog, engine: str) -> dict[tuple[str, str], str]:
    """Have searches of a catalog take candidates from Qdrant; returns the targets by base and
    recipe. Other families stay with FAISS.

    Args:
        engine: A target as `parse_target` takes it; or `qdrant`, for that of the environment's
            DELTADEX_QDRANT, else for those of the last exports from this catalog.

    Raises:
        EngineError: a target is not reached, damaged, or empty.
        RecipeMismatch: a target holds no family of this catalog.
        RequestError: no export is noted, or a target is not understood.
    """
    exported = catalog.access.derived(ExportedFamilies)
    families = [(group["base"], group["id"]) for group in catalog.stats()["recipes"]]
    if engine != "qdrant" and not is_target(engine):
        raise RequestError(f"no engine of that name: give faiss, qdrant, {FORMS}")
    target = os.environ.get(TARGET_VARIABLE) if engine == "qdrant" else engine
    if target:
        collection = open_collection(parse_target(target))
        try:
            family = family_of(collection)
            if family not in families:
                raise RecipeMismatch(
                    f"{collection.target} holds the vectors of {family[0]} under {family[1]}; this "
                    "catalog has none: name the target of its own export"
                )
        except BaseException:
            collection.close()
            raise
        exported.use(*family, collection)
        return exported.targets
    for base, recipe in families:
        note = read_note(catalog.path, base, recipe)
        if note is not None:
            collection = open_collection(parse_target(str(note["target"])))
            exported.use(base, recipe, collection)
    if not exported.targets:
        raise RequestError(
            "no export of this catalog to Qdrant is noted: run `deltadex export --to TARGET` "
            f"first, or name the target ({FORMS})"
        )
    return exported.targets


def family_of(collection: PointCollection) -> tuple[str, str]:
    """Base and recipe of a collection's points.

    Raises:
        EngineError: there are none.
        RecipeMismatch: they are of another program.
    """
    if collection.dim is None or not (page := collection.page(0, 1, with_vectors=False)):
        raise EngineError(
            f"{collection.target} holds nothing: run `deltadex export --to {collection.target}`"
        )
    payload = page[0].payload
    if not {"base", "recipe", "digest"} <= set(payload):
        raise RecipeMismatch(
            f"{collection.target} holds points that `deltadex export` did not write: name another "
            "target"
        )
    return str(payload["base"]), str(payload["recipe"])
