"""The layer study: a classifier of layers, its accuracy when something is taken from the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays import Float32, Float64, Int64
from ...results import JsonRecord
from .layer_classifier import (
    Contributions,
    LayerClassifier,
    Score,
    contributions,
    fit_classifier,
    score_classifier,
    score_predictions,
)
from .layer_rows import (
    COLUMNS,
    MOST_TOKENS,
    TEST_SHARE,
    LayerNorms,
    LayerPca,
    LayerRows,
    RowSplit,
    Tally,
    collect_rows,
    layer_norms,
    layer_pca,
    row_norms,
    split_by_text,
    tallied,
    unit_rows,
)

if TYPE_CHECKING:
    from ..network.hidden_states import TokenStates

Change = Callable[[LayerRows], LayerRows]

RANDOM_DRAWS = 5
"""Sets of random dimensions; the accuracy is pooled over them."""


@dataclass(frozen=True, slots=True)
class Control(JsonRecord):
    """One accuracy of the study; its document has the fields of its score beside its own.

    Attributes:
        name: Stable, for machines.
        title: For people, short enough for a plot.
        retrained: Whether a classifier was trained for it; else the study's own is applied.
    """

    name: str
    title: str
    score: Score = field(repr=False)
    retrained: bool

    def to_json(self) -> dict[str, Any]:
        return JsonRecord.to_json(self) | self.score.to_json()


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


def layers_study(
    states: Iterable[TokenStates],
    *,
    other: Iterable[TokenStates] | None = None,
    untrained: Iterable[TokenStates] | None = None,
    include_embedding: bool = True,
    max_tokens: int = MOST_TOKENS,
    n_texts: int | None = None,
    seed: int = 0,
) -> LayersReport:
    """What tells the layers of a network apart. Peak: about ten times the sampled rows.

    Args:
        other: The same network on a second set of texts, for transfer.
        untrained: A network of the same shape with random weights, on the first texts.
        include_embedding: Whether layer 0 is a layer of the study.
        max_tokens: Sampled tokens of each of the three; norms are of all tokens.
        n_texts: How many texts the states are of; studies of equally many hold back the same.

    Raises:
        StudyError: too few texts or tokens, one layer only, or values that are not finite.
    """
    collect = partial(
        collect_rows, max_tokens=max_tokens, include_embedding=include_embedding, seed=seed
    )
    tally: Tally = []
    rows = collect(tallied(states, tally, first_layer=0 if include_embedding else 1))
    split = split_by_text(rows, seed=seed, among=n_texts)
    classifier = fit_classifier(split.train)
    own_score = score_classifier(classifier, split.test)
    controls = [
        Control("classifier", "layer classifier", own_score, retrained=False),
        *simple_controls(split, classifier, seed=seed),
        *mask_controls(split, classifier, seed=seed),
    ]
    if other is not None:
        moved = split_by_text(collect(other), seed=seed)
        controls += transfer_controls(split, moved, classifier)
    if untrained is not None:
        score = score_split(split_by_text(collect(untrained), seed=seed, among=n_texts))
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
        norms=layer_norms(tally, rows.layers, rows.n_seen),
        pca=layer_pca(rows),
        pca_unit_norm=layer_pca(rows, unit_norm=True),
        classifier=classifier,
        contributions=contributions(classifier),
        controls=tuple(controls),
    )


def simple_controls(
    split: RowSplit, classifier: LayerClassifier, *, seed: int = 0
) -> Iterator[Control]:
    """The controls without options: norms, random vectors, means, centroids."""
    random = norm_matched_random(split, seed=seed)
    centred = score_retrained(split, mean_removal(split.train))
    for name, title, score in (
        ("unit-norm", "unit norm", score_retrained(split, unit_norm)),
        ("norm-only", "norm only", score_retrained(split, norm_only)),
        ("mean-removed", "own layer's mean removed", centred),
        ("nearest-centroid", "nearest centroid", score_nearest_centroid(split, classifier)),
        ("random-retrained", "random directions, retrained", score_split(random)),
    ):
        yield Control(name, title, score, retrained=True)
    score = score_classifier(classifier, random.test)
    yield Control("random-applied", "random directions, norms kept", score, retrained=False)


def score_split(split: RowSplit) -> Score:
    return score_classifier(fit_classifier(split.train), split.test)


def score_retrained(split: RowSplit, change: Change) -> Score:
    return score_split(RowSplit(change(split.train), change(split.test)))


def unit_norm(rows: LayerRows) -> LayerRows:
    return rows.with_vectors(unit_rows(rows.vectors))


def norm_only(rows: LayerRows) -> LayerRows:
    """One feature, ln ‖x‖; a zero row counts as the smallest float32."""
    norms = np.maximum(row_norms(rows.vectors), float(np.finfo(np.float32).tiny))
    return rows.with_vectors(np.log(norms)[:, None].astype(np.float32))


def mean_removal(train: LayerRows) -> Change:
    """A change that takes its own layer's training mean from each row.

    It is a diagnostic, as it uses the label that is to be predicted. A classifier trained on
    these rows is at chance whatever they are: at zero weights the gradient of the logistic loss
    depends on the layers' means only, which are equal now. It shows what a linear classifier
    reads (a constant vector for each layer), and says nothing about the network.
    """
    means, layers = train.layer_means(), train.layers

    def change(rows: LayerRows) -> LayerRows:
        own = means[np.searchsorted(layers, rows.layer)]
        return rows.with_vectors((rows.vectors - own).astype(np.float32))

    return change


def norm_matched_random(split: RowSplit, *, seed: int = 0) -> RowSplit:
    """Directions drawn evenly from the sphere, with norms drawn from the same layer's rows.

    Training rows get norms of training rows, test rows get norms of test rows.
    """
    rng = np.random.default_rng(seed)
    return RowSplit(_random_rows(split.train, rng), _random_rows(split.test, rng))


def _random_rows(rows: LayerRows, rng: np.random.Generator) -> LayerRows:
    norms = row_norms(rows.vectors)
    vectors = rng.standard_normal(rows.vectors.shape, dtype=np.float32)
    drawn = np.empty_like(norms)
    for layer in rows.layers:
        own = rows.layer == layer
        drawn[own] = rng.choice(norms[own], size=int(own.sum()))
    scale = (drawn / row_norms(vectors)).astype(np.float32)
    return rows.with_vectors(vectors * scale[:, None])


def score_nearest_centroid(split: RowSplit, classifier: LayerClassifier) -> Score:
    """The score of choosing the layer with the nearest training mean, in standardised units."""
    centroids = classifier.standardise(split.train.layer_means().astype(np.float32))
    test = classifier.standardise(split.test.vectors)
    distances = (centroids**2).sum(axis=1) - 2 * test @ centroids.T  # less ‖x‖², equal for all
    nearest: Int64[np.ndarray, " rows"] = np.array(classifier.layers)[distances.argmin(axis=1)]
    return score_predictions(
        nearest, split.test, layers=classifier.layers, n_train=classifier.n_train
    )


def mask_sizes(dim: int) -> tuple[int, ...]:
    """The numbers of dimensions that are masked: 4, 32 and half of them."""
    return tuple(sorted({k for k in (4, 32, dim // 2) if 1 <= k < dim}))


def mask_controls(
    split: RowSplit, classifier: LayerClassifier, *, seed: int = 0
) -> Iterator[Control]:
    """For each of `mask_sizes`: the top dimensions set to their mean and to 0, the same for random
    dimensions, and a classifier trained without the top dimensions.

    The classifier reads the training mean as 0. It does not read a raw 0 so, which moves every
    row in the same direction.
    """
    ranked = contributions(classifier).ranked()
    fills = {"mean": classifier.mean, "zero": np.zeros_like(classifier.mean)}
    rng = np.random.default_rng(seed)
    for k in mask_sizes(len(ranked)):
        top = ranked[:k]
        drawn = [rng.permutation(len(ranked))[:k] for _ in range(RANDOM_DRAWS)]
        for which, sets in (("top", [top]), ("random", drawn)):
            for fill, values in fills.items():
                vectors = (masked(split.test.vectors, dims, values) for dims in sets)
                predicted = np.concatenate([classifier.predict(filled) for filled in vectors])
                score = classifier.score_of(predicted, split.test)
                name, title = f"mask-{which}-{k}-{fill}", f"{which} {k} dims set to {fill}"
                yield Control(name, title, score, retrained=False)
        score = score_retrained(split, partial(without, dims=top))
        yield Control(f"without-top-{k}", f"without top {k} dims", score, retrained=True)


def masked(
    vectors: Float32[np.ndarray, "rows dim"],
    dims: Int64[np.ndarray, " k"],
    values: Float64[np.ndarray, " dim"],
) -> Float32[np.ndarray, "rows dim"]:
    """The vectors with some dimensions set to the given values, the same for all rows."""
    filled = vectors.copy()
    filled[:, dims] = values[dims]
    return filled


def without(rows: LayerRows, dims: Int64[np.ndarray, " k"]) -> LayerRows:
    return rows.with_vectors(np.delete(rows.vectors, dims, axis=1))


def transfer_controls(
    here: RowSplit, other: RowSplit, classifier: LayerClassifier
) -> Iterator[Control]:
    """Transfer both ways, within the other texts, and from both, always on held-back texts.

    Every classifier standardises by its own training rows. To standardise by the new texts would
    measure something else.
    """
    theirs = fit_classifier(other.train)
    both = fit_classifier(joined(here.train, other.train))
    for name, title, trained, test in (
        ("transfer-to-other", "these texts → other", classifier, other.test),
        ("transfer-from-other", "other texts → these", theirs, here.test),
        ("other-in-domain", "other texts → other", theirs, other.test),
        ("mixed-here", "both texts → these", both, here.test),
        ("mixed-other", "both texts → other", both, other.test),
    ):
        score = score_classifier(trained, test)
        yield Control(name, title, score, retrained=trained is not classifier)


def joined(here: LayerRows, other: LayerRows) -> LayerRows:
    """All rows of both; texts of the other are numbered after these."""
    other = replace(other, text=other.text + int(here.text.max()) + 1)
    pairs = {name: (getattr(here, name), getattr(other, name)) for name in COLUMNS}
    columns = {name: np.concatenate(pair) for name, pair in pairs.items()}
    return LayerRows(**columns, n_seen=here.n_seen + other.n_seen)
