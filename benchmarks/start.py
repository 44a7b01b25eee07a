"""Commands that answer from the catalog, against a script that imports what they need.

    python benchmarks/start.py [--models 60] [--runs 9] [--db CATALOG]

Every command runs as a whole process, in turns with a script that imports duckdb, faiss and numpy
and opens the same file. The table has medians of processor time (user and system) and of wall
time, their ratios to the script's, and peak memory. Without --db, random updates fill a catalog.
Modules are compiled before, as those of an installed package are.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

BASE = "synthetic/base"
LAYERS, ROLES = 12, ("q", "k", "v", "o", "up", "down")
DATASETS = 8

RIVAL = """
import duckdb, faiss, numpy, sys
connection = duckdb.connect(":memory:")
connection.execute(f"ATTACH '{sys.argv[1]}' AS catalog (READ_ONLY)")
connection.execute("SELECT count(*) FROM catalog.models").fetchall()
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of the processor and of the clock, and the peak in MiB, of one process."""

    processor: float
    wall: float
    peak: float


def fill(path: Path, n_models: int) -> None:
    """A catalog of models with slots, sketches and labels."""
    import numpy as np

    from deltadex.indexer.fingerprint import make_recipe
    from deltadex.records import Fingerprint, Indexed, ModelRecord, Slot, SlotStats
    from deltadex.store import Catalog, block_dims, encode_sketch

    recipe = make_recipe("sketch", None, ())
    dims = block_dims(recipe)
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(DATASETS, recipe.dim))
    with Catalog.open(path) as catalog:
        for number in range(n_models):
            vector = centres[number % DATASETS] + rng.normal(size=recipe.dim)
            vector = (vector / np.linalg.norm(vector)).astype(np.float32)
            vector.flags.writeable = False
            slots = [
                SlotStats(
                    slot=Slot("encoder", layer, role),
                    shape=(768, 768),
                    fro_norm=1.0,
                    relative_norm=0.01,
                    sigma=np.ones(4, dtype=np.float32),
                    energy=0.5,
                    stable_rank=2.0,
                    noise_floor=0.0,
                    sketch=encode_sketch([rng.normal(size=d) for d in dims.values()], [1.0] * 3),
                )
                for layer in range(LAYERS)
                for role in ROLES
            ]
            catalog.record(
                Indexed(
                    model=ModelRecord(
                        id=f"m{number}",
                        base=BASE,
                        signature="s",
                        dataset=f"d{number % DATASETS}",
                        author=f"a{number % 5}",
                    ),
                    fingerprints=(Fingerprint(recipe=recipe, vector=vector, norm=1.0),),
                    slots=tuple(slots),
                    bytes_read=0,
                    seconds=0.0,
                )
            )


def run(command: list[str], environment: Mapping[str, str]) -> Cost:
    """What a process costs."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit {process.returncode}")
    return Cost(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--db", type=Path, help="A catalog, in place of a made one.")
    parser.add_argument("--fill", type=Path, help="Only make the catalog.")
    options = parser.parse_args()
    if options.fill:
        fill(options.fill, options.models)
        return
    with tempfile.TemporaryDirectory() as temporary:
        path = options.db or Path(temporary) / "c.duckdb"
        if options.db is None:
            # in another process: a child's peak begins with what its parent holds
            made = [sys.executable, __file__, "--fill", str(path), "--models", str(options.models)]
            subprocess.run(made, check=True)
        measure(path, _first_model(path), options.runs)


def _first_model(path: Path) -> str:
    listed = subprocess.run(
        [
            sys.executable,
            "-m",
            "deltadex",
            "ls",
            "--status",
            "indexed",
            "--limit",
            "1",
            "--json",
            "--db",
            str(path),
        ],
        check=True,
        capture_output=True,
    )
    return str(json.loads(listed.stdout)["models"][0]["model"])


def measure(path: Path, model: str, runs: int) -> None:
    """Print the table."""
    commands = {"script": [sys.executable, "-c", RIVAL, str(path)]}
    for arguments in (
        ["ls"],
        ["show", model],
        ["stats"],
        ["failures"],
        ["find-similar", model],
        ["eval"],
    ):
        commands[arguments[0]] = [sys.executable, "-m", "deltadex", *arguments, "--db", str(path)]
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as compiled:
        environment = os.environ | {"PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for _ in range(1 + runs):
            for name, command in commands.items():
                costs[name].append(run(command, environment))
    for measured in costs.values():
        del measured[0]  # which compiled the modules
    rival = _median(costs["script"])
    print("| command | processor | ratio | wall | ratio | peak |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, measured in costs.items():
        cost = _median(measured)
        print(
            f"| {name} | {cost.processor:.2f} s | {cost.processor / rival.processor:.1f} × "
            f"| {cost.wall:.2f} s | {cost.wall / rival.wall:.1f} × | {cost.peak:.0f} MiB |"
        )


def _median(costs: list[Cost]) -> Cost:
    return Cost(
        statistics.median(cost.processor for cost in costs),
        statistics.median(cost.wall for cost in costs),
        statistics.median(cost.peak for cost in costs),
    )


if __name__ == "__main__":
    main()
