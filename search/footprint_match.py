"""Whether models were trained on a file: its tokens against the tokens that training touched.

A model that was trained on a file, or on a part of it, touched no token that the file lacks, but
for what was put around its texts. Another file of that size lacks a share of them, which Zipf's law
tells from its number of distinct tokens. Other data of the file's own source lacks fewer: as many
as are new in further text of that source, which the rare tokens of the file tell (Good, Toulmin
1956; smoothed: Efron, Thisted 1976). The constants are measured: docs/words.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays import Bool, Float64, Int64
from ..records import Footprint
from ..results import agree, count
from .vocabulary import Vocabulary
from .words import chance_of_tokens

LEAST_MISSING, MISSING_SHARE = 1, 0.005
"""Tokens that may be missing, and their share of the touched: cut texts, another spelling, a
storage that rounds."""

TEMPLATE_TOKENS, TEMPLATE_SHARE = 30, 0.02
"""Further ones, at most, and their share: a prompt or a template around the texts."""

FEWEST_TOUCHED = 50
"""Touched tokens from which a footprint is compared with a file."""

USUAL_RATIO, RATIO_SPREAD = 0.8, 0.35
"""Missing tokens beside those that are expected, of 3,900 pairs of a model and other data: median,
and standard deviation of the logarithm; twice that is taken, for data that is alike."""

LEAST_CHANCE = 1e-9

Rarity = tuple[Int64[np.ndarray, " values"], Int64[np.ndarray, " values"]]

SURE_CHANCE, SURE_CHANCE_OF_KIN = 1e-3, 0.05
"""Chances of an accident up to which a model was trained on the file: of other data, and of other
data of the file's own source."""

TRAINED = "trained on this file, or on one that contains it"
UNTOLD = "cannot tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMatch:
    """A model's touched tokens beside a file's.

    touched: compared tokens. missing: of them, those that the file lacks. missing_by_chance: how
    many other data of that size would lack. accident_of_other, accident_of_kin: chances that other
    data would lack so few, of another source and of the file's own. is_tied: only tokens that are
    sure were compared, which are frequent ones that more files have.
    """

    touched: int
    missing: int
    missing_by_chance: float
    accident_of_other: float
    accident_of_kin: float
    is_tied: bool = False

    @property
    def accident(self) -> float:
        """The larger of both."""
        return max(self.accident_of_other, self.accident_of_kin)

    @property
    def is_trained_on(self) -> bool:
        return (
            self.lacks_few
            and self.touched >= FEWEST_TOUCHED
            and self.accident_of_other <= SURE_CHANCE
            and self.accident_of_kin <= SURE_CHANCE_OF_KIN
        )

    @property
    def lacks_few(self) -> bool:
        """Whether no more tokens are missing than cut texts and a template explain."""
        if self.is_tied:
            return self.missing <= LEAST_MISSING
        template = min(TEMPLATE_TOKENS, TEMPLATE_SHARE * self.touched)
        return self.missing <= LEAST_MISSING + MISSING_SHARE * self.touched + template

    @property
    def ratio(self) -> float:
        """Missing tokens beside those that are expected: small of the data of the training."""
        return (self.missing + 0.5) / (self.missing_by_chance + 0.5)

    def verdict(self) -> str:
        if self.is_trained_on:
            return TRAINED
        if self.touched < FEWEST_TOUCHED:
            return f"{UNTOLD}: too few tokens that it touched ({self.touched})"
        lacks = f"{self.missing} of {count(self.touched, 'token')} that it saw "
        lacks += f"{agree(self.missing, 'is')} not in it"
        if self.lacks_few:
            return f"{UNTOLD}: {lacks}, as few as of other data like it"
        return f"not on this file alone: {lacks}"


@dataclass(frozen=True, slots=True, eq=False)
class FileTokens:
    """A file's tokens under one vocabulary. `rarity`: numbers of texts, rising, and how many
    tokens occur in so many."""

    vocabulary: Vocabulary
    counts: Int64[np.ndarray, " tokens"]
    chances: Float64[np.ndarray, " tokens"]
    rarity: Rarity

    @classmethod
    def of(cls, vocabulary: Vocabulary, texts: Sequence[str]) -> FileTokens:
        counts = vocabulary.counts(texts)
        chances = chance_of_tokens(vocabulary, int(np.count_nonzero(counts)))
        rarity = np.unique(counts[counts > 0], return_counts=True)
        return cls(vocabulary, counts, chances, rarity)

    @property
    def absent(self) -> Bool[np.ndarray, " tokens"]:
        """Tokens of text that the file lacks."""
        return np.asarray((self.counts == 0) & ~self.vocabulary.special)

    def match(self, footprint: Footprint) -> FileMatch:
        """Special tokens, and those beyond the vocabulary, are not compared."""
        n_tokens = len(self.counts)
        inside = footprint.tokens < n_tokens
        inside[inside] = ~self.vocabulary.special[footprint.tokens[inside]]
        tokens = footprint.tokens[inside]
        lacks: Bool[np.ndarray, " touched"] = self.counts[tokens] == 0
        expected = float((1 - self.chances[tokens]).sum())
        missing = int(lacks.sum())
        new = new_in_more_text(self.rarity, len(tokens))
        return FileMatch(
            touched=len(tokens),
            missing=missing,
            missing_by_chance=round(expected, 1),
            accident_of_other=_accident(missing, expected),
            accident_of_kin=_chance_of_kin(missing, new),
            is_tied=footprint.kind == "tied",
        )


def _accident(missing: int, expected: float) -> float:
    """The chance that other data lacks so few: of a log-normal ratio."""
    ratio = (missing + 1) / (expected + 1)
    deviations = (math.log(ratio) - math.log(USUAL_RATIO)) / (2 * RATIO_SPREAD)
    return max(LEAST_CHANCE, 0.5 * math.erfc(-deviations / math.sqrt(2)))


def new_in_more_text(rarity: Rarity, distinct: int) -> float:
    """How many tokens are not in a file, of so many distinct ones of other text of its source.

    t times as many texts as the file's, t ≤ 1, have Σ (1 − (1 − t)^c) distinct tokens, c being in
    how many texts each of the file's is. New are −Σ (−t)^c, smoothed: the rarest three numbers of
    texts, each by the chance that a binomial number of three, p = 1/(1 + t), is at least as large.
    """
    values, tokens = rarity
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        if (tokens * (1 - (1 - middle) ** values)).sum() < distinct:
            low = middle
        else:
            high = middle
    p, known = 1 / (1 + high), dict(zip(values.tolist(), tokens.tolist(), strict=True))
    smoothed = (1 - (1 - p) ** 3, p**2 * (3 - 2 * p), p**3)
    terms = (-((-high) ** n) * share * known.get(n, 0) for n, share in enumerate(smoothed, start=1))
    return float(max(0.0, sum(terms)))


def _chance_of_kin(missing: int, expected: float) -> float:
    """The chance that data of the file's source lacks so few: of a Poisson number."""
    if missing >= expected:
        return 1.0
    terms = (n * math.log(expected) - expected - math.lgamma(n + 1) for n in range(missing + 1))
    return min(1.0, sum(map(math.exp, terms)))
