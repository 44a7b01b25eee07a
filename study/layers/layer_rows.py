"""The rows of a layer study: a vector for each token and layer, of a bounded sample of tokens."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays import Bool, Float32, Float64, Int64
from ...errors import StudyError

if TYPE_CHECKING:
    from ..network import TokenStates


WORD_CATEGORIES = ("L", "M", "N")
"""Unicode's letters, the marks that some scripts write vowels with, and numbers."""

PART_OF_A_CHARACTER = "\N{REPLACEMENT CHARACTER}"
"""What a tokenizer of bytes decodes to, where a token is a part of a character."""


def is_punctuation(text: str) -> bool:
    """Whether the text of a token has no letter, digit or mark; a part of a character has one."""
    return not any(
        unicodedata.category(character).startswith(WORD_CATEGORIES)
        or character == PART_OF_A_CHARACTER
        for character in text
    )


def tokens_where(batch: TokenStates, kept: Bool[np.ndarray, " tokens"]) -> TokenStates:
    columns = {name: getattr(batch, name)[kept] for name in ("text", "position", "token")}
    return replace(batch, hidden=batch.hidden[:, kept], **columns)


class PunctuationTokens:
    """Tells the punctuation of a tokenizer by token id; each id is decoded once."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.known: dict[int, bool] = {}
        self.n_seen = 0
        """Punctuation tokens that `removed` met."""

    def among(self, tokens: Int64[np.ndarray, " tokens"]) -> Bool[np.ndarray, " tokens"]:
        ids, where = np.unique(tokens, return_inverse=True)
        for token in ids.tolist():
            if token not in self.known:
                self.known[token] = is_punctuation(self.tokenizer.decode([token]))
        marks: Bool[np.ndarray, " tokens"] = np.array(
            [self.known[token] for token in ids.tolist()], dtype=bool
        )[where]
        return marks

    def removed(self, states: Iterable[TokenStates]) -> Iterator[TokenStates]:
        """The states without those of punctuation; `n_seen` counts what is left out."""
        for batch in states:
            words = ~self.among(batch.token)
            self.n_seen += int((~words).sum())
            if words.any():
                yield tokens_where(batch, words)


MOST_TOKENS = 1_000
"""Tokens of a study; every layer of a token is a row."""

FEWEST_TEXTS = 5
"""With fewer texts none can be held back for the test."""

FEWEST_TOKENS = 20
"""With fewer tokens accuracies say nothing."""

TEST_SHARE = 0.2

SPLIT_STREAM = 1
"""Of the seed; the sample of tokens takes another one."""

COLUMNS = ("vectors", "layer", "text", "position", "token")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRows:
    """All tokens in the first layer, then all tokens in the next.

    Attributes:
        layer: 0 is the embedding output.
        text: Index of the text that holds the row's token.
        position: Of the token in its text, from 0.
        n_seen: Tokens that the sample was drawn from.
    """

    vectors: Float32[np.ndarray, "rows dim"] = field(compare=False, repr=False)
    layer: Int64[np.ndarray, " rows"] = field(compare=False, repr=False)
    text: Int64[np.ndarray, " rows"] = field(compare=False, repr=False)
    position: Int64[np.ndarray, " rows"] = field(compare=False, repr=False)
    token: Int64[np.ndarray, " rows"] = field(compare=False, repr=False)
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
class Split:
    """Rows to learn from and rows to be scored on; no text is in both."""

    train: LayerRows
    test: LayerRows


def split_by_text(
    rows: LayerRows, *, test_share: float = TEST_SHARE, seed: int = 0, among: int | None = None
) -> Split:
    """Hold back whole texts at random, at least two. The split depends on the texts only.

    Rows of one text resemble each other, and every token has a row in each layer, so that a split
    of rows would put a token's neighbours, and the token at other depths, on both sides.

    Args:
        among: The number of texts that may have rows. The texts to hold back are drawn from all
            of them, so that rows of the same texts, of other layers or lengths, are split alike.
            By default they are drawn from the texts that have rows.
    """
    if not 0 < test_share < 1:
        raise ValueError(f"test_share must lie between 0 and 1, got {test_share}")
    texts = np.unique(rows.text)
    n_texts = int(texts[-1]) + 1 if among is None else among
    keys = np.random.default_rng([seed, SPLIT_STREAM]).random(n_texts)
    for drawn_from in (np.arange(n_texts) if among is not None else texts, texts):
        n_test = min(max(2, round(test_share * len(drawn_from))), len(drawn_from) - 1)
        chosen = drawn_from[np.argsort(keys[drawn_from], kind="stable")[:n_test]]
        if 2 <= len(np.intersect1d(chosen, texts)) < len(texts):
            break
    held_back = np.isin(rows.text, chosen)
    return Split(train=rows.only(~held_back), test=rows.only(held_back))


def collect_rows(
    states: Iterable[TokenStates],
    *,
    max_tokens: int = MOST_TOKENS,
    include_embedding: bool = True,
    seed: int = 0,
) -> LayerRows:
    """All layers of at most `max_tokens` tokens, drawn evenly from all tokens of `states`.

    The sample is the tokens with the smallest of seeded random keys, so that it does not depend
    on the batches. Peak: one batch and twice the sample, 8 · layers · tokens · dim bytes.

    Raises:
        StudyError: too few texts or tokens, one layer only, or values that are not finite.
    """
    sample = RowSample(max_tokens, include_embedding=include_embedding, seed=seed)
    for batch in states:
        sample.add(batch)
    return sample.rows()


class RowSample:
    """The tokens with the smallest keys so far. Arguments as of `collect_rows`."""

    def __init__(
        self, max_tokens: int = MOST_TOKENS, *, include_embedding: bool = True, seed: int = 0
    ) -> None:
        if max_tokens < FEWEST_TOKENS:
            raise ValueError(f"max_tokens must be at least {FEWEST_TOKENS}, got {max_tokens}")
        self.first_layer = 0 if include_embedding else 1
        self.rng = np.random.default_rng(seed)
        self.keys: Float64[np.ndarray, " sample"] = np.full(max_tokens, np.inf)
        self.order: Int64[np.ndarray, " sample"] = np.zeros(max_tokens, dtype=np.int64)
        self.where: Int64[np.ndarray, "3 sample"] = np.zeros((3, max_tokens), dtype=np.int64)
        self.hidden: Float32[np.ndarray, "layers sample dim"] | None = None
        self.n_seen = 0

    def add(self, batch: TokenStates) -> None:
        """Replace the tokens with larger keys by tokens of the batch."""
        hidden = batch.hidden[self.first_layer :]
        where = np.stack([batch.text, batch.position, batch.token])
        n_layers, n_tokens, dim = hidden.shape
        if n_layers < 2:
            raise StudyError(
                f"layers: {n_layers} layer to tell apart; two at least are needed, so keep the "
                "embedding output in the study"
            )
        for layer, states in enumerate(hidden):
            if not np.isfinite(states).all():
                raise StudyError(
                    f"layers: hidden state {layer} of {n_layers} holds NaN or infinity; check the "
                    "model's weights"
                )
        if self.hidden is None:
            self.hidden = np.empty((n_layers, len(self.keys), dim), dtype=np.float32)
        new_keys = self.rng.random((n_tokens,))
        keys = np.concatenate([self.keys, new_keys])
        smallest = np.argpartition(keys, len(self.keys) - 1)[: len(self.keys)]
        chosen = np.sort(smallest[smallest >= len(self.keys)]) - len(self.keys)
        freed = np.setdiff1d(np.arange(len(self.keys)), smallest)
        self.keys[freed] = new_keys[chosen]
        self.order[freed] = self.n_seen + chosen
        self.where[:, freed] = where[:, chosen]
        self.hidden[:, freed] = hidden[:, chosen]
        self.n_seen += n_tokens

    def rows(self) -> LayerRows:
        """The sample in the order in which its tokens came."""
        if self.hidden is None or self.n_seen < FEWEST_TOKENS:
            raise StudyError(
                f"layers: {self.n_seen} tokens, at least {FEWEST_TOKENS} are needed; "
                "give more or longer texts"
            )
        filled = np.flatnonzero(np.isfinite(self.keys))
        slots = filled[np.argsort(self.order[filled])]
        n_layers, _, dim = self.hidden.shape
        text, position, token = (np.tile(column[slots], n_layers) for column in self.where)
        first_layer = self.first_layer
        rows = LayerRows(
            vectors=self.hidden[:, slots].reshape(-1, dim),
            layer=np.repeat(np.arange(first_layer, first_layer + n_layers), len(slots)),
            text=text,
            position=position,
            token=token,
            n_seen=self.n_seen,
        )
        if rows.n_texts < FEWEST_TEXTS:
            raise StudyError(
                f"layers: {rows.n_texts} texts with tokens, at least {FEWEST_TEXTS} are needed to "
                "hold some back for the test; give more texts"
            )
        return rows
