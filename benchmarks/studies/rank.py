"""`rank` of a whole model against a full SVD of every matrix, in one run.

    python benchmarks/studies/rank.py [--shape bert-base] [--layers 12] [--repeats 3] [--threads 2]

Base and fine-tune are made on the fly. Each method reads both, subtracts, and counts r_θ of every
matrix at three θ; `deltadex rank` also finds the storage rounding of each and fits laws of depth.
Methods take turns in one process; the ratio is the median of the ratios of one turn, in processor
time, which other programs disturb less than the clock.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_limits

import deltadex

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fingerprinting import SHAPES, make_pair, pairs

THETAS = (0.5, 0.9, 0.99)
Ranks = list[tuple[int, ...]]


def counted(sigma: np.ndarray) -> tuple[int, ...]:
    """r_θ of singular values, by their definition."""
    shares = np.cumsum(sigma.astype(np.float64) ** 2)
    return tuple(int(np.searchsorted(shares, theta * shares[-1])) + 1 for theta in THETAS)


def by_numpy(folder: Path) -> Ranks:
    """Values only, in float64: in float32 small singular values are noise."""
    updates = ((tuned.double() - base.double()).numpy() for base, tuned in pairs(folder))
    return [counted(np.linalg.svd(update, compute_uv=False)) for update in updates]


def by_torch(folder: Path) -> Ranks:
    """With both sides' vectors, in float32, as the study's original computes it."""
    updates = (tuned.float() - base.float() for base, tuned in pairs(folder))
    return [counted(torch.linalg.svd(update, full_matrices=False).S.numpy()) for update in updates]


def by_torch_values(folder: Path) -> Ranks:
    updates = (tuned.double() - base.double() for base, tuned in pairs(folder))
    return [counted(torch.linalg.svdvals(update).numpy()) for update in updates]


def by_deltadex(folder: Path, device: str) -> Ranks:
    with deltadex.open(folder / "none.duckdb") as db:
        base = str(folder / "base")
        study = db.studies.rank(str(folder / "tuned"), base=base, thetas=THETAS, device=device)
    by_place: dict[tuple[str, int], list[int]] = {}
    for curve in study.to_json()["curves"]:
        for point in curve["points"]:
            by_place.setdefault((curve["role"], point["layer"]), []).append(round(point["rank"]))
    return [tuple(ranks) for ranks in by_place.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="bert-base")
    parser.add_argument("--layers", type=int, help="Of the model; by default the shape's.")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="Of deltadex alone.")
    args = parser.parse_args()
    methods: dict[str, Callable[[Path], Ranks]] = {
        "deltadex rank": lambda folder: by_deltadex(folder, args.device),
        "numpy svd, values, float64": by_numpy,
        "torch svdvals, float64": by_torch_values,
        "torch svd, float32": by_torch,
    }
    torch.set_num_threads(args.threads)
    if args.layers:
        SHAPES[args.shape] = (args.layers, *SHAPES[args.shape][1:])
    print(f"{platform.machine()}, {args.threads} threads, {args.device}, shape {args.shape}")
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    clock: dict[str, list[float]] = {name: [] for name in methods}
    ranks: dict[str, Ranks] = {}
    with tempfile.TemporaryDirectory() as name, threadpool_limits(args.threads):
        folder = Path(name)
        make_pair(folder / "warm", "tiny", torch.float32)
        for measure in methods.values():
            measure(folder / "warm")  # what is imported on first use is no part of the method
        make_pair(folder, args.shape, torch.float32)
        for _ in range(args.repeats):
            for method, measure in methods.items():
                start, on_processor = time.perf_counter(), time.process_time()
                ranks[method] = measure(folder)
                seconds[method].append(time.process_time() - on_processor)
                clock[method].append(time.perf_counter() - start)
    ours = seconds["deltadex rank"]
    exact = sorted(ranks["numpy svd, values, float64"])
    print("| method | processor s | s | × deltadex | other ranks than float64's |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for method, taken in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(taken, ours, strict=True))
        differ = sum(a != b for a, b in zip(sorted(ranks[method]), exact, strict=True))
        print(
            f"| {method} | {min(taken):.2f} | {min(clock[method]):.2f} | {ratio:.1f} "
            f"| {differ} of {len(exact)} |"
        )


if __name__ == "__main__":
    main()
