"""A published index: bytes, seconds and memory of every step, and what its scores lose.

    python benchmarks/publishing.py --models 49152 [--slots 36] [--folder DIR]
    python benchmarks/publishing.py --adapters FOLDER

The first publishes a synthetic family (vectors as in benchmarks/scale.py, texts of real length,
random sketches), publishes 1 % more, attaches and searches it, each as a command in a process of
its own; without sketches where there are 0 slots. The second indexes the adapters of a folder with
`labels.csv` (folder/BASE/MODEL), and compares searches of the catalog with those of an index of it
that is attached to an empty catalog, full and small: the same queries, candidates of other authors.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
from scale import Synthetic

import deltadex as dx
from deltadex.indexer.fingerprint import make_recipe
from deltadex.records import Recipe
from deltadex.store import Catalog, block_dims, sketch_bytes
from deltadex.store.session import Session
from deltadex.store.tables.outcomes import ensure_table

BASE = "synthetic/base"
BATCH = 2_048
DATASETS = ("imdb", "stanfordnlp/sst2", "nyu-mll/glue mrpc", "tatsu-lab/alpaca", "squad_v2")


def fill(path: Path, made: Synthetic, recipe: Recipe, first: int, n: int, n_slots: int = 0) -> None:
    """Add `n` models to a catalog, numbered from `first`."""
    with Catalog.open(path) as catalog, closing(Session(catalog.access)) as session:
        for start in range(first, first + n, BATCH):
            size = min(BATCH, first + n - start)
            _insert(session, recipe, start, made.batch(start, size))
            if n_slots:
                _insert_sketches(session, recipe, start, size, n_slots)


def _insert_sketches(session: Session, recipe: Recipe, first: int, n: int, n_slots: int) -> None:
    """Random codes, of six roles a layer."""
    width = sketch_bytes(block_dims(recipe))
    rows = np.random.default_rng(first).integers(0, 256, (n * n_slots, width), dtype=np.uint8)
    rows[:, :6] = np.ones(3, "<f2").view(np.uint8)
    places = np.arange(n * n_slots)
    table = pa.table(
        {
            "model": first + places // n_slots,
            "layer": places % n_slots // 6,
            "role": pa.array(np.array(["q", "k", "v", "o", "up", "down"])[places % 6]),
            "sketch": pa.Array.from_buffers(
                pa.binary(width), len(rows), [None, pa.py_buffer(rows)]
            ),
        }
    )

    def write(session: Session) -> None:
        with session.registered("sketches", table):
            session.execute(
                "INSERT INTO slots (model, stack, layer, role, rows, columns, fro_norm, sigma, "
                "energy, stable_rank, noise_floor, recipe, sketch) SELECT model, 'encoder', layer, "
                "role, 8, 8, 1, [1.0], 1, 1, 0, ?, sketch FROM sketches",
                [recipe.id],
            )

    session.write(write)


def _insert(session: Session, recipe: Recipe, first: int, vectors: np.ndarray) -> None:
    numbers = range(first, first + len(vectors))
    hashes = [hashlib.sha256(str(number).encode()).hexdigest() for number in numbers]
    authors = [f"author-{digest[:4]}" for digest in hashes]
    names = zip(authors, numbers, strict=True)
    rows = pa.table(
        {
            "model": pa.array(numbers, pa.int64()),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), recipe.dim),
            "norm": pa.array(np.ones(len(vectors))),
            "id": [f"{author}/base-finetuned-on-something-{number}" for author, number in names],
            "kind": ["adapter" if number % 3 else "full" for number in numbers],
            "author": authors,
            "dataset": [DATASETS[n % 7] if n % 7 < len(DATASETS) else None for n in numbers],
            "sha": hashes,
        }
    )

    def write(session: Session) -> None:
        table = ensure_table(session, recipe)
        with session.registered("added", rows):
            session.execute(f"INSERT INTO {table} SELECT model, vector, norm FROM added")
            session.execute(
                "INSERT INTO models (key, base, id, status, kind, method, source, author, run, "
                "dataset, revision, content_sha256, license, downloads, created_at, indexed_at) "
                "SELECT model, ?, id, 'indexed', kind, 'lora', 'hub', author, id, dataset, "
                "sha[:40], sha, 'apache-2.0', model % 1000, '2026-01-02T03:04:05+00:00', now() "
                "FROM added",
                [BASE],
            )

    session.write(write)


PROGRAM = """
import sys
from deltadex.cli import main
try:
    main(sys.argv[1:])
finally:
    with open("/proc/self/status") as status:
        print(*(line.split()[1] for line in status if line.startswith("VmHWM")), file=sys.stderr)
