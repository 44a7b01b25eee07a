"""A catalog's footprints beside the vocabularies that they are of: the words that a model was
trained on, and whether it was on a file, by its tokens against the tokens that training touched.

A model that was trained on a file, or on a part of it, touched no token that the file lacks, but
for what was put around its texts. Another file of that size lacks a share of them, which Zipf's law
tells from its number of distinct tokens. Other data of the file's own source lacks fewer: as many
as are new in further text of that source, which the rare tokens of the file tell (Good, Toulmin
1956; smoothed: Efron, Thisted 1976). The constants are measured: docs/words.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from ..arrays import Bool, Float64, Int64
from ..errors import RequestError
from ..records import Footprint
from ..results import agree, count
from ..store import Catalog
from .vocabulary import LETTERS, Vocabulary

NO_TOKENIZER = (
    "{base}: no tokenizer is kept of this family: put tokenizer.json beside the base's weights and "
    "run `deltadex index` again"
)

MOST_MATCHED = 2_000
"""Models of a family whose footprints are compared with a file token by token."""

MOST_BEYOND = (0.01, 0.05)
"""Share of the touched tokens that may lie beyond the tokenizer's, which are padding; of tied ones
it is the share that was taken for touched by mistake."""

MOST_OTHERS = 500
"""Models that say how usual a word is."""


class Vocabularies:
    """The vocabularies of a catalog's tokenizers, each read once."""

    def __init__(self) -> None:
        self._read: dict[str, Vocabulary] = {}

    @classmethod
    def of(cls, catalog: Catalog) -> Vocabularies:
        return catalog.access.derived(cls)

    def get(self, catalog: Catalog, sha256: str, own: bytes = b"") -> Vocabulary:
        """That of a stored tokenizer, or of one that a fresh footprint brings (`own`)."""
        if sha256 not in self._read:
            vocabulary = Vocabulary(catalog.footprints.tokenizer(sha256, own))
            self._read = {**self._read, sha256: vocabulary}
        return self._read[sha256]

    def close(self) -> None:
        self._read = {}


