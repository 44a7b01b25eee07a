"""The rows of a layer study: a vector for each token and layer, of a bounded sample of tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ...arrays import Bool, Float32, Float64, Int64
from ...errors import StudyError
from ...results import count
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
