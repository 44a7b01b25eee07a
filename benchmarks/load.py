"""`deltadex serve` under load: latency, errors and memory over minutes.

    python benchmarks/load.py --models 100000 --rate 50 --minutes 5 [--keep CATALOG]
    python benchmarks/load.py --models 24000 --clients 50 --job --minutes 1 [--python OLD/python]

The catalog is a real one, filled by SQL: synthetic fingerprints with sketches of a 6-layer
encoder (36 slots, 19 KB a model), 200 models a dataset. The service is the command line's, in a
process of its own. Requests leave at fixed times whether or not earlier ones are answered, so a
stall shows in every request that it delays. With --clients each of them asks again as soon as it is
answered; first one asks alone. --job: a map is computed meanwhile; --python: of another version.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import duckdb
import httpx2
import numpy as np
import pyarrow as pa

from deltadex.indexer.fingerprint import make_recipe
from deltadex.records import Fingerprint, Indexed, ModelRecord, Recipe, Slot, SlotStats
from deltadex.store import Catalog, block_dims, encode_sketch, sketch_bytes

BASE = "synthetic/base"
BATCH = 1_000
FEATURES = 2_048
PER_DATASET = 200
SLOTS = [
    ("encoder", layer, role) for layer in range(6) for role in ("q", "k", "v", "o", "up", "down")
]
WIDTH = FEATURES * len(SLOTS)
EVERY_S = 0.2
"""Between two looks at whether the service is ready."""

Batch = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Datasets (models,), sketches (models, features) float32, pooled (models, dim)."""