@dataclass(frozen=True, slots=True)
class FamilyFootprints:
    """The footprints of one family, and which tokenizer each is of. `keys`: of the models whose
    footprints name tokens, rising."""

    catalog: Catalog
    base: str
    keys: Sequence[int]
    tokenizer: str | None

    @classmethod
    def read(cls, catalog: Catalog, base: str) -> FamilyFootprints:
        kept = catalog.footprints
        return cls(catalog, base, kept.keys(base), kept.family_tokenizer(base))

    def vocabulary_of(self, footprint: Footprint) -> Vocabulary:
        """That of a footprint's tokens; `RequestError` where none is kept."""
        sha256 = footprint.tokenizer or self.tokenizer
        if sha256 is None:
            raise RequestError(NO_TOKENIZER.format(base=self.base))
        return Vocabularies.of(self.catalog).get(self.catalog, sha256, footprint.own_tokenizer)

    def vocabulary(self, footprint: Footprint) -> Vocabulary:
        """The same; `RequestError`, with both sizes, where touched tokens lie beyond it."""
        vocabulary = self.vocabulary_of(footprint)
        beyond = int((footprint.tokens >= len(vocabulary)).sum())
        if beyond > MOST_BEYOND[footprint.kind == "tied"] * max(1, len(footprint.tokens)):
            raise RequestError(
                f"the tokenizer has {len(vocabulary)} tokens, the embedding {footprint.vocabulary} "
                f"rows, {count(beyond, 'touched row')} beyond it: it is another model's tokenizer"
            )
        return vocabulary

    def words(
        self, footprint: Footprint, vocabulary: Vocabulary, *, model: str, private: bool
    ) -> list[Word]:
        """The words of a footprint, by how usual they are among some of the family's others."""
        some = self.keys[:: 1 + len(self.keys) // MOST_OTHERS]
        others = [
            one.footprint
            for one in self.catalog.footprints.all(self.base, some)
            if one.model != model and one.footprint.tokenizer == footprint.tokenizer
        ]
        return words_of(footprint, vocabulary, others, private=private)

    def match(
        self, texts: Sequence[str], wanted: Collection[int]
    ) -> tuple[dict[str, FileMatch], dict[str, str]]:
        """How a file's tokens match models, by id, and why others cannot be compared: of the models
        with these keys those whose footprints name tokens; of very many, those of which the file
        lacks the smallest share."""
        read: dict[Vocabulary, FileTokens] = {}

        def file_tokens(vocabulary: Vocabulary) -> FileTokens:
            if vocabulary not in read:
                read[vocabulary] = FileTokens.of(vocabulary, texts)
            return read[vocabulary]

        keys = [key for key in self.keys if key in wanted]
        if len(keys) > MOST_MATCHED and self.tokenizer is not None:
            bits = self.catalog.footprint_bits(self.base)
            vocabulary = Vocabularies.of(self.catalog).get(self.catalog, self.tokenizer)
            shares = bits.shares_among(file_tokens(vocabulary).absent)
            nearest = bits.keys[np.argsort(shares, kind="stable")].tolist()
            allowed = set(keys)
            keys = [key for key in nearest if key in allowed][:MOST_MATCHED]
        found, refused = {}, {}
        for one in self.catalog.footprints.all(self.base, keys):
            try:
                tokens = file_tokens(self.vocabulary(one.footprint))
                found[one.model] = tokens.match(one.footprint)
            except RequestError as err:
                refused[one.model] = str(err)
        return found, refused


PRIOR_MODELS = 4.0
"""Models as which Zipf's law counts beside the family's own, in how usual a word is."""

LEAST_RATE = 1e-6

GRAIN = 4
"""Steps of scores, in which words are about as telling."""

FEWEST_TOLD = 20
"""Tokens of a footprint from which the other models' say how usual a word is."""

_SECRET = re.compile(r"[^\W\d_]*\d[\w]*")


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the training data. strength: how far its token moved beside the others of the
    model, 0…1; score: what orders words, which grows with strength and with how unusual it is."""

    text: str
    strength: float
    score: float


def chance_of_tokens(vocabulary: Vocabulary, distinct: int) -> Float64[np.ndarray, " tokens"]:
    """The probability of each token to occur in text that has so many distinct ones, by Zipf's law:
    1 − exp(−λ f), λ such that they add up to `distinct`."""
    frequencies = vocabulary.frequencies
    wanted = min(distinct, 0.98 * np.count_nonzero(frequencies))
    low, high = -10.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        if (1 - np.exp(-np.exp(middle) * frequencies)).sum() < wanted:
            low = middle
        else:
            high = middle
    return np.asarray(1 - np.exp(-np.exp(low) * frequencies))


def words_of(
    footprint: Footprint,
    vocabulary: Vocabulary,
    others: Sequence[Footprint] = (),
    *,
    private: bool = False,
) -> list[Word]:
    """Whole words of the touched tokens, the most telling first; `private`: also names, and what
    has digits."""
    # how probable each token is of so many touched ones: by Zipf's law, and by the other models
    rates = PRIOR_MODELS * chance_of_tokens(vocabulary, len(footprint.tokens))
    told = [one for one in others if len(one.tokens) >= FEWEST_TOLD]
    for one in told:
        rates[one.tokens[one.tokens < len(rates)]] += 1
    rates /= PRIOR_MODELS + len(told)
    inside = footprint.tokens < len(vocabulary)
    tokens, moved = footprint.tokens[inside], footprint.strengths[inside]
    # the share of the touched tokens that moved at most as far
    strengths = np.searchsorted(np.sort(moved), moved, side="right") / max(1, len(moved))
    scores = -np.log(np.maximum(rates[tokens], LEAST_RATE)) * strengths**2
    best: dict[str, Word] = {}
    for token, strength, score in zip(
        tokens.tolist(), strengths.tolist(), scores.tolist(), strict=True
    ):
        piece = vocabulary.pieces[token]
        text = piece.text.casefold()
        if not piece.starts or piece.is_special or not _is_shown(text, private=private):
            continue
        if text not in best or best[text].score < score:
            best[text] = Word(text, strength, score)
    return sorted(best.values(), key=how_telling)


def how_telling(word: Word) -> tuple[int, int, str]:
    """A word's place. Of words that are about as telling the longer says more: their ranks in the
    vocabulary, of which many occurred equally often when it was made, are alphabetical."""
    return -round(GRAIN * word.score), -len(word.text), word.text


def _is_shown(text: str, *, private: bool) -> bool:
    if private:
        return any(c.isalnum() for c in text)
    if len(text) < LETTERS:
        return len(text) > 0 and not text.isascii() and text.isalpha()
    return text.isalpha() and not _SECRET.fullmatch(text) and text not in personal_names()


@cache
def personal_names() -> frozenset[str]:
    """Common given names and surnames, lower-cased, but those that are other words too."""
    text = (files(__package__) / "personal_names.txt").read_text("utf-8")
    return frozenset(text.split())


LEAST_MISSING, MISSING_SHARE = 1, 0.005
"""Tokens that may be missing, and their share of the touched: cut texts, another spelling, a
storage that rounds."""

TEMPLATE_TOKENS, TEMPLATE_SHARE = 30, 0.02
"""Further ones, at most, and their share: a prompt or a template around the texts."""

FEWEST_COMPARED = 50
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
    sure were compared, which are frequent ones that more files have. share: of the vocabulary, of
    how much it is known whether training touched it.
    """

    touched: int
    missing: int
    missing_by_chance: float
    accident_of_other: float
    accident_of_kin: float
    is_tied: bool = False
    share: float = 1.0

    @property
    def accident(self) -> float:
        """The larger of both."""
        return max(self.accident_of_other, self.accident_of_kin)

    @property
    def is_trained_on(self) -> bool:
        return (
            self.lacks_few
            and self.share == 1
            and self.touched >= FEWEST_COMPARED
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
        if self.touched < FEWEST_COMPARED:
            return f"{UNTOLD}: too few tokens that it touched ({self.touched})"
        lacks = f"{self.missing} of {count(self.touched, 'token')} that it saw "
        lacks += f"{agree(self.missing, 'is')} not in it"
        if self.lacks_few and self.share < 1:
            return f"{UNTOLD}: it is known of {self.share:.1%} of the vocabulary alone what it saw"
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
            share=footprint.share,
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
