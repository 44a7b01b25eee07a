"""The largest share σ₁²/Σσ² of a matrix in memory, by each method against a full SVD.

    python benchmarks/anisotropy.py [--rows 1000] [--cols 3000] [--repeats 5] [--threads 2]

Methods take turns in one process, so that whatever else the machine does hits all alike; a
speed-up is the median of the ratios of one turn. Errors are against a float64 SVD.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from deltadex.study.geometry.moments import (
    Moments,
    RowSums,
    lanczos,
    power_method,
    streamed_anisotropy,
    sum_of_squares,
)

SEED = 0
BASELINE = "torch SVD with U, V"
Method = Callable[[np.ndarray], float]


def spectra(rows: int, cols: int) -> dict[str, np.ndarray]:
    """Centred float32 matrices: no gap, σᵢ₊₁/σᵢ = .992, one σ sixty times the next."""
    rng = np.random.default_rng(SEED)
    noise = rng.standard_normal((rows, cols))
    side = min(rows, cols)
    left = np.linalg.qr(rng.standard_normal((rows, side)))[0]
    right = np.linalg.qr(rng.standard_normal((cols, side)))[0]
    slow = left * 0.992 ** np.arange(side) @ right.T
    gap = noise + 3.0 * np.outer(rng.standard_normal(rows), rng.standard_normal(cols))
    named = {"iid": noise, "slow decay": slow, "big gap": gap}
    return {name: (m - m.mean(axis=0)).astype(np.float32) for name, m in named.items()}


def by_svd(matrix: np.ndarray) -> float:
    """As LLM-Microscope computes it."""
    _, sigma, _ = torch.linalg.svd(torch.from_numpy(matrix), full_matrices=False)
    return float(sigma[0] ** 2 / (sigma**2).sum())


def by_values(matrix: np.ndarray) -> float:
    """Full SVD without vectors."""
    sigma = torch.linalg.svdvals(torch.from_numpy(matrix))
    return float(sigma[0] ** 2 / (sigma**2).sum())


def by_lanczos(matrix: np.ndarray) -> float:
    """What `deltadex geometry --method lanczos` does with kept tokens."""
    return lanczos(matrix, seed=SEED) / sum_of_squares(matrix)


def by_power(matrix: np.ndarray) -> float:
    """Until it stands still to 1e-6, the larger of two starts."""
    return power_method(matrix, seed=SEED).value / sum_of_squares(matrix)


def by_gram(matrix: np.ndarray) -> float:
    """What `deltadex geometry` does by default, all tokens in one batch."""
    moments = Moments(matrix.shape[1])
    moments.update(matrix)
    return streamed_anisotropy(moments, RowSums(matrix.shape[1])).centred or 0.0


METHODS: dict[str, Method] = {
    BASELINE: by_svd,
    "torch svdvals": by_values,
    "Lanczos": by_lanczos,
    "power, two starts": by_power,
    "streamed Gram, centred and not": by_gram,
}


def measure(matrix: np.ndarray, repeats: int) -> tuple[dict[str, list[float]], dict[str, float]]:
    """(seconds of each turn, relative error), by method."""
    sigma = np.linalg.svd(matrix.astype(np.float64), compute_uv=False)
    exact = float(sigma[0] ** 2 / (sigma**2).sum())
    seconds: dict[str, list[float]] = {name: [] for name in METHODS}
    errors: dict[str, float] = {}
    for turn in range(repeats + 1):
        for name, method in METHODS.items():
            start = time.perf_counter()
            answer = method(matrix)
            if turn:  # the first turn warms up
                seconds[name].append(time.perf_counter() - start)
            errors[name] = abs(answer / exact - 1.0)
    return seconds, errors


def ratio(baseline: list[float], own: list[float]) -> float:
    """Median over turns."""
    return statistics.median(b / o for b, o in zip(baseline, own, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--cols", type=int, default=3000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    lines, worst_ratio, worst_error = [], float("inf"), 0.0
    with threadpool_limits(args.threads):
        for spectrum, matrix in spectra(args.rows, args.cols).items():
            seconds, errors = measure(matrix, args.repeats)
            for name, own in seconds.items():
                against_svd = ratio(seconds[BASELINE], own)
                against_values = ratio(seconds["torch svdvals"], own)
                lines.append(
                    f"| {spectrum} | {name} | {1e3 * statistics.median(own):.1f} "
                    f"| {against_svd:.1f} | {against_values:.1f} | {errors[name]:.1e} |"
                )
            worst_ratio = min(worst_ratio, ratio(seconds[BASELINE], seconds["Lanczos"]))
            worst_error = max(worst_error, errors["Lanczos"])
    print(
        f"Lanczos: {worst_ratio:.1f}× faster than the full SVD or more, "
        f"relative error {worst_error:.1e} or less.\n"
    )
    print(f"| spectrum | method | ms | × {BASELINE} | × svdvals | relative error |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    print("\n".join(lines))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"\n{args.rows} × {args.cols} float32, seed {SEED}, median of {args.repeats} turns, "
        f"{args.threads} threads of {os.cpu_count()} CPUs ({platform.machine()}, "
        f"load {os.getloadavg()[0]:.1f}), numpy {np.__version__}, torch {torch.__version__}, "
        f"peak {peak:.0f} MB in all."
    )


if __name__ == "__main__":
    main()
