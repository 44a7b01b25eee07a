"""Models as rows over words of one sort, that are compared with one another: over the tokens that
they were trained on, or over what the updates of those without a footprint answer to."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Float32, Float64, Int8, Int64, UInt8, UInt32
from ..records import Footprint

Rows = Int64[np.ndarray, " rows"]
Products = Float64[np.ndarray, "models others"]

SHRINKAGE = 2.0
"""Weight of "nothing in common" in the mean of a family, in models."""

ABSENT = -1
"""Code of a model whose words are not known, or cannot be compared with the others'."""


class WordRows(ABC):
    """`codes`: places among the kinds of rows, or `ABSENT`; `related`: deviations above strangers
    between which more says nothing."""

    codes: Int64[np.ndarray, " models"]

    @property
    @abstractmethod
    def related(self) -> tuple[float, float]: ...

    @property
    def are_here(self) -> Float64[np.ndarray, " models"]:
        """1 of a model whose words are known, else 0."""
        return np.asarray(self.codes != ABSENT, dtype=np.float64)

    @property
    def kinds(self) -> Int64[np.ndarray, " models"]:
        """Places among the kinds; of absent ones the first."""
        return np.asarray(np.maximum(self.codes, 0))

    @classmethod
    @abstractmethod
    def joined(cls, parts: Sequence[Any]) -> WordRows: ...

    def known(self, products: Products) -> KnownRows:
        """The same rows, whose products with one another are looked up."""
        return KnownRows(self.plain, self.codes, products, np.arange(len(self.codes)))

    @property
    def plain(self) -> WordRows:
        """The rows themselves."""
        return self

    @abstractmethod
    def take(self, rows: Rows) -> WordRows: ...

    def products(self, other: WordRows) -> Products:
        """The cosines of every pair, 0 of absent ones: the same numbers whatever else there is."""
        return self.plain.computed(other.plain)

    @abstractmethod
    def computed(self, other: Any) -> Products:
        """`products`, of plain rows."""


@dataclass(frozen=True, eq=False)
class KnownRows(WordRows):
    """Some of the rows of `whole`, the products of them all; `places` are theirs."""

    rows: WordRows
    codes: Int64[np.ndarray, " models"]
    whole: Float64[np.ndarray, "all all"]
    places: Int64[np.ndarray, " models"]

    @property
    def related(self) -> tuple[float, float]:
        return self.rows.related

    @property
    def plain(self) -> WordRows:
        return self.rows

    @classmethod
    def joined(cls, parts: Sequence[WordRows]) -> WordRows:
        """Plain rows of parts that are plain or known."""
        plain = [part.plain for part in parts]
        return type(plain[0]).joined(plain)

    def take(self, rows: Rows) -> KnownRows:
        return KnownRows(self.rows.take(rows), self.codes[rows], self.whole, self.places[rows])

    def products(self, other: WordRows) -> Products:
        if isinstance(other, KnownRows) and other.whole is self.whole:
            return np.asarray(self.whole[np.ix_(self.places, other.places)])
        return super().products(other)

    def computed(self, other: Any) -> Products:
        return self.rows.computed(other)


KINDS = ("exact", "tied")
"""Of footprints that name tokens, by code."""

FEWEST_TOUCHED = 20
"""Tokens of a footprint that is compared with others."""

Reading = tuple[str | None, float]
"""What two footprints must share to be compared: the tokenizer, and the share of it that was
read."""


def usual_reading(footprints: Sequence[Footprint | None]) -> Reading | None:
    """That of most of some models that name tokens; None where none does."""
    found = Counter(_reading(one) for one in footprints if one is not None and tells(one))
    return min(found, key=lambda one: (-found[one], one[0] or "", one[1]), default=None)


def _reading(footprint: Footprint) -> Reading:
    return footprint.tokenizer, footprint.share


def tells(footprint: Footprint) -> bool:
    """Whether a footprint names enough tokens to be compared."""
    return footprint.kind in KINDS and len(footprint.tokens) >= FEWEST_TOUCHED


@dataclass(frozen=True, eq=False)
class TokenRows(WordRows):
    """The touched tokens of some models, each with the share of the model's tokens that moved at
    most as far: strengths depend on the rate and the number of steps, their order does not.
    `codes`: places in `KINDS`, or `ABSENT`."""

    related = 1.0, 4.0
    """Deviations above strangers between which more says nothing: texts of one corpus share as many
    words, whatever they teach."""

    tokens: tuple[UInt32[np.ndarray, " _"], ...]
    ranks: tuple[Float32[np.ndarray, " _"], ...]
    codes: Int64[np.ndarray, " models"]

    @classmethod
    def of(cls, footprints: Sequence[Footprint | None], reading: Reading | None) -> TokenRows:
        """Those of a reading; of all where it is None, whatever their tokenizers."""
        codes, tokens, ranks = [], [], []
        for one in footprints:
            is_here = one is not None and tells(one) and reading in (None, _reading(one))
            codes.append(KINDS.index(one.kind) if one is not None and is_here else ABSENT)
            tokens.append(one.tokens if one is not None and is_here else _NO_TOKENS)
            ranks.append(_ranks(one.strengths) if one is not None and is_here else _NO_RANKS)
        return cls(tuple(tokens), tuple(ranks), np.array(codes, dtype=np.int64))

    @classmethod
    def joined(cls, parts: Sequence[TokenRows]) -> TokenRows:
        tokens = tuple(some for part in parts for some in part.tokens)
        ranks = tuple(some for part in parts for some in part.ranks)
        return cls(tokens, ranks, np.concatenate([part.codes for part in parts]))

    def take(self, rows: Rows) -> TokenRows:
        listed = rows.tolist()
        tokens, ranks = ([some[row] for row in listed] for some in (self.tokens, self.ranks))
        return TokenRows(tuple(tokens), tuple(ranks), self.codes[rows])

    def computed(self, other: TokenRows) -> Products:
        last = [int(some[-1]) for some in (*self.tokens, *other.tokens) if len(some)]
        width = max(last, default=0) + 1
        return self.over(width).products(other.over(width))

    def over(self, width: int, columns: Sequence[Int64[np.ndarray, " _"]] = ()) -> SparseRows:
        """Rows of unit length, over the tokens, or over a column for each, −1 for none."""
        places, values = [], []
        for number, (tokens, ranks) in enumerate(zip(self.tokens, self.ranks, strict=True)):
            place = tokens.astype(np.int64)
            if columns:
                inside = place < len(columns[number])
                place = np.where(inside, columns[number][place * inside], -1)
            kept = ranks[place >= 0].astype(np.float64)
            places.append(place[place >= 0])
            values.append(kept / max(float(np.sqrt(np.vecdot(kept, kept))), np.finfo(float).tiny))
        return SparseRows(tuple(places), tuple(values), width)


