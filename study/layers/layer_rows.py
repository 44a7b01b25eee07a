"""The rows of a layer study, a vector for each token and layer; their norms and main axes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.linalg import eigh
from scipy.stats import linregress, spearmanr, t

from ...arrays import Bool, Float32, Float64, Int64
from ...errors import StudyError
from ...results import JsonRecord, count
from ..geometry.group_states import Reservoir

if TYPE_CHECKING:
    from ..network.hidden_states import TokenStates


MOST_TOKENS = 1_000
"""Tokens of a study; every layer of a token is a row."""

FEWEST_TEXTS = 5
"""With fewer texts none can be held back for the test."""

FEWEST_TOKENS = 20
"""With fewer tokens accuracies say nothing."""

TEST_SHARE = 0.2

SPLIT_STREAM = 1
"""Of the seed; the sample of tokens takes another one."""

COLUMNS = ("vectors", "layer", "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRows:
    """All tokens in the first layer, then all tokens in the next.

    Attributes:
        layer: 0 is the embedding output.
        text: Index of the text that holds the row's token.
        n_seen: Tokens that the sample was drawn from.
    """

    vectors: Float32[np.ndarray, "rows dim"] = field(compare=False, repr=False)
    layer: Int64[np.ndarray, " rows"] = field(compare=False, repr=False)
    text: Int64[np.ndarray, " rows"] = field(compare=False, repr=False)
    n_seen: int

    def __post_init__(self) -> None:
        for name in COLUMNS:
            getattr(self, name).flags.writeable = False

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that have rows, ascending."""
        return tuple(np.unique(self.layer).tolist())

    @property
    def dim(self) -> int:
        return int(self.vectors.shape[1])

    @property
    def n_texts(self) -> int:
        return len(np.unique(self.text))

    @property
    def n_tokens(self) -> int:
        return len(self.vectors) // max(1, len(self.layers))

    def only(self, keep: Bool[np.ndarray, " rows"]) -> LayerRows:
        return replace(self, **{name: getattr(self, name)[keep] for name in COLUMNS})

    def layer_means(self) -> Float64[np.ndarray, "layers dim"]:
        groups = (self.vectors[self.layer == layer] for layer in self.layers)
        return np.stack([group.mean(axis=0, dtype=np.float64) for group in groups])

    def with_vectors(self, vectors: Float32[np.ndarray, "rows features"]) -> LayerRows:
        return replace(self, vectors=vectors)


@dataclass(frozen=True, slots=True)
class RowSplit:
    """Rows to learn from and rows to be scored on; no text is in both."""

    train: LayerRows
    test: LayerRows


def split_by_text(
    rows: LayerRows, *, test_share: float = TEST_SHARE, seed: int = 0, among: int | None = None
) -> RowSplit:
    """Hold back whole texts at random, at least two. The split depends on the texts only.

    Rows of one text resemble each other, and every token has a row in each layer, so that a split
    of rows would put a token's neighbours, and the token at other depths, on both sides.

    Args:
        among: The number of texts that may have rows. The texts to hold back are drawn from all
            of them, so that rows of the same texts, of other layers or lengths, are split alike.
            By default they are drawn from the texts that have rows.
    """
    texts = np.unique(rows.text)
    n_texts = int(texts[-1]) + 1 if among is None else among
    keys = np.random.default_rng([seed, SPLIT_STREAM]).random(n_texts)
    for drawn_from in (np.arange(n_texts) if among is not None else texts, texts):
        n_test = min(max(2, round(test_share * len(drawn_from))), len(drawn_from) - 1)
        chosen = drawn_from[np.argsort(keys[drawn_from], kind="stable")[:n_test]]
        if 2 <= len(np.intersect1d(chosen, texts)) < len(texts):
            break
    held_back = np.isin(rows.text, chosen)
    return RowSplit(train=rows.only(~held_back), test=rows.only(held_back))