"""
"""A command that says its peak memory: that of its parent counts in what the system reports."""


def run(what: str, *arguments: str) -> None:
    """Run a command, and print its seconds, processor seconds and peak memory."""
    start = time.perf_counter()
    command = [sys.executable, "-c", PROGRAM, *arguments, "--quiet"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stderr is not None
    printed, errors = child.stdout.read().strip().splitlines(), child.stderr.read().split()
    _, status, used = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    processor, memory = used.ru_utime + used.ru_stime, int(errors[-1]) / 2**20
    print(f"| {what} | {seconds:.1f} | {processor:.1f} | {memory:.2f} |", flush=True)
    if status:
        sys.exit(f"{what} failed")
    if arguments[0] in ("publish", "attach"):
        print("  " + "; ".join(printed), file=sys.stderr)


def synthetic(n_models: int, n_slots: int, folder: Path) -> None:
    """The table of steps."""
    recipe = make_recipe("sketch", None, ())
    made, path, index = Synthetic(n_models, recipe.dim), folder / "c.duckdb", folder / "index"
    fill(path, made, recipe, 0, n_models, n_slots)
    print("| step | s | processor s | peak GiB |\n| --- | --- | --- | --- |")
    db, mine = ("--db", str(path)), ("--db", str(folder / "mine.duckdb"))
    run("publish", "publish", str(index), *db)
    run("publish again, nothing new", "publish", str(index), *db)
    run("attach", "attach", str(index), *mine)
    query = f"author-{hashlib.sha256(b'7').hexdigest()[:4]}/base-finetuned-on-something-7"
    run("first search", "find-similar", query, *mine)
    run("search with a filter", "find-similar", query, "--dataset", "imdb", *mine)
    fill(path, made, recipe, n_models, max(1, n_models // 100), n_slots)
    run("publish 1 % more", "publish", str(index), *db)
    run("attach --refresh", "attach", "--refresh", *mine)
    files = sum(file.stat().st_size for file in index.iterdir())
    total = n_models + max(1, n_models // 100)
    print(f"\n{files} bytes, {files / total:.0f} per model; catalog {path.stat().st_size} bytes")
    searches(folder / "mine.duckdb", query)


def searches(path: Path, query: str) -> None:
    """Searches in one process: the first, and the median of the next ten."""
    with dx.open(path) as db:
        times = []
        for _ in range(11):
            start = time.perf_counter()
            db.find_similar(query)
            times.append(time.perf_counter() - start)
    print(f"in one process: first {times[0]:.2f} s, then {np.median(times[1:]):.2f} s")


def real(adapters: Path, folder: Path) -> None:
    """The table of families."""
    print("| family | queries | searched | bytes per model | micro | nn1 |")
    print("| --- | --- | --- | --- | --- | --- |")
    for place in sorted(path for path in adapters.iterdir() if path.is_dir()):
        base, path = place.name, folder / f"{place.name}.duckdb"
        with dx.open(path) as db:
            db.index(base, adapters, labels=adapters / "labels.csv", aliases=(f"{base}-it",))
            print_row(base, "catalog", "", purity(db, db))
            for size in ("full", "small"):
                published = db.publish(folder / f"{base}-{size}", size=size)[0]
                with dx.open(folder / f"{base}-{size}.duckdb") as other:
                    other.attach(folder / f"{base}-{size}")
                    n_bytes = f"{published['bytes_per_model']:.0f}"
                    print_row(base, size, n_bytes, purity(db, other))
            evaluated = db.evaluate(exclude="author")[0]
            print(f"  eval: {evaluated['micro']:.3f} {evaluated['nn1']:.2f}", file=sys.stderr)


def print_row(base: str, name: str, n_bytes: str, found: tuple[int, float, float]) -> None:
    print(f"| {base} | {found[0]} | {name} | {n_bytes} | {found[1]:.3f} | {found[2]:.2f} |")


def purity(db: dx.Database, face: dx.Database) -> tuple[int, float, float]:
    """Queries, micro purity and nn1 of searches by `face` for the labelled models of `db`."""
    known = {row["model"]: row for row in db.models(status="indexed") if row["dataset"]}
    by_label: dict[str, list[str]] = defaultdict(list)
    for id, row in known.items():
        by_label[row["dataset"]].append(id)
    shares, firsts = [], []
    for id, row in known.items():

        def is_other(other: str, author: str | None = row["author"]) -> bool:
            return known[other]["author"] != author or author is None

        siblings = [other for other in by_label[row["dataset"]] if other != id and is_other(other)]
        if not siblings:
            continue
        near = [hit["model"] for hit in face.find_similar(id, k=len(known) + 1000)]
        near = [other for other in near if other in known and is_other(other)]
        shares.append(_share(near[: len(siblings)], siblings))
        firsts.append(_share(near[:1], siblings))
    return len(shares), float(np.mean(shares)), float(np.mean(firsts))


def _share(near: Sequence[str], siblings: Sequence[str]) -> float:
    return sum(other in siblings for other in near) / len(near)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int)
    parser.add_argument("--slots", type=int, default=36)
    parser.add_argument("--adapters", type=Path)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        if options.models:
            synthetic(options.models, options.slots, Path(temporary))
        if options.adapters:
            real(options.adapters, Path(temporary))


if __name__ == "__main__":
    main()
