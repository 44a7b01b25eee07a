"""The layer study of a network: its report, and sweeps over context lengths, texts and models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from ...arrays import Bool, Int64
from ...errors import StudyError
from ...results import JsonRecord
from ..network import Network, TokenStates, token_states, untrained_twin
from ..network.hidden_states import encoded
from ..texts import Text
from .layer_classifier import (
    Contributions,
    LayerClassifier,
    Score,
    Scored,
    contributions,
    difference_error,
    fit_classifier,
    score_classifier,
)
from .layer_controls import (
    Control,
    LayerTree,
    mask_controls,
    mask_sizes,
    punctuation_controls,
    score_split,
    simple_controls,
    transfer_controls,
    tree_control,
)
from .layer_norms import LayerNorms, LayerPca, NormTally, layer_pca
from .layer_rows import (
    MOST_TOKENS,
    SPLIT_STREAM,
    TEST_SHARE,
    PunctuationTokens,
    RowSample,
    Split,
    collect_rows,
    split_by_text,
    tokens_where,
)
from .layers import Layers

SAME_TEXTS = "every row is scored on the same held-back texts"
SAMPLED_TEXTS = f"{SAME_TEXTS}, as far as they have a sampled token"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint(Scored):
    """The classifier's accuracy at one value of what is varied.

    Attributes:
        value: Tokens that a text is cut to, or texts that the classifier learns from.
        n_reaching: Texts with at least so many tokens; None where texts are varied.
        n_texts: Texts with rows, held-back ones too.
        n_tokens: Tokens with rows, those of held-back texts too.
        score: Of a classifier trained for this point.
        difference: Its accuracy less that of the first point; None at the first.
        difference_error: Its standard error, paired by text.
    """

    value: int
    n_reaching: int | None
    n_texts: int
    n_tokens: int
    score: Score = field(repr=False)
    difference: float | None
    difference_error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep(JsonRecord):
    """Accuracies at ascending numbers of tokens of a text, or of texts to learn from.

    Attributes:
        n_examined: Texts that were looked at for their length; None where texts are varied.
        held_back: How the points' held-back texts are related, in words.
        skipped: Values that could not be measured, and why.
    """

    variable: Literal["context", "texts"]
    n_examined: int | None
    held_back: str
    points: tuple[SweepPoint, ...]
    skipped: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPoint(JsonRecord):
    """The layer classifier's accuracy on one model, beside its size; parameters of its head do not
    count, shared ones once."""

    model: str
    n_parameters: int
    n_layers: int
    dim: int
    score: Score = field(repr=False)

    @property
    def above_chance(self) -> float:
        """0 at chance, 1 without an error, whatever the number of layers (Bennett et al. 1954)."""
        return (self.score.accuracy - self.score.chance) / (1.0 - self.score.chance)

    def to_json(self) -> dict[str, Any]:
        return JsonRecord.to_json(self) | {"above_chance": self.above_chance} | self.score.to_json()


def texts_sweep(
    split: Split, sizes: Sequence[int], classifier: LayerClassifier, *, seed: int = 0
) -> Sweep:
    """Accuracies of classifiers that learn from some of the training texts; more texts hold all
    fewer texts.

    A text brings all tokens that it has in the sample, so that rows grow with texts.
    """
    texts = np.unique(split.train.text)
    keys = np.random.default_rng([seed, SPLIT_STREAM + 1]).random(int(texts[-1]) + 1)[texts]
    order = texts[np.argsort(keys, kind="stable")]
    splits: list[tuple[int, int | None, Split]] = []
    skipped = []
    for size in sorted(set(sizes)):
        if size > len(order):
            skipped.append(f"{size} texts: the classifier learns from {len(order)}")
            continue
        part = split.train.only(np.isin(split.train.text, order[:size]))
        splits.append((size, None, Split(part, split.test)))
    return Sweep(
        variable="texts",
        n_examined=None,
        held_back=SAME_TEXTS,
        points=sweep_points(splits, start=classifier),
        skipped=tuple(skipped),
    )


def sweep_points(
    splits: Iterable[tuple[int, int | None, Split]], *, start: LayerClassifier | None = None
) -> tuple[SweepPoint, ...]:
    """Accuracies at (value, texts that reach it, rows); a classifier starts from `start`, or from
    the one before."""
    points: list[SweepPoint] = []
    first: tuple[Score, Bool[np.ndarray, " rows"], Int64[np.ndarray, " rows"]] | None = None
    before = None
    for value, n_reaching, split in splits:
        before = fit_classifier(split.train, start=start or before)
        predicted = before.predict(split.test.vectors)
        score, text = before.score_of(predicted, split.test), split.test.text
        right = predicted == split.test.layer
        difference = error = None
        if first is None:
            first = score, right, text
        else:
            difference = score.accuracy - first[0].accuracy
            error = difference_error(right, text, *first[1:])
        points.append(
            SweepPoint(
                value=value,
                n_reaching=n_reaching,
                n_texts=split.train.n_texts + split.test.n_texts,
                n_tokens=split.train.n_tokens + split.test.n_tokens,
                score=score,
                difference=difference,
                difference_error=error,
            )
        )
    return tuple(points)


FEWEST_REACHING = 20
"""Texts that must reach a length: below, accuracies on a fifth of them say little."""

SAME_STATES = 1e-3
"""Relative difference of states up to which two runs count as equal; float32 rounds below 1e-4."""

CHECKED_TEXTS = 4

Watch = Callable[[Iterable[TokenStates], int], Iterable[TokenStates]]
"""Gets the batches of a pass and the number of its texts; gives the same batches."""


def unwatched(batches: Iterable[TokenStates], n_texts: int) -> Iterable[TokenStates]:
    return batches


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersReport(JsonRecord):
    """The layers of one model on one set of texts.

    Attributes:
        n_texts, n_tokens: In the sample; each token is a row at every layer.
        n_tokens_seen: All tokens; the norms are of these.
        n_train: Training rows of the classifier; the controls count their own.
        n_test: Rows of held-back texts.
        chance: 1 / layers.
        controls: The first is the classifier itself.
        n_punctuation_removed: Tokens without a letter or digit that were left out of the study;
            None where they are part of it.
        models: Accuracies by model: this one first.
    """

    layers: tuple[int, ...]
    dim: int
    n_texts: int
    n_tokens: int
    n_tokens_seen: int
    n_train: int
    n_test: int
    test_share: float
    seed: int
    chance: float
    norms: LayerNorms
    pca: LayerPca
    pca_unit_norm: LayerPca
    classifier: LayerClassifier
    contributions: Contributions
    controls: tuple[Control, ...]
    tree: LayerTree
    texts_sweep: Sweep | None
    n_punctuation_removed: int | None = None
    context_sweep: Sweep | None = None
    models: tuple[ModelPoint, ...] | None = None

    def control(self, name: str) -> Control | None:
        """The control of that name; None if the study had no data for it."""
        return next((control for control in self.controls if control.name == name), None)


def layers_study(
    states: Iterable[TokenStates],
    *,
    other: Iterable[TokenStates] | None = None,
    untrained: Iterable[TokenStates] | None = None,
    include_embedding: bool = True,
    max_tokens: int = MOST_TOKENS,
    masks: Sequence[int] | None = None,
    punctuation: PunctuationTokens | None = None,
    sweep_texts: Sequence[int] = (),
    n_texts: int | None = None,
    seed: int = 0,
) -> LayersReport:
    """What tells the layers of a network apart. Peak: about ten times the sampled rows.

    Args:
        other: The same network on a second set of texts, for transfer.
        untrained: A network of the same shape with random weights, on the first texts.
        include_embedding: Whether layer 0 is a layer of the study.
        max_tokens: Sampled tokens of each of the three; norms are of all tokens.
        masks: Numbers of dimensions that are masked; by default 4, 32 and half of them.
        punctuation: Tells punctuation; its removal is a control, where the sample holds some.
        sweep_texts: Numbers of training texts at which the classifier's accuracy is measured.
        n_texts: How many texts the states are of; studies of equally many hold back the same.

    Raises:
        StudyError: too few texts or tokens, one layer only, or values that are not finite.
    """
    collect = partial(
        collect_rows, max_tokens=max_tokens, include_embedding=include_embedding, seed=seed
    )
    tally = NormTally(first_layer=0 if include_embedding else 1)
    rows = collect(_tallied(states, tally))
    split = split_by_text(rows, seed=seed, among=n_texts)

    def split_like(states: Iterable[TokenStates], name: str, of_texts: int | None = None) -> Split:
        """Rows of other states, which must be of a network of the same shape."""
        others = collect(states)
        if (rows.dim, rows.layers) != (others.dim, others.layers):
            raise ValueError(
                f"{name} has {len(others.layers)} layers of {others.dim} dimensions, "
                f"the study {len(rows.layers)} of {rows.dim}"
            )
        return split_by_text(others, seed=seed, among=of_texts)

    classifier = fit_classifier(split.train)
    sizes = mask_sizes(rows.dim) if masks is None else masks
    own_score = score_classifier(classifier, split.test)
    by_tree, tree = tree_control(split, seed=seed)
    controls = [
        Control("classifier", "layer classifier", own_score, retrained=False),
        by_tree,
        *simple_controls(split, classifier, seed=seed),
        *punctuation_controls(split, classifier, punctuation),
        *mask_controls(split, classifier, sizes, seed=seed),
    ]
    if other is not None:
        controls += transfer_controls(split, split_like(other, "other"), classifier)
    if untrained is not None:
        score = score_split(split_like(untrained, "untrained", n_texts))
        controls.append(Control("untrained", "untrained network", score, retrained=True))
    return LayersReport(
        layers=rows.layers,
        dim=rows.dim,
        n_texts=rows.n_texts,
        n_tokens=rows.n_tokens,
        n_tokens_seen=rows.n_seen,
        n_train=len(split.train.layer),
        n_test=len(split.test.layer),
        test_share=TEST_SHARE,
        seed=seed,
        chance=1.0 / len(rows.layers),
        norms=tally.result(),
        pca=layer_pca(rows),
        pca_unit_norm=layer_pca(rows, unit_norm=True),
        classifier=classifier,
        contributions=contributions(classifier),
        controls=tuple(controls),
        tree=tree,
        texts_sweep=(
            texts_sweep(split, sweep_texts, classifier, seed=seed) if sweep_texts else None
        ),
    )


def _tallied(states: Iterable[TokenStates], tally: NormTally) -> Iterator[TokenStates]:
    """The same batches; each is tallied after `collect_rows` has checked it."""
    for batch in states:
        yield batch
        tally.add(batch.hidden)


@dataclass(frozen=True, slots=True)
class LayersPlan:
    """How networks are measured: equal plans give numbers that can be compared."""

    asked: Layers
    watched: Watch = unwatched

    def states(
        self, network: Network, texts: Sequence[Text], marks: PunctuationTokens | None = None
    ) -> Iterable[TokenStates]:
        """The network's states; `marks` takes punctuation from them where the plan does.

        Texts of similar length come together, so that little of a batch is padding.
        """
        batches = token_states(
            network,
            sorted(texts, key=lambda text: len(text.text)),
            batch_size=self.asked.batch_size,
            max_tokens=self.asked.max_tokens,
        )
        watched = self.watched(batches, len(texts))
        return watched if self.asked.punctuation or marks is None else marks.removed(watched)

    @property
    def sampling(self) -> dict[str, Any]:
        return {
            "max_tokens": self.asked.keep_tokens,
            "include_embedding": self.asked.embedding,
            "seed": self.asked.seed,
        }

    def marks_of(self, network: Network) -> PunctuationTokens | None:
        """What tells a network's punctuation; None without a tokenizer."""
        if network.tokenizer is not None:
            return PunctuationTokens(network.tokenizer)
        if self.asked.punctuation:
            return None
        raise StudyError(
            f"{network.name} has no tokenizer, which tells punctuation from words; "
            "leave out --no-punctuation"
        )