def collect_rows(
    states: Iterable[TokenStates],
    *,
    max_tokens: int = MOST_TOKENS,
    include_embedding: bool = True,
    seed: int = 0,
) -> LayerRows:
    """All layers of at most `max_tokens` tokens, drawn evenly from all tokens of `states`.

    Peak: one batch and twice the sample, 8 · layers · tokens · dim bytes.

    Raises:
        StudyError: too few texts or tokens, one layer only, or values that are not finite.
    """
    first_layer, sample = 0 if include_embedding else 1, None
    for batch in states:
        hidden = batch.hidden[first_layer:]
        if len(hidden) < 2:
            raise StudyError(
                f"layers: {len(hidden)} layer to tell apart; two at least are needed, so keep the "
                "embedding output in the study"
            )
        for layer, rows in enumerate(hidden):
            if not np.isfinite(rows).all():
                raise StudyError(
                    f"layers: hidden state {layer} of {len(hidden)} holds NaN or infinity; check "
                    "the model's weights"
                )
        if sample is None:
            sample = Reservoir(len(hidden), max_tokens, hidden.shape[2], seed)
        sample.update(hidden, batch.text)
    n_seen = 0 if sample is None else sample.seen
    if sample is None or n_seen < FEWEST_TOKENS:
        raise StudyError(
            f"layers: {count(n_seen, 'token')}, at least {FEWEST_TOKENS} are needed; "
            "give more or longer texts"
        )
    n_layers, n_tokens, dim = sample.hidden().shape
    found = LayerRows(
        vectors=sample.hidden().reshape(-1, dim),
        layer=np.repeat(np.arange(first_layer, first_layer + n_layers), n_tokens),
        text=np.tile(sample.texts(), n_layers),
        n_seen=n_seen,
    )
    if found.n_texts < FEWEST_TEXTS:
        raise StudyError(
            f"layers: {count(found.n_texts, 'text')} with tokens, at least {FEWEST_TEXTS} are "
            "needed to hold some back for the test; give more texts"
        )
    return found


EXPONENTIAL_R2 = 0.9
"""R² from which a trend may be called exponential."""

CONFIDENCE = 0.95

SAME = 1e-12
"""Relative differences of mean norms up to this are float64's rounding."""

