"""How long the whole Hub takes: a simulation of many workers, with its assumptions.

    python benchmarks/hub_simulation.py [--models 2400000] [--megabytes 20] [--help]

Every model goes to the worker that is free first. It waits until the Hub's window (300 s) has
requests left for all of its requests, then its bytes travel at the worker's bandwidth while they
are computed with: the slower of the two counts. Sizes are lognormal around the budget: most
adapters are smaller, and a model that is smaller than its budget is read whole. Every worker has
its own link; one token is shared by all, as Ray's workers share it here.
"""

from __future__ import annotations

import argparse
import heapq
from dataclasses import dataclass

import numpy as np

WINDOW_S = 300.0

LIMITS = {"free token": 5_000, "PRO token": 12_000}
"""Requests for files per window (Hub documentation, September 2025)."""

WORKERS = (1, 16, 256)
DOLLARS_PER_GB_MONTH = 0.023
"""Object storage, first tier, list price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What is assumed of the Hub and of a worker.

    Attributes:
        models: That are read.
        budget_bytes: Most of them read this much; smaller ones are read whole.
        median_bytes: Of what would be read without a budget.
        sigma: Of the logarithm of the sizes.
        requests: For files, of a model: a HEAD for each weight file, its config, and a card for
            those without a label.
        latency_s: Of one request, one after the other.
        bytes_per_second: Of a worker's link.
        cpu_bytes_per_second: Of reading, subtracting and sketching, on one core.
        catalog_bytes, part_bytes, published_bytes: Of a model.
    """

    models: int
    budget_bytes: float
    median_bytes: float = 40e6
    sigma: float = 1.5
    requests: float = 2.9
    latency_s: float = 0.15
    bytes_per_second: float = 125e6
    cpu_bytes_per_second: float = 60e6
    catalog_bytes: float = 64_000
    part_bytes: float = 32_000
    published_bytes: float = 15_500


def seconds(assumed: Assumptions, workers: int, limit: int, *, seed: int = 0) -> float:
    """How long the last model ends after the start."""
    rng = np.random.default_rng(seed)
    sizes = bytes_of_models(assumed, rng)
    slowest = min(assumed.bytes_per_second, assumed.cpu_bytes_per_second)
    service = sizes / slowest + assumed.requests * assumed.latency_s
    free = [0.0] * workers
    heapq.heapify(free)
    n_requests, end = 0.0, 0.0
    for needed in service.tolist():
        window_opens = WINDOW_S * int(n_requests / limit)
        n_requests += assumed.requests
        done = max(heapq.heappop(free), window_opens) + needed
        heapq.heappush(free, done)
        end = max(end, done)
    return end


def bytes_of_models(assumed: Assumptions, rng: np.random.Generator) -> np.ndarray:
    """Bytes that are read of each model."""
    whole = assumed.median_bytes * np.exp(assumed.sigma * rng.standard_normal(assumed.models))
    return np.minimum(whole, assumed.budget_bytes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=2_400_000)
    parser.add_argument("--megabytes", type=float, default=20.0)
    options = parser.parse_args()
    assumed = Assumptions(models=options.models, budget_bytes=1e6 * options.megabytes)
    total = float(bytes_of_models(assumed, np.random.default_rng(0)).sum())
    n_requests = assumed.models * assumed.requests
    print(f"{assumed}\n")
    print(f"{total / 1e12:.1f} TB read, {n_requests / 1e6:.1f} million requests for files\n")
    print("| workers | " + " | ".join(f"days, {name}" for name in LIMITS) + " | Gbit/s, all |")
    print("| --- | " + " | ".join("---" for _ in LIMITS) + " | --- |")
    for workers in WORKERS:
        times = [seconds(assumed, workers, limit) for limit in LIMITS.values()]
        days = " | ".join(f"{time / 86_400:.1f}" for time in times)
        print(f"| {workers} | {days} | {8e-9 * total / min(times):.1f} |")
    print("\n| what is kept | GB | dollars a month |")
    print("| --- | --- | --- |")
    kept = {
        "catalog": assumed.catalog_bytes,
        "parts, until they are merged": assumed.part_bytes,
        "published index": assumed.published_bytes,
    }
    for name, size in kept.items():
        gigabytes = 1e-9 * size * assumed.models
        print(f"| {name} | {gigabytes:.0f} | {DOLLARS_PER_GB_MONTH * gigabytes:.2f} |")


if __name__ == "__main__":
    main()
