"""Catalogs of models whose vectors are chosen, and the indexes that are published of them."""

import numpy as np

import deltadex as dx
from deltadex.records import Fingerprint, Indexed, ModelRecord, Recipe
from deltadex.store import Catalog

BASE = "example/base"
RECIPE = Recipe(
    name="sketch", rank=2, dim=16, params=(("slot_blocks", "update:8,output:8"),), version=3
)


def unit(numbers):
    numbers = np.asarray(numbers, dtype=np.float32)
    return numbers / np.linalg.norm(numbers)


def vector_of(seed, dim=16):
    return unit(np.random.default_rng(seed).normal(size=dim))


def indexed(id, vector, *, base=BASE, recipe=RECIPE, **known):
    record = ModelRecord(
        id=id, base=base, signature=id, **{"kind": "adapter", "source": "hub", **known}
    )
    return Indexed(
        model=record,
        fingerprints=(Fingerprint(recipe=recipe, vector=unit(vector), norm=1.5),),
        slots=(),
        bytes_read=0,
        seconds=0.0,
    )


def fill(path, models, **known):
    """A catalog of models by id, with their vectors; in that order."""
    with Catalog.open(path) as catalog:
        for id, vector in models.items():
            catalog.record(indexed(id, vector, **known))
    return path


def family(n, *, first=0):
    """Ids and vectors of some models."""
    return {f"author-{seed % 3}/model-{seed}": vector_of(seed) for seed in range(first, first + n)}


def publish(path, folder, **options):
    with dx.open(path) as db:
        return db.publish(folder, **options)[0]


def files_of(folder):
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}
