"""How well maps keep neighbourhoods, how long they take: of a catalog, or of a made family.

    python benchmarks/layouts.py family.duckdb
    python benchmarks/layouts.py 20000 --dim 1024 --layouts pca auto umap  # more than 4,000

Label precision: the share of a labelled model's nearest on the map (5 of a catalog, 10 of a
made family, never more than its siblings) that have its label. Trustworthiness (Venna, Kaski
2001) is scikit-learn's, in the space that is laid out; on 3,000 models where there are more.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import numpy as np
from sklearn.manifold import trustworthiness
from sklearn.neighbors import NearestNeighbors

from deltadex.search import family_views, labelled_models, place_models
from deltadex.search.layout import axes_of
from deltadex.store import Catalog

SAMPLE = 3_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("family", help="A catalog of one family, or a number of models.")
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--layouts", nargs="+", default=["pca", "tsne", "umap"])
    args = parser.parse_args()
    if args.family.isdigit():
        measure_made(int(args.family), args.dim, args.layouts)
    else:
        measure_catalog(Path(args.family), args.layouts)


def measure_catalog(path: Path, layouts: list[str]) -> None:
    with Catalog.open(path, read_only=True, create=False) as catalog:
        family = labelled_models(*family_views(catalog, None, None))
    labels = np.array([label or "" for label in family.labels])
    gram = family.vectors @ family.vectors.T if family.scores is None else family.scores
    distances = np.sqrt(np.maximum(0.0, 2 - 2 * gram))
    np.fill_diagonal(distances, 0.0)
    near = min(5, (len(labels) - 1) // 2 - 1)
    for layout in layouts:
        for name, scores in (("vectors", None), ("scores", family.scores)):
            placed = place_models(family.ids, family.vectors, layout, scores=scores).coordinates
            right = label_precision(placed, labels, np.flatnonzero(labels != ""), 5)
            trust = trustworthiness(distances, placed, n_neighbors=near, metric="precomputed")
            print(f"{layout} of {name}: precision {right:.3f}, trustworthiness {trust:.3f}")


def measure_made(n_models: int, dim: int, layouts: list[str]) -> None:
    vectors, datasets = make_family(n_models, dim)
    ids, every = [f"model-{i:05d}" for i in range(n_models)], np.arange(n_models)
    sample = np.random.default_rng(1).permutation(n_models)[:SAMPLE]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for layout in layouts:
        start = time.perf_counter()
        axes = axes_of(vectors[sample], n_models, lambda axes: [(every, vectors @ axes)])
        placed = place_models(ids, vectors, layout, axes=axes)
        seconds = time.perf_counter() - start
        peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
        right = label_precision(placed.coordinates, datasets, sample, 10)
        trust = trustworthiness(vectors[sample], placed.coordinates[sample], n_neighbors=15)
        print(
            f"{layout} (landmarks {placed.landmarks}): {seconds:.1f} s, {peak:.2f} GiB more, "
            f"precision {right:.3f}, trustworthiness {trust:.3f}"
        )


def make_family(n_models: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors and datasets: 150 datasets of 12 topics, sizes as Zipf's, cosines
    of about 0.25 within a dataset and 0.1 within an author."""
    rng = np.random.default_rng(0)
    shares = 1 / np.arange(1, 151) ** 0.8
    datasets = rng.choice(150, n_models, p=shares / shares.sum())
    authors = rng.zipf(1.6, n_models) % 400
    topics = rng.normal(size=(12, dim)).astype(np.float32)
    centres = rng.normal(size=(150, dim)).astype(np.float32) * 0.9
    centres += 0.45 * topics[rng.integers(0, 12, 150)]
    habits = rng.normal(size=(400, dim)).astype(np.float32)
    vectors = np.empty((n_models, dim), np.float32)
    for begin in range(0, n_models, 2_000):
        rows = slice(begin, begin + 2_000)
        block = 0.65**0.5 * rng.standard_normal((len(datasets[rows]), dim), dtype=np.float32)
        block += 0.25**0.5 * centres[datasets[rows]] + 0.1**0.5 * habits[authors[rows]]
        vectors[rows] = block / np.linalg.norm(block, axis=1, keepdims=True)
    return vectors, datasets


def label_precision(places: np.ndarray, labels: np.ndarray, queries: np.ndarray, k: int) -> float:
    neighbours = NearestNeighbors(n_neighbors=min(k, len(places) - 1) + 1).fit(places)
    shares = []
    for row, found in zip(queries, neighbours.kneighbors(places[queries])[1], strict=True):
        wanted = min(k, int((labels == labels[row]).sum()) - 1)
        if wanted:
            others = found[found != row][:wanted]
            shares.append((labels[others] == labels[row]).mean())
    return float(np.mean(shares))


if __name__ == "__main__":
    main()
