"""Catalogs of models around a few directions, and kept data sets along some of these."""

from dataclasses import replace

import numpy as np

from deltadex.records import DataSet, Fingerprint, Indexed, ModelRecord, Recipe, Slot, SlotStats
from deltadex.store import Catalog
from deltadex.store.sketch_codes import encode_sketch

DIM, SKETCH_DIM = 48, 64
RECIPE = Recipe(
    name="sketch",
    rank=2,
    dim=DIM,
    params=(("slot_blocks", f"update:{SKETCH_DIM},output:{SKETCH_DIM}"),),
)
SLOT = Slot("encoder", 0, "q")
AXES = np.eye(DIM)
MIXING = np.random.default_rng(7).normal(size=(2, SKETCH_DIM, DIM))


def sketch_of(vector):
    blocks = [mixing @ unit(vector) for mixing in MIXING]
    return encode_sketch(blocks, [1.0] * len(blocks))


def unit(vector):
    vector = np.asarray(vector, dtype=np.float32)
    return vector / np.linalg.norm(vector)


def make_model(name, vector, *, base="base", **known):
    slot = SlotStats(
        slot=SLOT,
        shape=(4, 4),
        fro_norm=1.0,
        relative_norm=0.5,
        sigma=np.ones(2, np.float32),
        energy=1.0,
        stable_rank=2.0,
        noise_floor=0.0,
        sketch=sketch_of(vector),
    )
    return Indexed(
        model=ModelRecord(id=name, base=base, signature=name, **known),
        fingerprints=(Fingerprint(recipe=RECIPE, vector=unit(vector), norm=1.0),),
        slots=(slot,),
        bytes_read=0,
        seconds=0.0,
    )


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
        sketches={part: {SLOT: sketch_of(v)} for part, v in parts.items()},
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
        catalog.data_sets.save(replace(data, base=base))
    return catalog
