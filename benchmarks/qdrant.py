"""An export to Qdrant Edge, and candidates from it, against FAISS.

    python benchmarks/qdrant.py --models 100000 [--queries 200] [--folder DIR] [--json]

The family is that of benchmarks/scale.py: neighbours of one dataset differ by noise alone. Truth is
FAISS's flat index; recall@10 counts the ten nearest among the first ten candidates, and among the
candidates that a search scores.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from scale import BASE, Synthetic, fill

from deltadex.indexer.fingerprint import make_recipe
from deltadex.search.labelled import PooledMeans
from deltadex.search.neighbours import CANDIDATES
from deltadex.store import Catalog, FamilyView, export_vectors, parse_target, use_exported
from deltadex.store.derived import index
from deltadex.store.derived.index import SearchIndex
from deltadex.store.qdrant.index import QdrantIndex
from deltadex.store.session import Session
from deltadex.store.tables.outcomes import fetch_vectors_of

FILTERED_SHARE = 0.01


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    recipe = make_recipe("sketch", None, ())
    made = Synthetic(options.models, recipe.dim)
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        path, target = Path(temporary) / "c.duckdb", f"edge:{temporary}/vectors"
        fill(path, made)
        report: dict[str, Any] = {"models": options.models, "dim": recipe.dim}
        for name in ("first", "again"):
            with Catalog.open(path) as catalog:
                report[name] = _export(catalog, target, recipe)
        report["raw_bytes"] = options.models * recipe.dim * 4
        with Catalog.open(path) as catalog:
            _search(catalog, target, recipe, options.queries, report)
    report["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    if options.json:
        print(json.dumps(report, indent=1))
    else:
        _show(report)


def _export(catalog: Catalog, target: str, recipe: Any) -> dict[str, Any]:
    """One export: seconds, processor seconds, and what it says of itself."""
    seconds: dict[str, float] = {}

    def tracked(things: Any, what: str, total: int) -> Any:
        start = time.perf_counter()
        yield from things
        seconds[what] = round(seconds.get(what, 0.0) + time.perf_counter() - start, 2)

    cpu = time.process_time()
    exported = export_vectors(
        catalog, parse_target(target), base=BASE, recipe=recipe, tracked=tracked
    )
    own = time.process_time() - cpu
    return {**exported.to_json(), "by_step": seconds, "cpu_s": round(own, 1)}


def _search(
    catalog: Catalog, target: str, recipe: Any, n_queries: int, report: dict[str, Any]
) -> None:
    """Times and recall of every engine, with and without a filter."""
    view = catalog.family(BASE, recipe)
    start = time.perf_counter()
    engines: dict[str, SearchIndex | QdrantIndex] = {"FAISS, deltadex's default": view.index}
    report["faiss_built_s"] = round(time.perf_counter() - start, 2)
    engines["FAISS flat"] = _flat(catalog, view)
    use_exported(catalog, target)
    start = time.perf_counter()
    engines["Qdrant Edge"] = view.index
    report["qdrant_opened_s"] = round(time.perf_counter() - start, 2)
    rng = np.random.default_rng(7)
    rows = np.sort(rng.choice(len(view), n_queries, replace=False))
    # as a search asks
    centred = PooledMeans.of(view).centred(["full"] * n_queries, view.vectors_at(rows))
    queries = centred.astype(np.float32)
    share = max(10, int(FILTERED_SHARE * len(view)))
    filters = {
        "all": None,
        "1 % allowed": np.sort(rng.choice(view.keys, min(share, len(view)), replace=False)),
    }
    report["searches"] = [
        {"filter": name, "engine": engine, **_measured(index, engines["FAISS flat"], queries, rows)}
        for name, rows in filters.items()
        for engine, index in engines.items()
    ]


def _flat(catalog: Catalog, view: FamilyView) -> SearchIndex:
    """FAISS's flat index of a family of any size."""
    before, index.FLAT_UP_TO = index.FLAT_UP_TO, len(view)
    try:
        with closing(Session(catalog.access)) as session:
            return SearchIndex.of(
                view.keys,
                view.recipe.dim,
                lambda keys: fetch_vectors_of(session, view.recipe, keys),
                catalog.path.with_name("flat"),
            )
    finally:
        index.FLAT_UP_TO = before


def _measured(
    index: SearchIndex | QdrantIndex, flat: SearchIndex, queries: Any, allowed: Any
) -> dict[str, float]:
    def asked(n: int, of: SearchIndex | QdrantIndex) -> tuple[list[float], list[Any]]:
        times, answers = [], []
        for query in queries:
            start = time.perf_counter()
            answers.append(of.nearest(query, n, allowed))
            times.append(time.perf_counter() - start)
        return times, answers

    def median_ms(times: list[float]) -> float:
        return round(float(np.median(times)) * 1e3, 3)

    _, truth = asked(10, flat)
    asked(10, index)
    times, ten = asked(10, index)
    cpu = time.process_time()
    longer, candidates = asked(CANDIDATES, index)
    cpu = (time.process_time() - cpu) / len(queries)
    return {
        "p50_ms": median_ms(times),
        "candidates_p50_ms": median_ms(longer),
        "candidates_cpu_ms": round(cpu * 1e3, 3),
        "recall_at_10": _recall(truth, [keys[:10] for keys in ten]),
        "recall_in_candidates": _recall(truth, candidates),
    }


def _recall(truth: list[Any], answers: list[Any]) -> float:
    shares = [
        len(set(keys[:10].tolist()) & set(found.tolist())) / min(10, len(keys))
        for keys, found in zip(truth, answers, strict=True)
    ]
    return round(float(np.mean(shares)), 4)


def _show(report: dict[str, Any]) -> None:
    first, again, raw = report["first"], report["again"], report["raw_bytes"]
    print(f"{report['models']} models of {report['dim']} numbers, {raw >> 20} MiB of vectors")
    print(f"export: {first['seconds']:.1f} s ({first['cpu_s']} s of a core) {first['by_step']}")
    print(f"on the disk: {first['bytes'] >> 20} MiB, {first['bytes'] / raw:.2f} of the vectors")
    print(f"its own recall@10 of {first['queries']} queries: {first['recall_at_10']:.3f}")
    print(f"export again: {again['seconds']:.1f} s, {again['added']} written {again['by_step']}")
    print(f"opened: Qdrant {report['qdrant_opened_s']} s, FAISS made {report['faiss_built_s']} s")
    print(
        "| filter | engine | 10: p50 | candidates: p50 | processor | recall@10 | among candidates |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for row in report["searches"]:
        print(
            f"| {row['filter']} | {row['engine']} | {row['p50_ms']:.2f} ms "
            f"| {row['candidates_p50_ms']:.2f} ms | {row['candidates_cpu_ms']:.2f} ms "
            f"| {row['recall_at_10']:.3f} "
            f"| {row['recall_in_candidates']:.3f} |"
        )
    print(f"peak memory {report['peak_mib']} MiB")


if __name__ == "__main__":
    main()
