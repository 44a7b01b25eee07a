"""Real catalogs in temporary files, filled with models whose vectors are chosen."""

import numpy as np

from deltadex.records import Fingerprint, Indexed, ModelRecord, Recipe, Slot, SlotStats
from deltadex.store import Catalog

SKETCH = Recipe(name="sketch", rank=2, dim=4, params=(("slot_blocks", "update:2,output:2"),))
PLAIN = Recipe(name="mean-factors", rank=2, dim=4)


def unit(vector):
    vector = np.asarray(vector, dtype=np.float32)
    return vector / np.linalg.norm(vector)


def make_indexed(id, vector, *, base="base", recipes=(SKETCH,), **known):
    """A model whose fingerprints under `recipes`, and whose one sketch, are `vector`."""
    slot = SlotStats(
        slot=Slot("encoder", 0, "q"),
        shape=(4, 4),
        fro_norm=1.0,
        relative_norm=0.5,
        sigma=np.ones(2, np.float32),
        energy=1.0,
        stable_rank=2.0,
        noise_floor=0.0,
        sketch=unit(vector).astype(np.float16),
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
