"""Bias and spread of the estimators of intrinsic dimension on clouds of known dimension, and the
error from blocks of texts against the spread over fresh samples.

    python benchmarks/studies/geometry.py [--limit 3200] [--threads 2]
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Sequence

import numpy as np
from threadpoolctl import threadpool_limits

from deltadex.study.geometry.intrinsic_dimension import (
    BLOCKS,
    ESTIMATORS,
    assign_blocks,
    estimate,
    intrinsic_dimension,
    rows_needed,
    two_nearest,
)

Values = np.ndarray


def cloud(kind: str, rng: np.random.Generator, n: int, d: int) -> Values:
    """Rows of a known dimension."""
    rows = rng.standard_normal((n, d + (kind == "sphere")))
    if kind == "gaussian":
        return rows
    if kind == "torus":
        angles = rng.random((n, d)) * 2 * np.pi
        return np.hstack([np.cos(angles), np.sin(angles)])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * rng.random((n, 1)) ** (1 / d) if kind == "ball" else rows


def biases(most_rows: int, dimensions: Sequence[int]) -> None:
    """Mean and standard deviation of the estimate over the dimension, by kind, d and N."""
    print("| cloud | d | N | " + " | ".join(ESTIMATORS) + " | an estimate of 0.8·d needs |")
    print("| --- | ---: | ---: |" + " ---: |" * (len(ESTIMATORS) + 1))
    for kind in ("ball", "gaussian", "sphere", "torus"):
        for d in dimensions:
            n = 100
            while n <= most_rows:
                found = []
                for seed in range(max(5, min(40, 16000 // n))):
                    rows = cloud(kind, np.random.default_rng([d, n, seed]), n, d)
                    nearest = two_nearest(rows)
                    found.append([estimate(nearest, name) or np.nan for name in ESTIMATORS])
                shares = np.array(found) / d
                cells = [
                    f"{mean:.2f} ± {sd:.2f}"
                    for mean, sd in zip(shares.mean(0), shares.std(0, ddof=1), strict=True)
                ]
                needs = rows_needed(0.8 * d, "facco")
                print(f"| {kind} | {d} | {n} | {' | '.join(cells)} | {needs} |")
                n *= 2


def errors(draws: int, n_texts: int) -> None:
    """The error from blocks over the spread of fresh samples, and how often intervals hold."""
    print("\n| share of a text | estimator | spread | blocks | jackknife | covered |")
    print("| ---: | --- | ---: | ---: | ---: | ---: |")
    for share in (0.0, 0.5, 0.9):
        estimates, errors_of, jackknives, bounds = [], [], [], []
        for seed in range(draws):
            rows, blocks = clustered(share, n_texts, seed)
            found = intrinsic_dimension(rows, blocks=blocks)
            parts = [two_nearest(rows[blocks != block]) for block in range(BLOCKS)]
            estimates.append([each.dimension or np.nan for each in found])
            errors_of.append([each.standard_error or np.nan for each in found])
            bounds.append([[each.low or np.nan, each.high or np.nan] for each in found])
            values = np.array([[estimate(p, name) or np.nan for name in ESTIMATORS] for p in parts])
            jackknives.append(values.std(0) * (BLOCKS - 1) ** 0.5)
        middle, spread = np.mean(estimates, axis=0), np.std(estimates, axis=0, ddof=1)
        low, high = np.array(bounds).transpose(2, 0, 1)
        covered = ((low <= middle) & (middle <= high)).mean(axis=0)
        for place, name in enumerate(ESTIMATORS):
            own, other = (
                np.sqrt(np.mean(np.array(e)[:, place] ** 2)) / spread[place]
                for e in (errors_of, jackknives)
            )
            print(
                f"| {share:.1f} | {name} | {spread[place]:.2f} | × {own:.2f} | × {other:.2f} "
                f"| {covered[place]:.2f} |"
            )


def clustered(share: float, n_texts: int, seed: int) -> tuple[Values, Values]:
    """Ten rows of each text, 5-dimensional; the rows of a text share some of their variance."""
    rng = np.random.default_rng([seed, int(10 * share)])
    centres = rng.standard_normal((n_texts, 1, 5)) * share**0.5
    rows = centres + rng.standard_normal((n_texts, 10, 5)) * (1 - share) ** 0.5
    return rows.reshape(-1, 5), assign_blocks([str(i) for i in range(n_texts)]).repeat(10)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--limit", type=int, help="rows of the largest cloud")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--toy", action="store_true", help="few small clouds")
    args = parser.parse_args()
    dimensions = (2, 10) if args.toy else (2, 3, 5, 7, 10, 15, 20, 30, 50)
    with threadpool_limits(args.threads):
        biases(args.limit or (200 if args.toy else 3200), dimensions)
        errors(5 if args.toy else 100, 70)
    print(
        f"\n{args.threads} threads of {os.cpu_count()} CPUs ({platform.machine()}, "
        f"load {os.getloadavg()[0]:.1f}), numpy {np.__version__}"
    )


if __name__ == "__main__":
    main()