def study_network(
    network: Network,
    texts: Sequence[Text],
    plan: LayersPlan,
    *,
    other: Sequence[Text] | None = None,
    untrained: bool = False,
    sweep_texts: Sequence[int] = (),
) -> LayersReport:
    """What tells the layers of a network apart; options as of `layers_study`.

    Raises:
        StudyError: the network or the texts cannot be studied.
    """
    marks = plan.marks_of(network)
    twin = untrained_twin(network, seed=plan.asked.seed) if untrained else None
    report = layers_study(
        plan.states(network, texts, marks),
        other=plan.states(network, other, plan.marks_of(network)) if other else None,
        untrained=plan.states(twin, texts, plan.marks_of(twin)) if twin else None,
        punctuation=marks if plan.asked.punctuation else None,
        sweep_texts=sweep_texts,
        n_texts=len(texts),
        **plan.sampling,
    )
    if plan.asked.punctuation or marks is None:
        return report
    return replace(report, n_punctuation_removed=marks.n_seen)


def sweep_contexts(
    network: Network, texts: Sequence[Text], contexts: Sequence[int], plan: LayersPlan
) -> Sweep:
    """Accuracies on texts with at least L tokens, cut to L, for each context length L.

    All lengths are measured on the same texts, drawn from those with as many tokens as the longest
    length has. Tokens are what the network reads, special ones too; as everywhere, special tokens
    and first positions are no rows. The same number of tokens is sampled at each length, so that a
    classifier of long texts does not learn from more rows. Where a text's beginning has the same
    states with and without its rest, as in causal networks, one pass serves all lengths.

    Raises:
        StudyError: too few texts are long enough.
    """
    marks = None if plan.asked.punctuation else plan.marks_of(network)
    order = np.random.default_rng(plan.asked.seed).permutation(len(texts))
    long_enough, counts, n_examined, skipped = _reaching(
        network, [texts[n] for n in order], sorted(set(contexts)), plan.asked.most_texts
    )
    samples = {length: RowSample(**plan.sampling) for length in counts}
    longest = max(samples)
    shared = _same_beginnings(network, long_enough[:CHECKED_TEXTS], min(samples), longest)
    for length in (longest,) if shared else samples:
        batches = token_states(
            network, long_enough, batch_size=plan.asked.batch_size, max_tokens=length
        )
        states = plan.watched(batches, len(long_enough))
        for batch in states if marks is None else marks.removed(states):
            for filled in samples if shared else (length,):
                cut = tokens_where(batch, batch.position < filled)
                if len(cut.text):
                    samples[filled].add(cut)

    splits: list[tuple[int, int | None, Split]] = []
    for length, sample in samples.items():
        try:
            rows = sample.rows()
        except StudyError as err:  # of short texts every token may be special
            skipped.append(f"{length} tokens: {err}")
        else:
            split = split_by_text(rows, seed=plan.asked.seed, among=len(long_enough))
            splits.append((length, counts[length], split))
    return Sweep(
        variable="context",
        n_examined=n_examined,
        held_back=SAMPLED_TEXTS,
        points=sweep_points(splits),
        skipped=tuple(skipped),
    )


