"""Catalogs of models whose vectors are chosen, and the indexes that are published of them."""

from dataclasses import replace

import numpy as np
from catalogs import make_indexed, unit, write

import deltadex as dx
from deltadex.records import Recipe

BASE = "example/base"
RECIPE = Recipe(
    name="sketch", rank=2, dim=16, params=(("slot_blocks", "update:8,output:8"),), version=3
)


def vector_of(seed, dim=16):
    return unit(np.random.default_rng(seed).normal(size=dim))


def indexed(id, vector, *, base=BASE, recipe=RECIPE, **known):
    """A model that has a vector and no slots."""
    known = {"kind": "adapter", "source": "hub", **known}
    return replace(make_indexed(id, vector, base=base, recipes=(recipe,), **known), slots=())


def fill(path, models, **known):
    """A catalog of models by id, with their vectors; in that order."""
    return write(path, *(indexed(id, vector, **known) for id, vector in models.items()))


def family(n, *, first=0):
    """Ids and vectors of some models."""
    return {f"author-{seed % 3}/model-{seed}": vector_of(seed) for seed in range(first, first + n)}


def place_at(document, path, value):
    """Put a value where these keys lead, one after the other."""
    for key in path[:-1]:
        document = document[key]
    document[path[-1]] = value


def publish(path, folder, **options):
    with dx.open(path) as db:
        return db.publish(folder, **options)[0]