Verdict = Literal["grow", "shrink", "flat"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth(JsonRecord):
    """Least squares of ln(mean norm) on the layer.

    Attributes:
        rate: e^slope: the factor by which the mean norm changes from layer to layer.
        rate_interval: 95 % interval of the rate, e^(slope ± t·s.e.) (Draper and Smith 1998,
            section 1.4). It takes the layers' deviations from the line as independent.
        intercept: ln of the fitted mean norm at layer 0.
        r2: Share of the variance of ln(mean norm) explained; 0 where it does not vary.
    """

    rate: float
    rate_interval: tuple[float, float]
    intercept: float
    r2: float

    @property
    def verdict(self) -> Verdict:
        """`flat` where the interval holds 1, which is no change."""
        low, high = self.rate_interval
        if low > 1:
            return "grow"
        return "shrink" if high < 1 else "flat"

    @property
    def exponential(self) -> bool:
        """Whether norms change, and the line fits: R² ≥ .9, and an interval without 1."""
        return self.verdict != "flat" and self.r2 >= EXPONENTIAL_R2

    def at(self, layer: int) -> float:
        return float(np.exp(self.intercept + layer * np.log(self.rate)))

    def to_json(self) -> dict[str, Any]:
        more = {"verdict": self.verdict, "exponential": self.exponential}
        return JsonRecord.to_json(self) | more


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNorms(JsonRecord):
    """L2 norms of the vectors of each layer.

    Attributes:
        n_tokens: All tokens, not a sample.
        growth: None with fewer than three layers, or where a mean norm is 0.
    """

    layers: tuple[int, ...]
    smallest: tuple[float, ...] = field(metadata={"key": "min"})
    mean: tuple[float, ...]
    largest: tuple[float, ...] = field(metadata={"key": "max"})
    n_tokens: int
    growth: Growth | None


Tally = list[Float64[np.ndarray, "3 layers"]]
"""Of each batch the smallest norm of each layer, their sum and the largest."""


def tallied(
    states: Iterable[TokenStates], tally: Tally, *, first_layer: int
) -> Iterator[TokenStates]:
    """The same batches, whose norms are added to the tally after they were used and checked.
    Peak: one layer of a batch in float64."""
    for batch in states:
        yield batch
        if batch.hidden.shape[1]:
            norms = np.stack([row_norms(vectors) for vectors in batch.hidden[first_layer:]])
            tally.append(np.stack([norms.min(axis=1), norms.sum(axis=1), norms.max(axis=1)]))


def layer_norms(tally: Tally, layers: tuple[int, ...], n_tokens: int) -> LayerNorms:
    smallest, total, largest = np.stack(tally, axis=1)  # (batches, layers) each
    mean = tuple((total.sum(axis=0) / n_tokens).tolist())
    return LayerNorms(
        layers=layers,
        smallest=tuple(smallest.min(axis=0).tolist()),
        mean=mean,
        largest=tuple(largest.max(axis=0).tolist()),
        n_tokens=n_tokens,
        growth=fit_growth(layers, mean),
    )


def fit_growth(layers: Sequence[int], mean_norms: Sequence[float]) -> Growth | None:
    """The line through (layer, ln mean norm); None for fewer than three layers or a norm of 0."""
    if len(layers) < 3 or min(mean_norms) <= 0:
        return None
    x = np.asarray(layers, dtype=np.float64)
    y = np.log(np.asarray(mean_norms, dtype=np.float64))
    if np.ptp(y) <= SAME:
        return Growth(rate=1.0, rate_interval=(1.0, 1.0), intercept=float(y.mean()), r2=0.0)
    line = linregress(x, y)
    slope, margin = line.slope, t.ppf(0.5 + CONFIDENCE / 2, len(x) - 2) * line.stderr + SAME
    return Growth(
        rate=float(np.exp(slope)),
        rate_interval=(float(np.exp(slope - margin)), float(np.exp(slope + margin))),
        intercept=float(line.intercept),
        r2=float(line.rvalue**2),
    )


def row_norms(vectors: Float32[np.ndarray, "rows dim"]) -> Float64[np.ndarray, " rows"]:
    """L2 norms, in float64."""
    norms: Float64[np.ndarray, " rows"] = np.sqrt(
        np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    )
    return norms


def unit_rows(vectors: Float32[np.ndarray, "rows dim"]) -> Float32[np.ndarray, "rows dim"]:
    """x / ‖x‖; zero rows stay zero."""
    norms = row_norms(vectors)
    norms[norms == 0] = 1.0
    scaled: Float32[np.ndarray, "rows dim"] = (vectors / norms[:, None]).astype(np.float32)
    return scaled


N_AXES = 8

SAME_SIZE = 1e-5
"""Entries that differ by less than this share count as equal: processors round differently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPca(JsonRecord):
    """Rows and layer centroids on the principal axes of all layers.

    Attributes:
        unit_norm: Whether every row was scaled to length 1 first.
        axes: Orthonormal, by falling variance; the largest entry of each axis is positive,
            the first of equally large ones.
        explained: Share of all variance on each axis, 0…1.
        coordinates, centroids: Of the rows, and of the layers.
        steps: Distance of each layer's centroid from that of the layer before.
        depth_correlation: Spearman's ρ of the first coordinate and the layer; None where
            either does not vary.
    """

    unit_norm: bool
    layers: tuple[int, ...]
    axes: Float64[np.ndarray, "k dim"] = field(compare=False, repr=False)
    explained: tuple[float, ...]
    coordinates: Float32[np.ndarray, "rows k"] = field(compare=False, repr=False)
    layer: Int64[np.ndarray, " rows"] = field(compare=False, repr=False)
    centroids: Float64[np.ndarray, "layers k"] = field(compare=False)
    steps: tuple[float, ...]
    depth_correlation: float | None

    @property
    def path_length(self) -> float:
        """Length of the path through the centroids of all layers in turn."""
        return float(sum(self.steps))

    def to_json(self) -> dict[str, Any]:
        document = JsonRecord.to_json(self)
        correlation = document.pop("depth_correlation")
        return document | {"path_length": self.path_length, "depth_correlation": correlation}


def layer_pca(rows: LayerRows, *, unit_norm: bool = False, n_axes: int = N_AXES) -> LayerPca:
    """The first axes of the rows of all layers, exactly: eigenvectors of their covariance.

    Peak beside the rows: these in float64, and a dim × dim matrix.
    """
    if unit_norm:
        rows = rows.with_vectors(unit_rows(rows.vectors))
    n_axes = min(n_axes, rows.dim, len(rows.vectors))
    means = rows.layer_means()
    mean = means.mean(axis=0)  # every layer has a row of each token
    centred = rows.vectors - mean
    gram = centred.T @ centred
    values, vectors = eigh(gram, subset_by_index=[rows.dim - n_axes, rows.dim - 1])
    axes = _signed(vectors[:, ::-1].T)
    explained = np.clip(values[::-1], 0.0, None) / (float(np.trace(gram)) or 1.0)
    coordinates = centred @ axes.T
    centroids = (means - mean) @ axes.T
    first = coordinates[:, 0]
    varies = np.ptp(first) > 0 and np.ptp(rows.layer) > 0
    return LayerPca(
        unit_norm=unit_norm,
        layers=rows.layers,
        axes=axes,
        explained=tuple(explained.tolist()),
        coordinates=coordinates.astype(np.float32),
        layer=rows.layer,
        centroids=centroids,
        steps=tuple(np.linalg.norm(np.diff(means, axis=0), axis=1).tolist()),
        depth_correlation=float(spearmanr(first, rows.layer).statistic) if varies else None,
    )


def _signed(axes: Float64[np.ndarray, "k dim"]) -> Float64[np.ndarray, "k dim"]:
    """The axes with the signs that make the largest entry of each positive."""
    sizes = np.abs(axes)
    largest = (sizes >= sizes.max(axis=1, keepdims=True) * (1 - SAME_SIZE)).argmax(axis=1)
    signs = np.sign(axes[np.arange(len(axes)), largest])
    return np.ascontiguousarray(axes * signs[:, None])
