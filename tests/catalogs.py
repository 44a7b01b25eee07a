"""Real catalogs in temporary files, of models and data sets whose vectors are chosen."""

from dataclasses import replace

import numpy as np

from deltadex import records
from deltadex.indexer.delta import MatrixUpdate
from deltadex.store import Catalog
from deltadex.store.sketch_codes import encode_sketch
from deltadex.store.tables.outcomes import select_linear_sketch

SKETCH_DIM = 64
SKETCH = records.Recipe(
    name="sketch",
    rank=2,
    dim=4,
    params=(("slot_blocks", f"update:{SKETCH_DIM},output:{SKETCH_DIM}"),),
)
PLAIN = records.Recipe(name="mean-factors", rank=2, dim=4)
SLOT = records.SlotStats(
    slot=records.Slot("encoder", 0, "q"),
    shape=(4, 4),
    fro_norm=1.0,
    relative_norm=0.5,
    sigma=np.ones(2, np.float32),
    energy=1.0,
    stable_rank=2.0,
    noise_floor=0.0,
    sketch=b"",
)
DIM = 48
AXES = np.eye(DIM)


def unit(vector):
    vector = np.asarray(vector, dtype=np.float32)
    return vector / np.linalg.norm(vector)


def sketch_of(vector):
    """Two blocks of numbers: Gaussian mixtures of the vector's, with nearly the same cosines."""
    mixing = np.random.default_rng(7).normal(size=(2, SKETCH_DIM, len(vector)))
    return encode_sketch([block @ unit(vector) for block in mixing], [1.0, 1.0])


def fingerprint_of(vector, recipe=SKETCH):
    vector = unit(vector)
    return records.Fingerprint(recipe=replace(recipe, dim=len(vector)), vector=vector, norm=1.0)


def matrix_update(slot, delta=None, shape=(1, 1), *, part="", **known):
    """Of one matrix, without rounding where none is said."""
    known = {"noise_norm": 0.0, "weight_norm": None, **known}
    return MatrixUpdate(slot=slot, part=part, delta=delta, shape=shape, **known)


def make_indexed(id, vector, *, base="base", recipes=(SKETCH,), **known):
    """A model whose fingerprints are `vector`; with a slot's sketch of it if a recipe has any."""
    slots = (replace(SLOT, sketch=sketch_of(vector)),) if any(r.params for r in recipes) else ()
    return records.Indexed(
        model=records.ModelRecord(id=id, base=base, **{"signature": id, **known}),
        fingerprints=tuple(fingerprint_of(vector, recipe) for recipe in recipes),
        slots=slots,
        bytes_read=0,
        seconds=0.0,
    )


def refused(id, code="truncated", *, base="base", **known):
    return records.Refused(
        model=records.ModelRecord(id=id, base=base, **known), code=code, reason="short"
    )


def make_catalog(path, *outcomes):
    catalog = Catalog.open(path)
    for outcome in outcomes:
        catalog.record(outcome)
    return catalog


def write(path, *outcomes):
    """The path, now a catalog that has them too."""
    make_catalog(path, *outcomes).close()
    return path


def make_data(name, vector, *, base="base", groups=0, noise=0.1, examples=512, loss="causal"):
    """A data set whose gradient lies along a vector; its groups lie around it."""
    rng = np.random.default_rng(len(name))
    parts = {"whole": vector} | {
        f"group {group}": unit(vector) + noise * rng.normal(size=len(vector))
        for group in range(groups)
    }
    return records.DataSet(
        name=name,
        base=base,
        loss=loss,
        sha256=name,
        examples=examples,
        settings={},
        counts={},
        fingerprint=fingerprint_of(vector),
        sketches={part: {SLOT.slot: sketch_of(v)} for part, v in parts.items()},
    )


def fill(path, *, near=6, strangers=34, kept=(), noise=0.04, base="base", apart=0.0):
    """`near-N` lie along the first axis, `far-N` anywhere, or `apart` along the second; data sets
    are kept beside them."""
    rng = np.random.default_rng(0)
    vectors = {f"near-{n}": AXES[0] + noise * rng.normal(size=DIM) for n in range(near)}
    vectors |= {f"far-{n}": rng.normal(size=DIM) + apart * AXES[1] for n in range(strangers)}
    catalog = make_catalog(
        path, *(make_indexed(id, v, base=base, kind="full") for id, v in vectors.items())
    )
    for data in kept:
        catalog.data_sets.save(replace(data, base=base))
    return catalog


def linear_sketch_of(catalog, id, recipe=None):
    return select_linear_sketch(catalog, catalog.stored(id).key, recipe)
