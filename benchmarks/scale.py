"""`find-similar` over many synthetic fingerprints: build, size, recall, latency, catching up.

    python benchmarks/scale.py --models 1000000 [--folder DIR] [--queries 200]
    python benchmarks/scale.py --models 10000000 --without-table

Fingerprints of the default recipe's length: a mean that all share, a direction for each of
models/200 datasets, noise. Neighbours of one dataset differ by the noise alone, which is the
hardest case: the first and the tenth are 0.01 apart. The catalog is a real one, filled by SQL
through the store's own session. `--without-table` leaves the table of vectors out of it, 8 KB a
model: the files beside it are written from vectors that are made again, whose seconds are told
apart, and everything else is as with the table.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from deltadex.indexer.fingerprint import make_recipe
from deltadex.records import Fingerprint, Indexed, ModelRecord, Recipe
from deltadex.search import StoredQuery, find_similar, prepare_search
from deltadex.search.labelled import PooledMeans
from deltadex.search.neighbours import VECTOR_CANDIDATES
from deltadex.store import Catalog, FamilyView, family
from deltadex.store.derived import row_files
from deltadex.store.files import index_folder
from deltadex.store.session import Session
from deltadex.store.tables.outcomes import ensure_table

BATCH = 8_192
FIRST_KEY = 10
BASE = "synthetic/base"


class Synthetic:
    """The same vectors for the same numbers."""

    def __init__(self, n_models: int, dim: int) -> None:
        rng = np.random.default_rng(0)
        self.n_models, self.dim = n_models, dim
        self._mean = _unit(rng.normal(size=(1, dim)).astype(np.float32))
        self._centres = _unit(rng.normal(size=(max(50, n_models // 200), dim)).astype(np.float32))

    def batches(self) -> Iterator[tuple[int, np.ndarray]]:
        """The family's vectors, `BATCH` at a time, each batch with the key of its first."""
        for start in range(0, self.n_models, BATCH):
            n = min(BATCH, self.n_models - start)
            yield FIRST_KEY + start, self.batch(start // BATCH, n)

    def batch(self, number: int, n: int) -> np.ndarray:
        rng = np.random.default_rng(1 + number)
        noise = rng.standard_normal((n, self.dim), dtype=np.float32) * (0.8 / self.dim**0.5)
        centres = self._centres[rng.integers(0, len(self._centres), n)]
        return _unit(0.5 * self._mean + 0.6 * centres + noise)


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def fill(path: Path, made: Synthetic) -> None:
    """A catalog whose tables hold the family's fingerprints, written by SQL."""
    recipe = make_recipe("sketch", None, ())
    with Catalog.open(path) as catalog:
        first = ModelRecord(id="first", base=BASE, signature="s")
        vector = made.batch(-1, 1)[0]
        vector.flags.writeable = False
        fingerprint = Fingerprint(recipe=recipe, vector=vector, norm=1.0)
        catalog.record(
            Indexed(model=first, fingerprints=(fingerprint,), slots=(), bytes_read=0, seconds=0.0)
        )
        with closing(Session(catalog.access)) as session:
            for first_key, vectors in made.batches():
                insert(session, recipe, first_key, vectors)


class Unstored:
    """Stands for the table of vectors: gives them as `fetch_vectors_of` does, and counts the
    seconds that making them takes."""

    def __init__(self, made: Synthetic) -> None:
        self._made, self.seconds = made, 0.0

    def __call__(
        self, session: Session, recipe: Recipe, keys: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        start = time.perf_counter()
        vectors = np.empty((len(keys), recipe.dim), np.float32)
        rows = np.asarray(keys) - FIRST_KEY
        for number in np.unique(rows // BATCH).tolist():
            is_here = rows // BATCH == number
            n = min(BATCH, self._made.n_models - number * BATCH)
            vectors[is_here] = self._made.batch(number, n)[rows[is_here] - number * BATCH]
        self.seconds += time.perf_counter() - start
        return np.asarray(keys), vectors


@contextmanager
def without_table(made: Synthetic) -> Iterator[Unstored]:
    unstored = Unstored(made)
    with (
        patch.object(row_files, "fetch_vectors_of", unstored),
        patch.object(family, "fetch_vectors_of", unstored),
    ):
        yield unstored


def fill_without_table(path: Path, made: Synthetic) -> None:
    """A catalog of the family's models, whose table of vectors is a view without vectors."""
    recipe = make_recipe("sketch", None, ())
    with Catalog.open(path) as catalog, closing(Session(catalog.access)) as session:

        def write(session: Session) -> None:
            table = ensure_table(session, recipe)
            session.execute("DROP VIEW fingerprints")
            session.execute(f"DROP TABLE {table}")
            session.execute(
                "INSERT INTO models (key, base, id, status, kind, indexed_at) "
                "SELECT range, ?, 'm' || range, 'indexed', 'full', now() FROM range(?, ?)",
                [BASE, FIRST_KEY, FIRST_KEY + made.n_models],
            )
            session.execute(
                f"CREATE VIEW {table} AS SELECT key AS model, NULL::FLOAT[{recipe.dim}] AS vector, "
                "1.0::DOUBLE AS norm FROM models"
            )

        session.write(write)


def insert(session: Session, recipe: Recipe, first_key: int, vectors: np.ndarray) -> None:
    """Write one batch of models that are known by nothing but their vectors."""
    rows = pa.table(
        {
            "model": pa.array(range(first_key, first_key + len(vectors)), pa.int64()),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), recipe.dim),
            "norm": pa.array(np.ones(len(vectors))),
        }
    )

    def write(session: Session) -> None:
        table = ensure_table(session, recipe)
        with session.registered("added", rows):
            session.execute(f"INSERT INTO {table} SELECT * FROM added")
            session.execute(
                "INSERT INTO models (key, base, id, status, kind, indexed_at) "
                "SELECT model, ?, 'm' || model, 'indexed', 'full', now() FROM added",
                [BASE],
            )

    session.write(write)


def exact(made: Synthetic, means: PooledMeans, queries: np.ndarray, k: int) -> np.ndarray:
    """Keys of the k best by centred cosine with the centred `queries`, over every batch."""
    (mean,) = means.by_kind.values()
    mean = mean.astype(np.float32)
    best = np.full((len(queries), k), -np.inf, dtype=np.float32)
    keys = np.zeros((len(queries), k), dtype=np.int64)
    for first_key, vectors in made.batches():
        scores = queries @ _unit(vectors - mean).T
        top = np.argpartition(-scores, min(k, len(vectors)) - 1, axis=1)[:, :k]
        best = np.concatenate([best, np.take_along_axis(scores, top, 1)], axis=1)
        keys = np.concatenate([keys, top + first_key], axis=1)
        order = np.argsort(-best, axis=1)[:, :k]
        best = np.take_along_axis(best, order, 1)
        keys = np.take_along_axis(keys, order, 1)
    return keys


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--keep", type=Path, help="A catalog to make, or to use again.")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--without-table", action="store_true")
    options = parser.parse_args()
    recipe = make_recipe("sketch", None, ())
    made = Synthetic(options.models, recipe.dim)
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        path = options.keep or Path(temporary) / "c.duckdb"
        start = time.perf_counter()
        if not path.exists():
            (fill_without_table if options.without_table else fill)(path, made)
        _say("fill the catalog", start)
        with without_table(made) if options.without_table else nullcontext() as unstored:
            if not any(index_folder(path).glob("*.faiss")):
                make(path, recipe, unstored)
            ask(path, recipe, made, options.queries)
        if not options.without_table:
            _catch_up(path, made, recipe)


