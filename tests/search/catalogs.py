"""Real catalogs in temporary files, filled with models whose vectors are chosen."""

import numpy as np

from deltadex.records import Fingerprint, Indexed, ModelRecord, Recipe, Slot, SlotStats
from deltadex.store import Catalog
from deltadex.store.sketch_codes import encode_sketch

SKETCH_DIM = 64
SKETCH = Recipe(
    name="sketch",
    rank=2,
    dim=4,
    params=(("slot_blocks", f"update:{SKETCH_DIM},output:{SKETCH_DIM}"),),
)
PLAIN = Recipe(name="mean-factors", rank=2, dim=4)
MIXING = np.random.default_rng(7).normal(size=(2, SKETCH_DIM, 4))
"""What makes a block's numbers of a vector: Gaussian, with nearly the vectors' cosines."""


def unit(vector):
    vector = np.asarray(vector, dtype=np.float32)
    return vector / np.linalg.norm(vector)


def make_indexed(id, vector, *, base="base", recipes=(SKETCH,), **known):
    """A model whose fingerprints under `recipes` are `vector`, and whose one sketch is of it."""
    blocks = [mixing @ unit(vector) for mixing in MIXING]
    slot = SlotStats(
        slot=Slot("encoder", 0, "q"),
        shape=(4, 4),
        fro_norm=1.0,
        relative_norm=0.5,
        sigma=np.ones(2, np.float32),
        energy=1.0,
        stable_rank=2.0,
        noise_floor=0.0,
        sketch=encode_sketch(blocks, [1.0] * len(blocks)),
    )
    return Indexed(
        model=ModelRecord(id=id, base=base, signature=id, **known),
        fingerprints=tuple(
            Fingerprint(recipe=recipe, vector=unit(vector), norm=1.0) for recipe in recipes
        ),
        slots=(slot,),
        bytes_read=0,
        seconds=0.0,
    )


def make_catalog(path, *outcomes):
    catalog = Catalog.open(path)
    for outcome in outcomes:
        catalog.record(outcome)
    return catalog