def _reaching(
    network: Network, texts: Sequence[Text], lengths: Sequence[int], most_texts: int
) -> tuple[list[Text], dict[int, int], int, list[str]]:
    """(texts with as many tokens as the longest length that is measured, how many texts reach each
    length, how many were examined, lengths that too few reach with the reason)."""
    sizes: list[int] = []
    found = 0
    for batch in encoded(network, texts, max_tokens=lengths[-1], keep_special=True):
        sizes.extend([0] * (batch.first - len(sizes)))  # texts without any token
        sizes.extend(batch.mask.sum(dim=1).tolist())
        found = sum(size >= lengths[-1] for size in sizes)
        if found >= most_texts:
            break
    counts = {length: sum(size >= length for size in sizes) for length in lengths}
    measured = {length: n for length, n in counts.items() if n >= FEWEST_REACHING}
    of_how_many = f"of {len(sizes)} texts, at least {FEWEST_REACHING} are needed"
    if not measured:
        raise StudyError(
            f"layers: {counts[lengths[0]]} texts have {lengths[0]} tokens or more, {of_how_many}; "
            "give more or longer texts, or shorter lengths"
        )
    longest = max(measured)
    chosen = [text for text, size in zip(texts, sizes, strict=False) if size >= longest]
    skipped = [
        f"{length} tokens: {n} reach it {of_how_many}"
        for length, n in counts.items()
        if length not in measured
    ]
    return chosen[:most_texts], measured, len(sizes), skipped


