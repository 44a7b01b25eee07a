"""A family's vectors brought to Qdrant. The collection says how far an export came: a point is
right where its payload is that of the catalog, which has a checksum of the vector. So an export
that was killed is continued by running it again."""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import EmptyCatalog, EngineError, RecipeMismatch, RequestError
from ...records import Recipe
from ...results import count
from ..catalog import Catalog
from ..files import derived_path, make_folder, write_atomically
from ..session import Track
from ..tables.outcomes import fetch_vectors_of
from .index import READ_AT_ONCE, ExportedFamilies, ExportedPoints, digests
from .server import Keys, Payload, PointCollection, Vectors

NUMBERS_AT_ONCE = 1 << 19
"""Of the vectors of a request: 10 MB of JSON; servers take 32 MB."""

NOTE_ENDING = ".qdrant"
"""Of the file beside a catalog that tells of a family's last complete export."""

FIELDS = ("kind", "dataset", "author", "run", "task", "license", "downloads")
"""Columns of `models` that a point's payload has beside base, recipe, model, key and digest."""


def export_vectors(
    catalog: Catalog, target: str, *, base: str, recipe: Recipe, track: Track
) -> dict[str, Any]:
    """Bring a family's vectors under a recipe to a target; the documented keys. Raises
    `EmptyCatalog` if there are none, `RecipeMismatch` if the target holds other points; and as
    `PointCollection`."""
    started = time.monotonic()
    keys = catalog.family(base, recipe, is_current=True).keys
    if not len(keys):
        raise EmptyCatalog(f"no model of {base} has a {recipe.name} fingerprint")
    with closing(PointCollection(target)) as collection:
        done = _Export(collection, catalog, base, recipe).run(keys, track)
    done |= {"newest_key": int(keys[-1]), "seconds": round(time.monotonic() - started, 3)}
    path = derived_path(catalog.path, base, recipe.id, NOTE_ENDING)
    make_folder(path.parent)
    write_atomically(path, json.dumps(done, indent=1).encode())
    return done


@dataclass(frozen=True, slots=True)
class _Export:
    """One run of an export."""

    collection: PointCollection
    catalog: Catalog
    base: str
    recipe: Recipe

    def run(self, keys: Keys, track: Track) -> dict[str, Any]:
        """Write the differences."""
        before = self._points_before()
        if not self.collection.exists:
            self.collection.create(self.recipe.dim)
        models, n_added = [keys[:0]], 0
        for start in track(range(0, len(keys), READ_AT_ONCE), "exporting"):
            some = keys[start : start + READ_AT_ONCE]
            # of those models that still have one
            present, vectors = fetch_vectors_of(self.catalog, self.recipe, some)
            n_added += self._write(present, vectors, before)
            models.append(present)
        written = np.concatenate(models)
        gone = np.setdiff1d(np.array(list(before), dtype=np.int64), written)
        for start in range(0, len(gone), READ_AT_ONCE):
            self.collection.delete(gone[start : start + READ_AT_ONCE])
        n_here, target = self.collection.count(is_exact=True), self.collection.target
        if n_here != len(written):
            raise EngineError(
                f"{target}: {count(n_here, 'point')}, where the catalog has {len(written)}: does "
                "another process write to it? Run the same command again"
            )
        counts = {"models": n_here, "added": n_added, "removed": len(gone)}
        return {"target": target, "base": self.base, "recipe": self.recipe.id} | counts

    def _points_before(self) -> dict[int, int]:
        """Keys and checksums of the points that are there; raises `RecipeMismatch` if one is not of
        this family and recipe, before anything is changed."""
        target, wanted = self.collection.target, f"{self.base} under {self.recipe.id}"
        before: dict[int, int] = {}
        for page in self.collection.pages(READ_AT_ONCE) if self.collection.exists else ():
            for payload in page.values():
                held = f"{payload['base']} under {payload['recipe']}"
                if held != wanted:
                    raise RecipeMismatch(
                        f"{target} holds points of {held}, not of {wanted}: name another target"
                    )
            before |= {key: _checksum(payload) for key, payload in page.items()}
        return before

    def _write(self, keys: Keys, vectors: Vectors, before: dict[int, int]) -> int:
        """Write the points of these models that differ; how many did."""
        payloads = self._payloads(keys, vectors)
        pairs = zip(keys.tolist(), payloads, strict=True)
        is_new = [before.get(key) != _checksum(payload) for key, payload in pairs]
        places, at_once = np.flatnonzero(is_new), max(1, NUMBERS_AT_ONCE // self.recipe.dim)
        for start in range(0, len(places), at_once):
            chosen = places[start : start + at_once]
            some = [payloads[place] for place in chosen.tolist()]
            self.collection.upsert(keys[chosen], vectors[chosen], some)
        return len(places)

    def _payloads(self, keys: Keys, vectors: Vectors) -> list[Payload]:
        columns = ", ".join(("key", "id", *FIELDS))
        rows = self.catalog.execute(
            f"SELECT {columns} FROM models WHERE key IN (SELECT unnest(?::BIGINT[]))",
            [keys.tolist()],
        )
        by_key = {row[0]: dict(zip(("model", *FIELDS), row[1:], strict=True)) for row in rows}
        family = {"base": self.base, "recipe": self.recipe.id}
        return [
            family | {"key": key, "digest": digest} | by_key.get(key, {})
            for key, digest in zip(keys.tolist(), digests(vectors), strict=True)
        ]


def _checksum(payload: Payload) -> int:
    """A checksum of a payload within this process, whatever the order of its fields."""
    return hash(json.dumps(dict(payload), sort_keys=True, default=str))


def use_exported(catalog: Catalog, engine: str) -> None:
    """Have searches of a catalog take candidates from Qdrant: from a target for the family that it
    holds, or, for `qdrant`, from those of the last exports. Other families stay with FAISS. Raises
    as `PointCollection`; `RecipeMismatch` if a target holds no family of this catalog."""
    if engine != "qdrant" and not engine.startswith("qdrant:"):
        raise RequestError("no engine of that name: give faiss, qdrant or qdrant://HOST/COLLECTION")
    families = [(group["base"], group["id"]) for group in catalog.stats()["recipes"]]
    notes = [derived_path(catalog.path, *family, NOTE_ENDING) for family in families]
    noted = [json.loads(note.read_text("utf-8"))["target"] for note in notes if note.exists()]
    targets = noted if engine == "qdrant" else [engine]
    if not targets:
        raise RequestError("no export of this catalog is noted: run `deltadex export --to TARGET`")
    exported = catalog.access.derived(ExportedFamilies)
    for target in targets:
        collection = PointCollection(target)
        family = collection.family()
        if family is None or family not in families:
            collection.close()
            raise RecipeMismatch(
                f"{target} holds {' under '.join(family or ['nothing'])}, not vectors of this "
                f"catalog: run `deltadex export --to {target}`"
            )
        exported.points[family] = ExportedPoints(collection)
