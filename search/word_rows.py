"""Models as rows over words of one sort, that are compared with one another: over the tokens that
they were trained on, or over what the updates of those without a footprint answer to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from ..arrays import Float32, Float64, Int8, Int64, UInt8, UInt32
from ..records import Footprint

Rows = Int64[np.ndarray, " rows"]
Products = Float64[np.ndarray, "models others"]

SHRINKAGE = 2.0
"""Weight of "nothing in common" in the mean of a family, in models."""

ABSENT = -1
"""Code of a model whose words are not known, or cannot be compared with the others'."""

KINDS = ("exact", "tied")
"""Of footprints that name tokens, by code."""

FEWEST_TOUCHED = 20
"""Tokens of a footprint that is compared with others."""

Touched = tuple[UInt32[np.ndarray, " _"], Float32[np.ndarray, " _"]]


def tells(footprint: Footprint) -> bool:
    """Whether a footprint names enough tokens to be compared."""
    return footprint.kind in KINDS and len(footprint.tokens) >= FEWEST_TOUCHED


def touched_ranks(strengths: UInt8[np.ndarray, " touched"]) -> Float32[np.ndarray, " touched"]:
    """The share of a model's tokens that moved at most as far as each: strengths depend on the rate
    and the number of steps, their order does not."""
    up_to = np.cumsum(np.bincount(strengths, minlength=256))
    return np.asarray(up_to[strengths] / len(strengths), dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens that training touched, with their `touched_ranks`: of footprints of one tokenizer,
    of which the same share was read. Codes are places in `KINDS`."""

    related: ClassVar = (1.0, 4.0)
    """Deviations above strangers between which more says nothing: texts of one corpus share as many
    words, whatever they teach."""

    tokenizer: str | None
    share: float

    @classmethod
    def usual(cls, footprints: Sequence[Footprint | None]) -> Tokens | None:
        """Those of most of some models that name tokens; None where none does."""
        naming = (one for one in footprints if one is not None and tells(one))
        found = Counter(cls(one.tokenizer, one.share) for one in naming)
        order = sorted(found, key=lambda sort: (-found[sort], sort.tokenizer or "", sort.share))
        return next(iter(order), None)

    def code(self, footprint: Footprint) -> int:
        is_here = tells(footprint) and self == Tokens(footprint.tokenizer, footprint.share)
        return KINDS.index(footprint.kind) if is_here else ABSENT

    def row(self, footprint: Footprint) -> Touched:
        return footprint.tokens, touched_ranks(footprint.strengths)

    def products(
        self, rows: Sequence[Touched | None], others: Sequence[Touched | None]
    ) -> Products:
        """scipy has products of sparse rows; its import takes longer than a question."""
        products = np.zeros((len(rows), len(others)))
        here = [place for place, other in enumerate(others) if other is not None]
        if not here:
            return products
        theirs = [_unit(other) for other in others if other is not None]
        places, values = (np.concatenate(parts) for parts in zip(*theirs, strict=True))
        sizes = np.array([len(tokens) for tokens, _ in theirs])
        starts, taken = np.cumsum(sizes) - sizes, np.empty(len(places))
        last = max(int(row[0][-1]) for row in (*rows, *others) if row is not None)
        spread = np.zeros(last + 1)
        for number, row in enumerate(rows):
            if row is not None:
                own, ranks = _unit(row)
                spread[own] = ranks
                np.take(spread, places, out=taken, mode="clip")
                taken *= values
                products[number, here] = np.add.reduceat(taken, starts)
                spread[own] = 0.0
        return products


def _unit(row: Touched) -> tuple[Int64[np.ndarray, " touched"], Float64[np.ndarray, " touched"]]:
    """Its tokens as places, and its numbers at unit length."""
    ranks = row[1].astype(np.float64)
    return row[0].astype(np.int64), ranks / float(np.sqrt(np.vecdot(ranks, ranks)))


@dataclass(frozen=True, slots=True, eq=False)
class AnsweredWords:
    """How much more than the usual one of a `family` models answer to each word of a lexicon, in
    steps: of models whose tokens are not known. The only code is 0."""

    related: ClassVar = (math.inf, math.inf)

    lexicon: str
    family: Float32[np.ndarray, " words"]

    @classmethod
    def usual(cls, footprints: Sequence[Footprint | None]) -> AnsweredWords | None:
        """Those of the lexicon of most of some models; None where none answers."""
        here = [one for one in footprints if one is not None and _answers(one)]
        found = Counter(str(one.lexicon) for one in here)
        if not found:
            return None
        lexicon = min(found, key=lambda sha256: (-found[sha256], sha256))
        stored = [np.frombuffer(one.responses, np.int8) for one in here if one.lexicon == lexicon]
        usual = np.stack(stored).sum(axis=0, dtype=np.float64) / (len(stored) + SHRINKAGE)
        return cls(lexicon, usual.astype(np.float32))

    def code(self, footprint: Footprint) -> int:
        return 0 if _answers(footprint) and footprint.lexicon == self.lexicon else ABSENT

    def row(self, footprint: Footprint) -> Int8[np.ndarray, " words"]:
        stored = np.frombuffer(footprint.responses, np.int8)
        return np.asarray(np.clip(np.round(stored - self.family), 0, 127).astype(np.int8))

    def products(
        self,
        rows: Sequence[Int8[np.ndarray, " words"] | None],
        others: Sequence[Int8[np.ndarray, " words"] | None],
    ) -> Products:
        # sums of whole numbers do not depend on their order
        mine, theirs = (np.zeros((len(side), len(self.family))) for side in (rows, others))
        for matrix, side in ((mine, rows), (theirs, others)):
            for row, numbers in enumerate(side):
                matrix[row] = 0.0 if numbers is None else numbers
        lengths = (np.sqrt(np.maximum(np.square(side).sum(axis=1), 1)) for side in (mine, theirs))
        return np.asarray(mine @ theirs.T / np.multiply.outer(*lengths))


def _answers(footprint: Footprint) -> bool:
    return bool(footprint.responses) and not tells(footprint)


@dataclass(frozen=True, slots=True, eq=False)
class WordRows:
    """A row of each of some models, as its `sort` has it, None of one that is `ABSENT`; `codes`:
    places among the sort's kinds. Rows whose products with one another are known are at some
    `places` of a `table` of these."""

    sort: Tokens | AnsweredWords
    rows: tuple[Any, ...]
    codes: Int64[np.ndarray, " models"]
    table: Float64[np.ndarray, "all all"] | None = None
    places: Int64[np.ndarray, " models"] | None = None

    @classmethod
    def of(cls, sort: Tokens | AnsweredWords, footprints: Sequence[Footprint | None]) -> WordRows:
        codes = [ABSENT if one is None else sort.code(one) for one in footprints]
        both = zip(footprints, codes, strict=True)
        rows = (sort.row(one) if one is not None and code != ABSENT else None for one, code in both)
        return cls(sort, tuple(rows), np.array(codes, dtype=np.int64))

    @classmethod
    def joined(cls, parts: Sequence[WordRows]) -> WordRows:
        rows = tuple(chain.from_iterable(part.rows for part in parts))
        return cls(parts[0].sort, rows, np.concatenate([part.codes for part in parts]))

    @property
    def are_here(self) -> Float64[np.ndarray, " models"]:
        """1 of a model whose words are known, else 0."""
        return np.asarray(self.codes != ABSENT, dtype=np.float64)

    @property
    def kinds(self) -> Int64[np.ndarray, " models"]:
        """The codes; of absent ones the first."""
        return np.asarray(np.maximum(self.codes, 0))

    def known(self) -> WordRows:
        """The same, whose products with one another are looked up from now on."""
        if self.table is not None:
            return self
        return replace(self, table=self.products(self), places=np.arange(len(self.rows)))

    def take(self, rows: Rows) -> WordRows:
        some = tuple(self.rows[row] for row in rows.tolist())
        places = None if self.places is None else self.places[rows]
        return WordRows(self.sort, some, self.codes[rows], self.table, places)

    def products(self, other: WordRows) -> Products:
        """The cosines of every pair, 0 of absent ones: the same numbers whatever else there is."""
        if self.table is not None and other.table is self.table:
            return np.asarray(self.table[self.places][:, other.places])
        return self.sort.products(self.rows, other.rows)