def _same_beginnings(network: Network, texts: Sequence[Text], shortest: int, longest: int) -> bool:
    """Whether a few texts' first tokens have the same states with and without the rest."""
    if shortest == longest:
        return True
    pair = [
        list(token_states(network, texts, max_tokens=length, batch_size=len(texts)))
        for length in (shortest, longest)
    ]
    if not all(pair):
        return False
    short, whole = pair[0][0], pair[1][0]
    long = tokens_where(whole, whole.position < shortest)
    if not all(np.array_equal(getattr(short, n), getattr(long, n)) for n in ("token", "position")):
        return False
    apart = np.linalg.norm((short.hidden - long.hidden).astype(np.float64))
    return bool(apart <= SAME_STATES * np.linalg.norm(short.hidden.astype(np.float64)))


def measure_model(network: Network, texts: Sequence[Text], plan: LayersPlan) -> ModelPoint:
    """A network's accuracy, on the held-back texts of a study of the same texts and plan.

    Raises:
        StudyError: the network or the texts cannot be studied.
    """
    rows = collect_rows(plan.states(network, texts, plan.marks_of(network)), **plan.sampling)
    split = split_by_text(rows, seed=plan.asked.seed, among=len(texts))
    return _model_point(network, score_split(split))


def studied_model(network: Network, report: LayersReport) -> ModelPoint:
    return _model_point(network, report.controls[0].score)


def _model_point(network: Network, score: Score) -> ModelPoint:
    return ModelPoint(
        model=network.name,
        n_parameters=sum(part.numel() for part in network.model.parameters()),
        n_layers=network.n_layers,
        dim=network.dim,
        score=score,
    )
