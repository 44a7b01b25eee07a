"""Catalogs of models around a few directions, and kept data sets along some of these."""

from dataclasses import replace

import numpy as np
from catalogs import SKETCH, SKETCH_DIM, make_indexed, unit

from deltadex.records import DataSet, Fingerprint, Slot
from deltadex.store import Catalog
from deltadex.store.sketch_codes import encode_sketch

DIM = 48
RECIPE = replace(SKETCH, dim=DIM)
AXES = np.eye(DIM)
MIXING = np.random.default_rng(7).normal(size=(2, SKETCH_DIM, DIM))


def sketch_of(vector):
    blocks = [mixing @ unit(vector) for mixing in MIXING]
    return encode_sketch(blocks, [1.0] * len(blocks))


def make_model(name, vector, **known):
    made = make_indexed(name, np.ones(4), **known)
    fingerprint = Fingerprint(recipe=RECIPE, vector=unit(vector), norm=1.0)
    slot = replace(made.slots[0], sketch=sketch_of(vector))
    return replace(made, fingerprints=(fingerprint,), slots=(slot,))


def make_data(name, vector, *, base="base", groups=0, noise=0.1, examples=512):
    """A data set whose gradient lies along a vector; its groups lie around it."""
    rng = np.random.default_rng(len(name))
    parts = {"whole": vector} | {
        f"group {group}": unit(vector) + noise * rng.normal(size=DIM) for group in range(groups)
    }
    return DataSet(
        name=name,
        base=base,
        loss="causal",
        sha256=name,
        examples=examples,
        settings={},
        counts={},
        fingerprint=Fingerprint(recipe=RECIPE, vector=unit(vector), norm=1.0),
        sketches={part: {Slot("encoder", 0, "q"): sketch_of(v)} for part, v in parts.items()},
    )


def fill(path, *, near=6, strangers=34, kept=(), seed=0, noise=0.04, base="base", kind="full"):
    """`near-N` lie along the first axis, `far-N` anywhere; data sets are kept beside them."""
    rng = np.random.default_rng(seed)
    catalog = Catalog.open(path)
    for place in range(near + strangers):
        is_near = place < near
        vector = AXES[0] + noise * rng.normal(size=DIM) if is_near else rng.normal(size=DIM)
        name = f"near-{place}" if is_near else f"far-{place - near}"
        catalog.record(make_model(name, vector, kind=kind, base=base))
    for data in kept:
        catalog.data_sets.save(data)
    return catalog
