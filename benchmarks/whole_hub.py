"""From parts to answers: 100,000 synthetic models through every step, each in a process of its own.

    python benchmarks/whole_hub.py [--models 100000] [--layers 12] [--folder DIR]

Models have the shape of a BERT (six matrices a layer) under the default recipe: a vector of 2,048
numbers with a direction for each of models / 200 datasets, slot sketches and a linear sketch of
random numbers. For each step: wall time, time of the processor, largest resident memory, bytes
that it left on disk.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import deltadex
from deltadex.indexer.fingerprint import make_recipe
from deltadex.records import (
    LINEAR_DIM,
    LINEAR_LAYER_DIM,
    Fingerprint,
    Indexed,
    LinearSketch,
    ModelRecord,
    Recipe,
    Slot,
    SlotStats,
)
from deltadex.store import Part, PartFolder, block_dims
from deltadex.store.sketch_codes import encode_sketch

BASE = "synthetic/base"
PER_PART = 256
ROLES = ("q", "k", "v", "o", "up", "down")
WRITTEN_AT = "2026-01-01T00:00:00.000000Z"


class Models:
    """Outcomes of synthetic models, the same for the same numbers."""

    def __init__(self, n_models: int, n_layers: int) -> None:
        self.n_models, self.n_layers = n_models, n_layers
        self.recipe: Recipe = make_recipe("sketch", None, (), 1.0)
        rng = np.random.default_rng(0)
        n_datasets = max(10, n_models // 200)
        self._centres = rng.standard_normal((n_datasets, self.recipe.dim), dtype=np.float32)
        dims = list(block_dims(self.recipe).values())
        # encoding takes longer than all that is measured: a thousand sketches are drawn from
        self._sketches = [
            encode_sketch(
                [rng.standard_normal(dim).astype(np.float32) for dim in dims], [1.0] * len(dims)
            )
            for _ in range(1000)
        ]

    def outcome(self, number: int) -> Indexed:
        rng = np.random.default_rng(1 + number)
        dataset = int(rng.integers(len(self._centres)))
        vector = self._centres[dataset] + rng.standard_normal(self.recipe.dim, dtype=np.float32)
        vector /= np.linalg.norm(vector)
        vector.flags.writeable = False
        slots = [Slot("encoder", layer, role) for layer in range(self.n_layers) for role in ROLES]
        sketches = rng.integers(len(self._sketches), size=len(slots))
        return Indexed(
            model=ModelRecord(
                id=f"org{number % 997}/model-{number}",
                base=BASE,
                source="hub",
                signature=f"{number:040x}",
                revision=f"{number:040x}",
                content_sha256=f"{number:064x}",
                author=f"org{number % 997}",
                dataset=f"dataset-{dataset}",
                dataset_raw=f"dataset-{dataset}",
                label_source="tags",
                license="apache-2.0",
                bytes_total=438_000_000,
            ),
            fingerprints=(Fingerprint(recipe=self.recipe, vector=vector, norm=1.0),),
            slots=tuple(
                SlotStats(
                    slot=slot,
                    shape=(768, 768),
                    fro_norm=1.0,
                    relative_norm=0.01,
                    sigma=np.linspace(1.0, 0.1, 16, dtype=np.float32),
                    energy=0.9,
                    stable_rank=4.0,
                    noise_floor=1e-4,
                    sketch=self._sketches[pick],
                    zero_share=0.0,
                )
                for slot, pick in zip(slots, sketches, strict=True)
            ),
            bytes_read=438_000_000,
            seconds=1.0,
            linear=LinearSketch(
                recipe=self.recipe.id,
                pooled=rng.standard_normal(LINEAR_DIM, dtype=np.float32),
                layers={
                    ("encoder", layer): rng.standard_normal(LINEAR_LAYER_DIM, dtype=np.float32)
                    for layer in range(self.n_layers)
                },
            ),
        )

    def part(self, start: int) -> Part:
        stop = min(start + PER_PART, self.n_models)
        return Part(
            lease=f"{start:016x}",
            base=BASE,
            recipes=(self.recipe,),
            outcomes=tuple(self.outcome(number) for number in range(start, stop)),
            revision="0" * 40,
            architecture="bert",
            written_at=WRITTEN_AT,
        )


def write_parts(folder: Path, made: Models) -> None:
    parts = PartFolder(str(folder / "parts"))
    for start in range(0, made.n_models, PER_PART):
        parts.write(made.part(start))


def merge(folder: Path, made: Models) -> None:
    with deltadex.open(folder / "all.duckdb", create=True) as db:
        db.merge(folder / "parts")


def publish(folder: Path, made: Models) -> None:
    with deltadex.open(folder / "all.duckdb") as db:
        db.publish(folder / "published", size="small")


def attach(folder: Path, made: Models) -> None:
    with deltadex.open(folder / "own.duckdb", create=True) as db:
        db.attach(folder / "published")


def search(folder: Path, made: Models) -> None:
    """The first answer of a new process, from the attached index alone."""
    with deltadex.open(folder / "own.duckdb") as db:
        answer = db.find_similar(made.outcome(0).model.id, k=10)
    print("nearest:", answer[0]["model"], answer[0]["dataset"], file=sys.stderr)


STEPS: dict[str, tuple[Callable[[Path, Models], None], str]] = {
    "parts": (write_parts, "parts"),
    "merge": (merge, "all.duckdb"),
    "publish": (publish, "published"),
    "attach": (attach, "own.duckdb.attached"),
    "search": (search, ""),
}


def size_of(place: Path) -> int:
    if place.is_file():
        return place.stat().st_size
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=100_000)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--step", choices=list(STEPS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        made = Models(options.models, options.layers)
        start, before = time.perf_counter(), time.process_time()
        STEPS[options.step][0](options.folder, made)
        figures = {
            "seconds": time.perf_counter() - start,
            "cpu": time.process_time() - before,
            "memory": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        }
        print(json.dumps(figures))
        return
    print(
        f"{options.models:,} models of {len(ROLES) * options.layers} slots, {os.cpu_count()} cores"
    )
    print("| step | seconds | processor, s | memory, GB | on disk, GB | bytes a model |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        for step, (_, left) in STEPS.items():
            command = [sys.executable, __file__, "--step", step, "--folder", place]
            command += ["--models", str(options.models), "--layers", str(options.layers)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            figures = json.loads(done.stdout.splitlines()[-1])
            size = size_of(Path(place) / left) if left else 0
            print(
                f"| {step} | {figures['seconds']:.1f} | {figures['cpu']:.1f} "
                f"| {figures['memory'] / 1e9:.2f} | {size / 1e9:.2f} "
                f"| {size / options.models:,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
