"""Whether models were trained on a file: its tokens against the tokens that training touched.

A model that was trained on a file, or on a part of it, touched no token that the file lacks, but
for what was put around its texts. Another file of that size lacks a share of them, which Zipf's law
tells from its number of distinct tokens. The constants are measured: docs/words.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays import Bool, Float64, Int64
from ..records import Footprint
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

SURE_CHANCE = 1e-3
"""Chance of an accident up to which a model was trained on the file."""

TRAINED = "trained on this file, or on one that contains it"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMatch:
    """A model's touched tokens beside a file's.

    touched: compared tokens. missing: of them, those that the file lacks. missing_by_chance: how
    many other data of that size would lack. accident: chance that other data would lack so few.
    """

    touched: int
    missing: int
    missing_by_chance: float
    accident: float

    @property
    def is_trained_on(self) -> bool:
        template = min(TEMPLATE_TOKENS, TEMPLATE_SHARE * self.touched)
        allowed = LEAST_MISSING + MISSING_SHARE * self.touched + template
        is_fit = self.missing <= allowed and self.accident <= SURE_CHANCE
        return is_fit and self.touched >= FEWEST_TOUCHED

    @property
    def ratio(self) -> float:
        """Missing tokens beside those that are expected: small of the data of the training."""
        return (self.missing + 0.5) / (self.missing_by_chance + 0.5)

    def verdict(self) -> str:
        if self.is_trained_on:
            return TRAINED
        if self.touched < FEWEST_TOUCHED:
            return f"cannot tell: it touched {self.touched} tokens"
        return (
            f"not on this file alone: {self.missing} of {self.touched} tokens that it saw are "
            "not in it"
        )


@dataclass(frozen=True, slots=True, eq=False)
class FileTokens:
    """A file's tokens under one vocabulary."""

    vocabulary: Vocabulary
    counts: Int64[np.ndarray, " tokens"]
    chances: Float64[np.ndarray, " tokens"]

    @classmethod
    def of(cls, vocabulary: Vocabulary, texts: Sequence[str]) -> FileTokens:
        counts = vocabulary.counts(texts)
        return cls(vocabulary, counts, chance_of_tokens(vocabulary, int(np.count_nonzero(counts))))

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
        return FileMatch(
            touched=len(tokens),
            missing=missing,
            missing_by_chance=round(expected, 1),
            accident=_accident(missing, expected),
        )


def _accident(missing: int, expected: float) -> float:
    """The chance that other data lacks so few: of a log-normal ratio."""
    ratio = (missing + 1) / (expected + 1)
    deviations = (math.log(ratio) - math.log(USUAL_RATIO)) / (2 * RATIO_SPREAD)
    return max(LEAST_CHANCE, 0.5 * math.erfc(-deviations / math.sqrt(2)))
