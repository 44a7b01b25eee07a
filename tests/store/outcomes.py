"""Outcomes made up for the store's tests."""

import json

import numpy as np

from deltadex import records
from deltadex.store import StoredSignature, encode_sketch

RECIPE = records.Recipe(name="sketch", rank=4, dim=8, params=(("slot_blocks", "update:8"),))
OTHER = records.Recipe(name="mean-factors", rank=2, dim=6)
SIGNATURE = StoredSignature(
    base="org/base",
    version=1,
    registered=True,
    source="org/base",
    revision="0" * 40,
    facts="{}",
    matrices=json.dumps([["w", "decoder.q", 0, [4, 4], "BF16", 16]]),
    runs=bytes(32),
    invariants=b"",
)


def unit(seed, dim):
    vector = np.random.default_rng(seed).normal(size=dim).astype(np.float32)
    return vector / np.linalg.norm(vector)


def sketch(rng):
    return encode_sketch([rng.normal(size=8)], [1.0])


def linear(seed, recipe=RECIPE):
    rng = np.random.default_rng(seed)
    return records.LinearSketch(
        recipe=recipe.id,
        pooled=rng.normal(size=records.LINEAR_DIM).astype(np.float32),
        layers={
            ("encoder", layer): rng.normal(size=records.LINEAR_LAYER_DIM).astype(np.float32)
            for layer in range(2)
        },
    )


def indexed(id, *, seed=0, base="base", recipe=RECIPE, signature="s", sketched=True, **record):
    rng = np.random.default_rng(seed)
    slots = tuple(
        records.SlotStats(
            slot=records.Slot("encoder", layer, "q"),
            shape=(4, 3),
            fro_norm=1.5,
            relative_norm=None if layer else 0.01,
            sigma=np.array([1.0, 0.5], dtype=np.float32),
            energy=0.9,
            stable_rank=1.2,
            noise_floor=1e-6,
            sketch=sketch(rng) if sketched else b"",
            zero_share=0.25 * layer,
        )
        for layer in range(2)
    )
    return records.Indexed(
        model=records.ModelRecord(id=id, base=base, signature=signature, **record),
        fingerprints=(records.Fingerprint(recipe=recipe, vector=unit(seed, recipe.dim), norm=2.0),),
        slots=slots,
        bytes_read=10,
        seconds=0.1,
        linear=linear(seed, recipe=recipe) if sketched and recipe.name == "sketch" else None,
    )


def numbered(n, name="m{:02}", *, first=0, **known):
    """Models that are told by their numbers."""
    return [indexed(name.format(k), seed=k, **known) for k in range(first, n)]


def data_set(name, *, seed=0, base="base", sha256="0" * 64):
    rng = np.random.default_rng(seed)
    return records.DataSet(
        name=name,
        base=base,
        loss="causal-lm",
        sha256=sha256,
        examples=512,
        settings={"seed": seed, "max_examples": 512},
        counts={"rows": 600, "skipped": {"empty": 3}},
        fingerprint=records.Fingerprint(recipe=RECIPE, vector=unit(seed, RECIPE.dim), norm=2.0),
        sketches={
            part: {records.Slot("encoder", layer, "q"): sketch(rng) for layer in range(2)}
            for part in ("whole", "group 0", "group 1", "shuffled 0")
        },
    )
