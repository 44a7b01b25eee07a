"""Catalogs of models that are known by their vectors alone, and their points in Qdrant."""

from contextlib import closing

import numpy as np

from deltadex.records import Recipe
from deltadex.store import Catalog, export_vectors
from deltadex.store.session import NOW, Session
from deltadex.store.tables.models import insert_rows
from deltadex.store.tables.outcomes import ensure_table

BASE = "some/base"
DIM = 8
RECIPE = Recipe(name="mean-factors", rank=2, dim=DIM)
OTHER_DIM = Recipe(name="mean-factors", rank=2, dim=DIM + 2)
OTHER = Recipe(name="mean-factors", rank=3, dim=DIM)


def integer_vectors(n, seed=0, dim=DIM):
    """Vectors of few different numbers, whose inner products have exact ties."""
    return np.random.default_rng(seed).integers(-1, 2, (n, dim)).astype(np.float32) / 2


def unit_vectors(n, seed=0, dim=DIM):
    vectors = np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def insert(catalog, keys, vectors, recipe=RECIPE, base=BASE):
    """Write models of these keys; every third has a dataset."""

    def write(session):
        models = [
            {
                "key": key,
                "base": base,
                "id": f"m{key}",
                "status": "indexed",
                "kind": ("full", "adapter")[key % 2],
                "dataset": None if key % 3 else f"d{key % 5}",
                "author": f"a{key % 4}",
                "downloads": key,
                **dict.fromkeys(("signature", "method", "source"), ""),
                **dict.fromkeys(("bytes_total", "bytes_read", "seconds"), 0),
            }
            for key in keys
        ]
        own = zip(keys, vectors, strict=True)
        rows = [{"model": key, "vector": vector, "norm": 1.0} for key, vector in own]
        insert_rows(session, ensure_table(session, recipe), rows)
        insert_rows(session, "models", models, f"* REPLACE ({NOW} AS indexed_at)")

    with closing(Session(catalog.access)) as session:
        session.write(write)


def make_catalog(path, n=60, *, seed=0, vectors=unit_vectors):
    """A catalog file of `n` models with keys from 1 on."""
    with Catalog.open(path) as catalog:
        insert(catalog, range(1, n + 1), vectors(n, seed))
    return path


def export(catalog, target, recipe=RECIPE, base=BASE):
    return export_vectors(catalog, target, base=base, recipe=recipe, track=lambda keys, _: keys)


def exported_points(server):
    """Every point of the collection: key → (payload, bytes of the vector)."""
    records, _ = server.local.scroll("models", limit=10_000, with_vectors=True)
    return {
        record.id: (record.payload, np.array(record.vector, dtype=np.float32).tobytes())
        for record in records
    }


def expected_points(catalog):
    """The same by SQL: key → (id, dataset, author, kind, downloads, bytes of the vector)."""
    with closing(Session(catalog.access)) as session:
        rows = session.execute(
            "SELECT key, id, dataset, author, kind, downloads FROM models WHERE base = ?", [BASE]
        )
        table = ensure_table(session, RECIPE)
        vectors = dict(session.execute(f"SELECT model, vector FROM {table}"))
    return {
        key: (*row, np.array(vectors[key], dtype=np.float32).tobytes())
        for key, *row in rows
        if key in vectors
    }