def make(path: Path, recipe: Recipe, unstored: Unstored | None) -> None:
    """Write the index and the mapped file of vectors, and print what they take."""
    with Catalog.open(path) as catalog:
        view = catalog.family(BASE, recipe)
        for what, act in (
            ("the mapped file of vectors", view.write_sketch_file),
            ("the index", lambda: view.index),
        ):
            start, processor = time.perf_counter(), time.process_time()
            made_before = unstored.seconds if unstored else 0.0
            act()
            _say(f"write {what}, {time.process_time() - processor:.0f} s of a processor", start)
            if unstored is not None:
                print(f"of these to make vectors {unstored.seconds - made_before:.0f} s")
    sizes: dict[str, int] = defaultdict(int)
    for file in index_folder(path).iterdir():
        sizes[file.suffix] += file.stat().st_size
    for ending, size in sizes.items():
        print(f"index files, {ending}: {size / 2**30:.2f} GiB")
    _say_memory("making")


def ask(path: Path, recipe: Recipe, made: Synthetic, n_queries: int) -> None:
    """Open what is there, and print recall and times."""
    with Catalog.open(path) as catalog:
        start = time.perf_counter()
        view = catalog.family(BASE, recipe)
        _say(f"read {len(view)} models", start)
        start = time.perf_counter()
        _ = view.index
        _say("open the index, from its file", start)
        _say_memory("open")
        start = time.perf_counter()
        prepare_search(catalog, BASE, recipe)
        _say("prepare the first search", start)
        _queries(catalog, catalog.family(BASE, recipe), made, n_queries)
        _say_memory("asking")