class Synthetic:
    """Sketches of a mean that all share, a direction for each dataset, noise; pooled vectors
    are sums of them under random signs."""

    def __init__(self, n_models: int, dim: int) -> None:
        rng = np.random.default_rng(0)
        self.n_models = n_models
        self.n_datasets = max(50, n_models // PER_DATASET)
        self._dim = dim
        self._mean = rng.standard_normal(WIDTH, dtype=np.float32)
        self._noise = rng.standard_normal(4_000_000, dtype=np.float32)
        self._signs = rng.choice(np.array([-1, 1], np.float32), size=WIDTH)

    def batches(self) -> Iterator[tuple[int, Batch]]:
        """The family's models, `BATCH` at a time, each batch with the number of its first."""
        for start in range(0, self.n_models, BATCH):
            yield start, self.batch(start // BATCH, min(BATCH, self.n_models - start))

    def batch(self, number: int, n: int) -> Batch:
        rng = np.random.default_rng(1 + number)
        datasets = rng.integers(0, self.n_datasets, size=n)
        starts = rng.integers(0, len(self._noise) - WIDTH, size=n)
        sketches = np.empty((n, WIDTH), np.float32)
        for row, (dataset, start) in enumerate(zip(datasets, starts, strict=True)):
            centre = np.random.default_rng(10_000 + dataset).integers(0, len(self._noise) - WIDTH)
            sketches[row] = 0.5 * self._mean + 0.6 * self._noise[centre : centre + WIDTH]
            sketches[row] += 0.8 * self._noise[start : start + WIDTH]
        pooled = (sketches * self._signs).reshape(n, -1, self._dim).sum(axis=1)
        return datasets, sketches, pooled / np.linalg.norm(pooled, axis=1, keepdims=True)


def fill(path: Path, n_models: int) -> None:
    """A catalog of that many models, written by SQL."""
    recipe = make_recipe("sketch", None, ())
    made = Synthetic(n_models, recipe.dim)
    with Catalog.open(path) as catalog:
        catalog.record(_first(recipe))
        catalog.remove("first")
    with duckdb.connect(str(path)) as connection:
        connection.execute("SET wal_autocheckpoint = '4GB'")
        table = connection.execute("SELECT vectors FROM recipes").fetchall()[0][0]
        for start, batch in made.batches():
            _insert(connection, table, recipe, start, batch)
        connection.execute("CHECKPOINT")


def _first(recipe: Recipe) -> Indexed:
    """A model whose recording makes the tables."""
    slots = tuple(
        SlotStats(
            slot=Slot(*slot),
            shape=(384, 384),
            fro_norm=1.0,
            relative_norm=0.01,
            sigma=np.ones(4, np.float32),
            energy=0.9,
            stable_rank=3.0,
            noise_floor=0.0,
            sketch=bytes(sketch_bytes(block_dims(recipe))),
        )
        for slot in SLOTS
    )
    vector = np.full(recipe.dim, recipe.dim**-0.5, np.float32)
    return Indexed(
        model=ModelRecord(id="first", base=BASE, signature="s"),
        fingerprints=(Fingerprint(recipe=recipe, vector=vector, norm=1.0),),
        slots=slots,
        bytes_read=0,
        seconds=0.0,
    )


def _insert(
    connection: duckdb.DuckDBPyConnection, table: str, recipe: Recipe, start: int, batch: Batch
) -> None:
    datasets, sketches, pooled = batch
    n_models = len(datasets)
    keys = np.arange(start + 10, start + 10 + n_models)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(pooled.ravel()), pooled.shape[1])
    connection.register("added", pa.table({"key": keys, "vector": vectors, "dataset": datasets}))
    connection.execute(f"INSERT INTO {table} SELECT key, vector, 1.0 FROM added")
    connection.execute(
        "INSERT INTO models (key, base, id, status, kind, method, dataset, author, downloads, "
        "signature, bytes_total, bytes_read, seconds, indexed_at) "
        "SELECT key, ?, 'author-' || key % 997 || '/m' || key, 'indexed', 'full', 'full', "
        "'dataset-' || dataset, 'author-' || key % 997, key % 5000, 's', 1, 1, 0.1, now() "
        "FROM added",
        [BASE],
    )
    ends = np.cumsum(list(block_dims(recipe).values()))[:-1]
    rows = sketches.reshape(-1, FEATURES)
    encoded = [encode_sketch(np.split(row, ends), [1.0] * (len(ends) + 1)) for row in rows]
    stacks, layers, roles = zip(*SLOTS, strict=True)
    connection.register(
        "added_slots",
        pa.table(
            {
                "model": np.repeat(keys, len(SLOTS)),
                "stack": list(stacks) * n_models,
                "layer": np.tile(np.array(layers, np.int32), n_models),
                "role": list(roles) * n_models,
                "sketch": encoded,
            }
        ),
    )
    connection.execute(
        "INSERT INTO slots (model, stack, layer, role, rows, columns, fro_norm, relative_norm, "
        "sigma, energy, stable_rank, noise_floor, recipe, sketch) "
        "SELECT model, stack, layer, role, 384, 384, 1.0, 0.01, [1.0, 0.5], 0.9, 3.0, 0.0, ?, "
        "sketch FROM added_slots",
        [recipe.id],
    )
    connection.unregister("added")
    connection.unregister("added_slots")


@contextmanager
def served(path: Path, python: str) -> Iterator[tuple[str, int]]:
    """The service's address and process, from when it is ready until the block ends."""
    command = [python, "-m", "deltadex", "serve", "--db", str(path), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            address = announced(process)
            wait_until_ready(process, address)
            yield address, process.pid
        finally:
            process.terminate()


def announced(process: subprocess.Popen[str]) -> str:
    """The address that the service prints when it listens."""
    assert process.stdout is not None
    text = ""
    while not text.rstrip().endswith("}"):
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"the service ended before it listened: exit code {process.wait()}")
        text += line
    return str(json.loads(text)["address"]).rstrip("/")


def wait_until_ready(process: subprocess.Popen[str], address: str) -> None:
    start = time.monotonic()
    while httpx2.get(f"{address}/api/v1/ready", trust_env=False).status_code != 200:
        if process.poll() is not None:
            raise SystemExit(f"the service ended before it was ready: exit code {process.poll()}")
        time.sleep(EVERY_S)
    print(f"ready after {time.monotonic() - start:.0f} s")


def bring_into_memory(path: Path) -> None:
    """Read the files that a service searches, which a machine that serves holds in memory."""
    for file in sorted(Path(f"{path}.index").glob("*")):
        with file.open("rb") as opened:
            while opened.read(1 << 24):
                pass


class Client:
    """Asks over connections that stay open, cheaply: it runs on the same processors."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.removeprefix("http://").partition(":")
        self._port = int(port)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def status(self, path: str) -> int:
        """What the service answers with, its body read."""
        reader, writer = await self._connection()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))
        self._idle.append((reader, writer))
        return int(head.split()[1])

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """One that is open still: the service closes those that were idle for long."""
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        return await asyncio.open_connection(self._host, self._port)

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()


async def load(address: str, names: list[str], rate: float, seconds: float, pid: int) -> None:
    """Ask at fixed times; print what came of it, a line a minute."""
    client = Client(address)
    results: list[tuple[float, float, int]] = []

    async def ask(name: str, due: float) -> None:
        try:
            status = await client.status(f"/api/v1/similar?model={quote(name)}&k=10")
        except (OSError, EOFError, ValueError):
            status = 0
        results.append((due - start, time.perf_counter() - due, status))

    before, own = processor_seconds(pid), time.process_time()
    start, tasks = time.perf_counter(), []
    for number in range(int(rate * seconds)):
        due = start + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(ask(names[number % len(names)], due)))
        if number % int(rate * 60) == 0:
            print(f"  minute {number / rate / 60:.0f}: {resident(pid):.0f} MiB of its own")
    await asyncio.gather(*tasks)
    client.close()
    used = 1e3 * (processor_seconds(pid) - before) / len(results)
    asking = 1e3 * (time.process_time() - own) / len(results)
    print(f"  end: {resident(pid):.0f} MiB of its own")
    print(f"  processor time a request: {used:.1f} ms, and {asking:.1f} ms to ask")
    waits = np.array([wait for _, wait, _ in results]) * 1e3
    errors = sum(status != 200 for _, _, status in results)
    shown = ", ".join(f"p{q} {np.percentile(waits, q):.1f}" for q in (50, 90, 95, 99, 100))
    print(f"{len(results)} requests at {rate:g}/s: {shown} ms; {errors} errors")


async def clients(
    address: str, names: list[str], n: int, seconds: float, pid: int, job: bool
) -> None:
    """Have `n` clients ask one after the other, beside polls of a map if a `job` is wanted; print
    how long they waited."""
    client, start = Client(address), time.perf_counter()
    waits: list[float] = []
    statuses: Counter[tuple[str, int]] = Counter()
    left = iter(names * 100)

    async def ask() -> None:
        while time.perf_counter() - start < seconds:
            sent = time.perf_counter()
            status = await client.status(f"/api/v1/similar?model={quote(next(left))}&k=10")
            waits.append(time.perf_counter() - sent)
            statuses["similar", status] += 1

    async def poll() -> None:
        while job and time.perf_counter() - start < seconds:
            statuses["map", await client.status("/api/v1/map?layout=tsne&axes=false")] += 1
            await asyncio.sleep(1.0)

    before = processor_seconds(pid)
    await asyncio.gather(poll(), *(ask() for _ in range(n)))
    client.close()
    used = 1e3 * (processor_seconds(pid) - before) / len(waits)
    shown = ", ".join(f"p{q} {1e3 * np.percentile(waits, q):.0f}" for q in (50, 90, 95, 99))
    beside = " beside a map" if job else ""
    print(
        f"{n} clients{beside}: {len(waits) / seconds:.0f} answers/s, {shown} ms; processor time a "
        f"request {used:.1f} ms; {resident(pid):.0f} MiB of its own; {dict(statuses)}"
    )


def processor_seconds(pid: int) -> float:
    """What a process and those that it started have used so far."""
    used = [one.joinpath("stat").read_text().rsplit(")", 1)[1].split() for one in processes(pid)]
    return sum(int(one[11]) + int(one[12]) for one in used) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> float:
    """MiB of memory that is their own: pages of files that they read are not."""
    lines = (line for one in processes(pid) for line in (one / "status").read_text().splitlines())
    return sum(int(line.split()[1]) for line in lines if "RssAnon" in line) / 1024


def processes(pid: int) -> list[Path]:
    """A process, and those that it started, where the system shows them."""
    own = Path(f"/proc/{pid}")
    below = [
        int(child) for file in own.glob("task/*/children") for child in file.read_text().split()
    ]
    return [own, *(one for child in below for one in processes(child))]


def main() -> None:
    sys.stdout.reconfigure(line_buffering=True)
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int, default=100_000)
    parser.add_argument("--rate", type=float, default=50)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--clients", type=int, help="Clients that ask one after the other.")
    parser.add_argument("--job", action="store_true", help="Have a map computed meanwhile.")
    parser.add_argument("--python", default=sys.executable, help="Interpreter of the service.")
    parser.add_argument("--keep", type=Path, help="A catalog to make, or to use again.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        path = options.keep or Path(temporary) / "c.duckdb"
        if not path.exists():
            start = time.monotonic()
            fill(path, options.models)
            print(f"catalog filled in {time.monotonic() - start:.0f} s")
        print(f"catalog {path.stat().st_size / 2**30:.1f} GiB, {os.cpu_count()} cores")
        with Catalog.open(path, read_only=True) as catalog:
            names = [row.id for row in catalog.models(base=BASE)]
        names = [str(name) for name in np.random.default_rng(3).permutation(names)]
        with served(path, options.python) as (address, pid):
            bring_into_memory(path)
            if options.clients:
                for n, job in (
                    (1, False),
                    (options.clients, False),
                    (options.clients, options.job),
                ):
                    asyncio.run(clients(address, names, n, options.minutes * 60, pid, job))
                return
            asyncio.run(load(address, names, options.rate, options.minutes * 60, pid))


if __name__ == "__main__":
    main()
