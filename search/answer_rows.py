"""What updates answer to, as rows of models that have no footprint."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..arrays import Float32, Int8, Int64
from ..records import Footprint
from .token_rows import tells
from .word_rows import ABSENT, SHRINKAGE, Products, Rows, WordRows


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

    related: ClassVar[tuple[float, float]] = math.inf, math.inf

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

    def products(self, other: AnswerRows) -> Products:
        # sums of whole numbers do not depend on their order
        mine, theirs = (side.more.astype(np.float64) for side in (self, other))
        lengths = (np.sqrt(np.maximum(np.square(side).sum(axis=1), 1)) for side in (mine, theirs))
        return np.asarray(mine @ theirs.T / np.multiply.outer(*lengths))
