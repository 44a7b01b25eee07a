"""The power law of a matrix's eigenvalues, against the same fit tail by tail, in one run.

    python benchmarks/studies/spectrum.py [--sizes 384 768 2048] [--repeats 3]

The rivals try the same tails: SciPy's maximum likelihood, and the package `powerlaw` where it is
installed (with α up to 100; its default stops at 3).
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable

import numpy as np
from scipy import stats

from deltadex.study.spectrum import fit_power_law

Fit = Callable[[np.ndarray], tuple[float, float]]


def by_deltadex(values: np.ndarray) -> tuple[float, float]:
    """(α, distance)."""
    law = fit_power_law(values)
    assert law is not None
    return law.alpha, law.distance


def by_scipy(values: np.ndarray) -> tuple[float, float]:
    found = []
    ascending = np.sort(values)
    for start in range(len(values) - 1):
        tail = ascending[start:]
        exponent, _, _ = stats.pareto.fit(tail, floc=0, fscale=tail[0])
        below = np.arange(len(tail)) / len(tail)
        law = stats.pareto.cdf(tail, exponent, scale=tail[0])
        found.append((float(np.abs(law - below).max()), 1.0 + exponent))
    distance, alpha = min(found)
    return alpha, distance


def by_powerlaw(values: np.ndarray) -> tuple[float, float]:
    import powerlaw

    fit = powerlaw.Fit(values, verbose=False, parameter_ranges={"alpha": [1.0, 100.0]})
    return float(fit.alpha), float(fit.D)


def eigenvalues(size: int) -> np.ndarray:
    """Of a random matrix with added directions of Pareto sizes."""
    rng = np.random.default_rng(size)
    matrix = rng.normal(size=(size, size)) / np.sqrt(size)
    heavy = rng.pareto(2.0, size // 4) * rng.normal(size=(size, size // 4)) / np.sqrt(size)
    matrix[:, : size // 4] += heavy
    values: np.ndarray = np.linalg.svd(matrix, compute_uv=False) ** 2
    return values[values > 1e-13 * values[0]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[384, 768, 2048])
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    methods: dict[str, Fit] = {"deltadex": by_deltadex, "SciPy, tail by tail": by_scipy}
    if importlib.util.find_spec("powerlaw"):
        methods["powerlaw"] = by_powerlaw
    print("| eigenvalues | method | ms | × deltadex | α | distance |")
    print("| ---: | --- | ---: | ---: | ---: | ---: |")
    for size in args.sizes:
        values = eigenvalues(size)
        taken: dict[str, list[float]] = {name: [] for name in methods}
        found = {}
        for _ in range(args.repeats):
            for name, fit in methods.items():
                start = time.perf_counter()
                found[name] = fit(values)
                taken[name].append(time.perf_counter() - start)
        for name, seconds in taken.items():
            pairs = zip(seconds, taken["deltadex"], strict=True)
            ratio = statistics.median(theirs / ours for theirs, ours in pairs)
            alpha, distance = found[name]
            print(
                f"| {len(values)} | {name} | {1000 * min(seconds):.1f} | {ratio:.0f} "
                f"| {alpha:.4f} | {distance:.4f} |"
            )


if __name__ == "__main__":
    main()
