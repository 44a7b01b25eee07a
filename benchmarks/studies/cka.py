"""CKA of every layer beside every layer: `deltadex cka` and kernels of tokens × tokens.

    python benchmarks/studies/cka.py [--tokens 2000 8000] [--layers 7] [--dim 384] [--repeats 3]

Methods take turns in one process on the same random states. Both forms of deltadex also make
standard errors from 20 blocks of texts, the rivals do not. The difference is the largest of
debiased CKA from that of the kernels.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from deltadex.study.cka.cka_report import PairedStates, align

OURS = "deltadex, with standard errors"
Method = Callable[[PairedStates], np.ndarray]


def make_states(layers: int, tokens: int, dim: int) -> PairedStates:
    """States of two networks that drift apart with depth; 20 tokens a text."""
    rng = np.random.default_rng(0)
    common = rng.standard_normal((tokens, dim)).astype(np.float32)
    parts = []
    for _ in range(2):
        noise = rng.standard_normal((layers, tokens, dim)).astype(np.float32)
        parts.append(common + noise * np.linspace(0.1, 2, layers, dtype=np.float32)[:, None, None])
    text = np.arange(tokens) // 20
    return PairedStates(first=parts[0], second=parts[1], text=text, n_seen=tokens)


def centred_kernel(rows: np.ndarray) -> np.ndarray:
    """XXᵀ of centred rows, without its diagonal."""
    rows = rows - rows.mean(axis=0)
    kernel: np.ndarray = rows @ rows.T
    np.fill_diagonal(kernel, 0)
    return kernel


def unbiased_hsic(k: np.ndarray, m: np.ndarray) -> float:
    """Song et al. 2012, eq. 5, times n(n − 3)."""
    n = len(k)
    a, b = k.sum(axis=1, dtype=np.float64), m.sum(axis=1, dtype=np.float64)
    trace = float(np.vdot(k, m))
    return trace + float(a.sum() * b.sum()) / ((n - 1) * (n - 2)) - 2 * float(a @ b) / (n - 2)


def by_kernels(states: PairedStates, *, kept: bool) -> np.ndarray:
    """A pair of layers at a time; `kept` holds the kernels of all layers in memory."""
    first: list[np.ndarray] = [centred_kernel(x) for x in states.first] if kept else []
    second: list[np.ndarray] = [centred_kernel(y) for y in states.second] if kept else []
    matrix = np.empty((len(states.first), len(states.second)))
    for i, x in enumerate(states.first):
        for j, y in enumerate(states.second):
            k, m = (first[i], second[j]) if kept else (centred_kernel(x), centred_kernel(y))
            size = np.sqrt(unbiased_hsic(k, k) * unbiased_hsic(m, m))
            matrix[i, j] = unbiased_hsic(k, m) / size
    return matrix


METHODS: dict[str, Method] = {
    OURS: lambda states: align(states, seed=0).debiased,
    "from features": lambda states: align(states, seed=0, form="features").debiased,
    "from tiles of kernels": lambda states: align(states, seed=0, form="tokens").debiased,
    "kernels, a pair at a time": lambda states: by_kernels(states, kept=False),
    "kernels of all layers in memory": lambda states: by_kernels(states, kept=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[2000, 8000])
    parser.add_argument("--layers", type=int, default=7)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    print("| tokens | method | s | × deltadex | difference |")
    print("| ---: | --- | ---: | ---: | ---: |")
    with threadpool_limits(args.threads):
        for tokens in args.tokens:
            states = make_states(args.layers, tokens, args.dim)
            seconds: dict[str, list[float]] = {name: [] for name in METHODS}
            answers: dict[str, np.ndarray] = {}
            for _ in range(args.repeats):
                for name, method in METHODS.items():
                    start = time.perf_counter()
                    answers[name] = method(states)
                    seconds[name].append(time.perf_counter() - start)
            exact = answers["kernels of all layers in memory"]
            for name, own in seconds.items():
                ratios = [o / ours for o, ours in zip(own, seconds[OURS], strict=True)]
                difference = float(np.abs(answers[name] - exact).max())
                print(
                    f"| {tokens} | {name} | {statistics.median(own):.2f} "
                    f"| {statistics.median(ratios):.1f} | {difference:.0e} |",
                    flush=True,
                )
    print(
        f"\n{args.layers} × {args.layers} layers of {args.dim}, float32, median of {args.repeats} "
        f"turns, {args.threads} threads of {os.cpu_count()} CPUs ({platform.machine()}, load "
        f"{os.getloadavg()[0]:.1f}), numpy {np.__version__}"
    )


if __name__ == "__main__":
    main()
