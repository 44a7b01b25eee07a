"""Bytes that a model takes of a catalog's file, beside what `deltadex plan` says.

    python benchmarks/catalog_bytes.py [--models 600] [--first 150]

Made models with random sketches and statistics, of 12, 36, 72 and 224 slots, with 3,000 touched
tokens and answers to 4,096 words. A file grows by blocks, and a part of it does not depend on the
models; so what the blocks in use grow by between --first and --models counts.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import duckdb
import numpy as np

from deltadex import records
from deltadex.indexer.fingerprint import make_recipe
from deltadex.indexer.plan import catalog_bytes
from deltadex.store import Catalog, block_dims, sketch_bytes

SHAPES = ((12, 1), (6, 6), (12, 6), (32, 7))
"""Layers, and roles of each."""

ROLES = ("q", "k", "v", "o", "up", "down", "gate")
STATISTICS = ("fro_norm", "relative_norm", "energy", "stable_rank", "noise_floor", "zero_share")
RECIPE = make_recipe("sketch", None, ())


def made(number: int, layers: int, roles: int) -> records.Indexed:
    """A model of the Hub with random numbers wherever a real one has some."""
    rng = np.random.default_rng(number)
    n_bytes = sketch_bytes(block_dims(RECIPE))
    slots = tuple(
        records.SlotStats(
            slot=records.Slot("decoder", layer, role),
            shape=(768, 768),
            sigma=rng.random(RECIPE.rank).astype(np.float32),
            sketch=rng.bytes(n_bytes),
            **{name: float(rng.random()) for name in STATISTICS},
        )
        for layer in range(layers)
        for role in ROLES[:roles]
    )
    vector = rng.normal(size=RECIPE.dim).astype(np.float32)
    vector /= np.linalg.norm(vector)
    vector.flags.writeable = False
    id = f"org{number % 50}/model-{number}"
    record = records.ModelRecord(
        id=id,
        base="made/base",
        signature=rng.bytes(20).hex(),
        revision=rng.bytes(20).hex(),
        content_sha256=rng.bytes(32).hex(),
        source="hub",
        author=f"org{number % 50}",
        run=id,
        license="mit",
        downloads=number,
        created_at="2024-01-01T00:00:00",
    )
    linear = records.LinearSketch(
        recipe=RECIPE.id,
        pooled=rng.normal(size=records.LINEAR_DIM).astype(np.float32),
        layers={
            ("decoder", layer): rng.normal(size=records.LINEAR_LAYER_DIM).astype(np.float32)
            for layer in range(layers)
        },
    )
    footprint = records.Footprint(
        kind="exact",
        vocabulary=30_522,
        tokens=np.sort(rng.choice(30_522, 3_000, replace=False)).astype(np.uint32),
        strengths=rng.normal(60, 6, 3_000).astype(np.uint8),
        responses=rng.bytes(4_096),
    )
    return records.Indexed(
        model=record,
        fingerprints=(records.Fingerprint(recipe=RECIPE, vector=vector, norm=1.0),),
        slots=slots,
        bytes_read=1,
        seconds=0.1,
        linear=linear,
        footprint=footprint,
    )


def used_bytes(models: int, layers: int, roles: int) -> int:
    """Of a closed catalog of so many models, the blocks that are in use."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.duckdb"
        with Catalog.open(path) as catalog:
            for number in range(models):
                catalog.record(made(number, layers, roles))
        with duckdb.connect(str(path), read_only=True) as closed:
            used = closed.sql("SELECT used_blocks * block_size FROM pragma_database_size()")
            return int(used.fetchall()[0][0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=600)
    parser.add_argument("--first", type=int, default=150)
    options = parser.parse_args()
    print("| slots | bytes a model | planned | planned / measured |")
    print("| ---: | ---: | ---: | ---: |")
    for layers, roles in SHAPES:
        sizes = [used_bytes(n, layers, roles) for n in (options.first, options.models)]
        measured = (sizes[1] - sizes[0]) / (options.models - options.first)
        slots = layers * roles
        planned = catalog_bytes([RECIPE], 1, slots, layers)["per_model"]
        print(f"| {slots} | {measured:,.0f} | {planned:,} | {planned / max(1, measured):.2f} |")


if __name__ == "__main__":
    main()