@dataclass(frozen=True, slots=True, eq=False)
class SparseRows:
    """Some rows: the places of each one's numbers, and the numbers. scipy has the same; its import
    takes longer than a question."""

    places: tuple[Int64[np.ndarray, " _"], ...]
    values: tuple[Float64[np.ndarray, " _"], ...]
    width: int

    def products(self, other: SparseRows) -> Products:
        """Inner products, of every row with every other."""
        products = np.zeros((len(self.places), len(other.places)))
        sizes = np.array([len(some) for some in other.places], dtype=np.int64)
        here = np.flatnonzero(sizes)
        if not len(here):
            return products
        places, values = np.concatenate(other.places), np.concatenate(other.values)
        starts, taken = np.cumsum(sizes[here]) - sizes[here], np.empty(len(places))
        spread = np.zeros(self.width)
        for row, (own, numbers) in enumerate(zip(self.places, self.values, strict=True)):
            spread[own] = numbers
            np.take(spread, places, out=taken, mode="clip")
            taken *= values
            products[row, here] = np.add.reduceat(taken, starts)
            spread[own] = 0.0
        return products

    def dense(self) -> Float64[np.ndarray, "rows width"]:
        """Zeros, with the numbers in their places."""
        rows = np.zeros((len(self.places), self.width))
        for row, places, values in zip(rows, self.places, self.values, strict=True):
            row[places] = values
        return rows


_NO_TOKENS, _NO_RANKS = np.zeros(0, np.uint32), np.zeros(0, np.float32)


def _ranks(strengths: UInt8[np.ndarray, " touched"]) -> Float32[np.ndarray, " touched"]:
    up_to = np.cumsum(np.bincount(strengths, minlength=256))
    return np.asarray(up_to[strengths] / len(strengths), dtype=np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class AnswerReading:
    """The lexicon that stored responses are of, and what is usual of a family."""

    lexicon: str
    usual: Float32[np.ndarray, " words"]


def answer_reading(footprints: Sequence[Footprint | None]) -> AnswerReading | None:
    """That of most of some models without tokens; None where none answers."""
    here = [one for one in footprints if one is not None and _answers(one)]
    found = Counter(str(one.lexicon) for one in here)
    if not found:
        return None
    lexicon = min(found, key=lambda sha256: (-found[sha256], sha256))
    stored = [np.frombuffer(one.responses, np.int8) for one in here if one.lexicon == lexicon]
    usual = np.stack(stored).sum(axis=0, dtype=np.float64) / (len(stored) + SHRINKAGE)
    return AnswerReading(lexicon, usual.astype(np.float32))


def _answers(footprint: Footprint) -> bool:
    return bool(footprint.responses) and not tells(footprint)


@dataclass(frozen=True, eq=False)
class AnswerRows(WordRows):
    """How much more than usual models answer to each word, in steps; `codes`: 0, or `ABSENT` of a
    model whose tokens are known, or that has no such responses; its row is 0."""

    related = math.inf, math.inf

    more: Int8[np.ndarray, "models words"]
    codes: Int64[np.ndarray, " models"]

    @classmethod
    def of(cls, footprints: Sequence[Footprint | None], reading: AnswerReading) -> AnswerRows:
        more = np.zeros((len(footprints), len(reading.usual)), np.int8)
        codes = np.full(len(footprints), ABSENT)
        for place, one in enumerate(footprints):
            if one is not None and _answers(one) and one.lexicon == reading.lexicon:
                stored = np.frombuffer(one.responses, np.int8)
                more[place] = np.clip(np.round(stored - reading.usual), 0, 127)
                codes[place] = 0
        return cls(more, codes)

    @classmethod
    def joined(cls, parts: Sequence[AnswerRows]) -> AnswerRows:
        more = np.concatenate([part.more for part in parts])
        return cls(more, np.concatenate([part.codes for part in parts]))

    def take(self, rows: Rows) -> AnswerRows:
        return AnswerRows(self.more[rows], self.codes[rows])

    def computed(self, other: AnswerRows) -> Products:
        # sums of whole numbers do not depend on their order
        mine, theirs = (side.more.astype(np.float64) for side in (self, other))
        lengths = (np.sqrt(np.maximum(np.square(side).sum(axis=1), 1)) for side in (mine, theirs))
        return np.asarray(mine @ theirs.T / np.multiply.outer(*lengths))