def _say_memory(what: str) -> None:
    """Print what the process holds beside mapped files, and its peak."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    own = int(status["RssAnon"].split()[0]) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{what}: {own:.2f} GiB beside mapped files, peak memory {peak:.1f} GiB", flush=True)


def _queries(catalog: Catalog, view: FamilyView, made: Synthetic, n_queries: int) -> None:
    """Print recall and times of queries from models of the family."""
    rng, means = np.random.default_rng(7), PooledMeans.of(view)
    names = [f"m{FIRST_KEY + row}" for row in rng.integers(0, made.n_models, n_queries)]
    centred = np.concatenate(
        [means.centred(["full"], view.vectors(view.keys[view.rows([name])])) for name in names]
    ).astype(np.float32)
    first, found = _asked(catalog, names)
    warm, _ = _asked(catalog, names)
    bare = []
    for query in centred:
        start = time.perf_counter()
        view.index.nearest(query, VECTOR_CANDIDATES)
        bare.append(time.perf_counter() - start)
    truth = exact(made, means, centred, 11)
    recall = np.mean(
        [
            len(got & set([k for k in keys.tolist() if f"m{k}" != name][:10])) / 10
            for got, keys, name in zip(found, truth, names, strict=True)
        ]
    )
    for what, times in (
        ("find_similar(), vectors read for the first time", first),
        ("find_similar(), warm", warm),
        ("bare FAISS, same candidates", bare),
    ):
        p50, p95 = np.percentile(times, [50, 95]) * 1e3
        print(f"{what}: p50 {p50:.1f} ms, p95 {p95:.1f} ms")
    print(f"recall@10 against exact: {recall:.3f}")


def _asked(catalog: Catalog, names: Sequence[str]) -> tuple[list[float], list[set[int]]]:
    """Seconds of each query, and the keys that it found."""
    times, found = [], []
    for name in names:
        start = time.perf_counter()
        answer = find_similar(catalog, StoredQuery(name, BASE), k=10)
        times.append(time.perf_counter() - start)
        found.append({int(one.model[1:]) for one in answer.neighbours if one.model != "first"})
    return times, found


def _catch_up(path: Path, made: Synthetic, recipe: Recipe) -> None:
    """Add a batch, or as many models as there are, and time the opening of the index."""
    n_new = min(BATCH, made.n_models)
    with Catalog.open(path) as catalog, closing(Session(catalog.access)) as session:
        ((highest,),) = session.execute("SELECT max(key) FROM models")
        insert(session, recipe, highest + 1, made.batch(highest, n_new))
    with Catalog.open(path) as catalog:
        start = time.perf_counter()
        n_models = len(catalog.family(BASE, recipe).index.keys)
        _say(f"catch up {n_new} new rows to {n_models}", start)


def _say(what: str, start: float) -> None:
    print(f"{what}: {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
