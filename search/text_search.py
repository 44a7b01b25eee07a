"""Models of all families whose training data is about a text: by what their updates answer to, and
by the tokens that training touched, where an embedding tells them. A text of random words says what
a match by chance is (docs/words.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ..arrays import Bool, Float32, Float64, Int64, UInt8
from ..errors import RequestError
from ..store import Catalog, FamilyView, Filters
from .footprints import Vocabularies
from .responses import FamilyResponses
from .vocabulary import Vocabulary

COMMONEST = 20
"""Words of the language so frequent that a text is not about them, by their rank."""

MOST_QUERY_WORDS = 64
"""Words of a text that are asked: its rarest."""

MOST_WORDS, MOST_DRAWN = 24_000, 4_096
"""Words of a vocabulary that can be asked, and those that make random texts: the most frequent."""

DRAWN_WORDS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
DRAWS = 200
"""Texts of random words that say how well one matches by chance."""

LEAST_ANSWER = 0.5
"""Standard deviations from which a model answers to a word."""

AT_ONCE = 2_000
"""Models whose bits are turned at a time: whole bytes."""

_WORD = re.compile(r"[^\W\d_]+")

Rows = Int64[np.ndarray, " models"]
Places = Int64[np.ndarray, " asked"]
Scores = Float64[np.ndarray, " models"]


def words_in(text: str) -> list[str]:
    """The words of a text, lower-cased."""
    return [word.casefold() for word in _WORD.findall(text)]


@dataclass(frozen=True, slots=True, eq=False)
class TouchedWords:
    """Which words training touched. `bits`: of each word, a bit for each model, whose rows of the
    view are `rows`; `usual`: the share of models of each kind of footprint that touched it;
    `kinds`: of each model, a row of it."""

    rows: Rows
    bits: UInt8[np.ndarray, "words bytes"]
    usual: Float32[np.ndarray, "kinds words"]
    kinds: Int64[np.ndarray, " models"]

    @classmethod
    def read(
        cls, catalog: Catalog, view: FamilyView, words: Sequence[str], known: Mapping[str, int]
    ) -> TouchedWords | None:
        """Of a family's models whose tokens are its tokenizer's, in which some words are `known`
        tokens; None where there are none."""
        kinds_by_key, here = catalog.footprints.kinds_by_key(view.base), set(view.keys.tolist())
        naming = {key: kind for key, kind in kinds_by_key.items() if key in here}
        if not naming:
            return None
        every = catalog.footprint_bits(view.base)
        some = np.flatnonzero(np.isin(every.keys, list(naming)))
        own = [naming[key] for key in every.keys[some].tolist()]
        kinds = np.unique(own, return_inverse=True)[1]
        tokens = np.array([known.get(word, -1) for word in words], dtype=np.int64)
        bits = np.concatenate(
            [
                _turned(every.rows["bits"][some[first : first + AT_ONCE]], tokens)
                for first in range(0, len(some), AT_ONCE)
            ],
            axis=1,
        )
        usual = np.stack([_usual(bits, kinds == kind) for kind in range(kinds.max() + 1)])
        return cls(np.searchsorted(view.keys, every.keys[some]), bits, usual, kinds)

    def more_than_usual(self, places: Places) -> Scores:
        """The share of some words that each model touched, less what is usual of its kind."""
        usual = self.usual[:, places].mean(axis=1)
        bits = np.unpackbits(self.bits[places], axis=1, count=len(self.rows))
        return np.asarray(bits.mean(axis=0) - usual[self.kinds])

    def rare_words(self, model: int, places: Places) -> list[int]:
        """Of the words at some places those that a model touched, by its place among `rows`, and
        fewer than half of the models of its kind."""
        has = self.bits[places, model // 8] & (128 >> model % 8) > 0
        is_rare = self.usual[self.kinds[model], places] < 0.5
        return [int(place) for place in places[has & is_rare]]


def _turned(
    rows: UInt8[np.ndarray, "models bytes"], tokens: Int64[np.ndarray, " words"]
) -> UInt8[np.ndarray, "words parts"]:
    """A row of bits for each token, of zeros for none."""
    bits = np.unpackbits(rows, axis=1)
    inside = (tokens >= 0) & (tokens < bits.shape[1])
    chosen = bits[:, np.where(inside, tokens, 0)] * inside.astype(np.uint8)
    return np.ascontiguousarray(np.packbits(chosen, axis=0).T)


def _usual(
    bits: UInt8[np.ndarray, "words bytes"], chosen: Bool[np.ndarray, " models"]
) -> Float32[np.ndarray, " words"]:
    mask = np.packbits(chosen)
    counts = np.array([np.bitwise_count(row & mask).sum() for row in bits], dtype=np.float32)
    return np.asarray((counts + 1) / (np.float32(chosen.sum()) + 2))


@dataclass(frozen=True, eq=False)
class TextIndex:
    """A family's models beside the words that a text may have, the most frequent first.
    `answering`: rows of the view whose responses are known."""

    words: Sequence[str]
    rows: Rows
    responses: FamilyResponses | None
    answering: Int64[np.ndarray, " answering"]
    touched: TouchedWords | None
    _draws: dict[int, Float64[np.ndarray, " draws"]] = field(default_factory=dict)

    @classmethod
    def of(cls, catalog: Catalog, view: FamilyView) -> TextIndex:
        return view.derived(cls, lambda view: cls._read(catalog, view))

    @classmethod
    def _read(cls, catalog: Catalog, view: FamilyView) -> TextIndex:
        responses = FamilyResponses.of(catalog, view)
        vocabulary = _vocabulary(catalog, view)
        if responses is not None:
            words: Sequence[str] = (*responses.lexicon.words, *responses.lexicon.others)
        else:
            words = list(vocabulary.frequent_words())[:MOST_WORDS] if vocabulary else ()
        touched = TouchedWords.read(catalog, view, words, vocabulary.words) if vocabulary else None
        answering = np.zeros(0, np.int64)
        if responses is not None:
            answering = np.searchsorted(view.keys, responses.keys)
        named = answering[:0] if touched is None else touched.rows
        return cls(words, np.union1d(answering, named), responses, answering, touched)

    @cached_property
    def _place_of(self) -> Mapping[str, int]:
        return {word: place for place, word in enumerate(self.words)}

    def known(self, words: Sequence[str]) -> dict[str, int]:
        """A text's words that are known, the most frequent first, and their places; the rarest ones
        of a long text."""
        every = self._place_of
        found = sorted((every[word], word) for word in set(words) if word in every)
        telling = [(word, place) for place, word in found if place >= COMMONEST]
        return dict(telling[-MOST_QUERY_WORDS:])

    def scores(self, places: Places) -> Scores:
        """How well models match the words at some places, by rows of the view."""
        scores = np.full(int(self.rows.max(initial=-1)) + 1, -np.inf)
        scores[self.rows] = 0.0
        if self.responses is not None:
            scores[self.answering] += self.responses.scores(*self.responses.nearest(places))
        if self.touched is not None:
            scores[self.touched.rows] += self.touched.more_than_usual(places)
        return scores

    def told(self, row: int, asked: Places, near: Int64[np.ndarray, " near"]) -> list[str]:
        """The words that are asked that a model's training touched, if it is not usual, and those
        of the lexicon, or near them, that it answers to: the rarest and the strongest first."""
        told: list[int] = []
        if self.touched is not None and row in self.touched.rows:
            place = int(np.searchsorted(self.touched.rows, row))
            told += self.touched.rare_words(place, asked)[::-1]
        if self.responses is not None and row in self.answering:
            place = int(np.searchsorted(self.answering, row))
            answers = self.responses.answers(place)[near]
            order = np.argsort(-answers, kind="stable")
            told += [int(near[i]) for i in order.tolist() if answers[i] >= LEAST_ANSWER]
        return [self.words[place] for place in dict.fromkeys(told)]

    def chances(
        self, scores: Float64[np.ndarray, " some"], n_words: int
    ) -> Float64[np.ndarray, " some"]:
        """Of each, the share of texts of so many random words that have as good a best match."""
        by_chance = self._by_chance(n_words)
        n_better = len(by_chance) - np.searchsorted(by_chance, scores, side="left")
        return np.asarray((1 + n_better) / (1 + len(by_chance)))

    def _by_chance(self, n_words: int) -> Float64[np.ndarray, " draws"]:
        """The best match of texts of so many random words, or a few less, rising."""
        n_words = max(n for n in DRAWN_WORDS if n <= n_words)
        if n_words not in self._draws:
            n_all = len(self.words if self.responses is None else self.responses.lexicon.words)
            rng, n_drawn = np.random.default_rng(n_words), min(n_words, n_all, MOST_DRAWN)
            drawn = [
                rng.choice(min(n_all, MOST_DRAWN), n_drawn, replace=False) for _ in range(DRAWS)
            ]
            self._draws[n_words] = np.sort([self.scores(some).max() for some in drawn])
        return self._draws[n_words]


def _vocabulary(catalog: Catalog, view: FamilyView) -> Vocabulary | None:
    """Of the base's tokenizer; None where none is kept that can be read."""
    tokenizer = catalog.footprints.family_tokenizer(view.base)
    if tokenizer is None:
        return None
    try:
        return Vocabularies.of(catalog).get(catalog, tokenizer)
    except RequestError:
        return None


SURE, PERHAPS = 0.01, 0.05
"""Share of random texts with as good a best match, up to which a model matches, or perhaps."""

MOST_SHOWN = 5
"""Words shown of a model."""

NOTHING, NOT_ASKED = "matches nothing", "no family can be asked by words"
NONE_PASSES = "no model passes the filters"

NO_WORDS = (
    "its models have no words: they were indexed without (`--no-footprints`), or without the "
    "base's tokenizer; what adapters answer to needs its folder, '.[studies]', and a base to "
    "which words mean something"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelByText:
    rank: int
    model: str
    base: str
    words: list[str]
    verdict: str
    by_chance: float
    score: float
    probability: None
    dataset: str | None
    author: str | None
    run: str | None


@dataclass(frozen=True, slots=True)
class FamilyAsked:
    base: str
    compared: int
    asked: list[str]


@dataclass(frozen=True, slots=True)
class LeftOut:
    base: str
    reason: str


@dataclass(frozen=True, slots=True)
class FoundByText:
    verdict: str
    asked: list[str]
    unknown: list[str]
    compared: int
    neighbours: list[ModelByText]
    families: list[FamilyAsked]
    left_out: list[LeftOut]


def search_text(
    catalog: Catalog, words: Sequence[str], bases: Sequence[str], k: int, filters: Filters
) -> FoundByText:
    """The `k` models that match a text's words best, beside what random words find."""

    def answer() -> FoundByText:
        models: list[ModelByText] = []
        families: list[FamilyAsked] = []
        left_out: list[LeftOut] = []
        for base in bases:
            view = catalog.family(base, catalog.find_recipe(None, base))
            index = TextIndex.of(catalog, view)
            if not len(index.rows):
                left_out.append(LeftOut(base, NO_WORDS))
                continue
            known, rows = index.known(words), index.rows
            if filters:
                rows = np.intersect1d(rows, view.rows_where(filters))
            families.append(FamilyAsked(base, len(rows), list(known)))
            if known:
                models += _matched(view, index, np.array(list(known.values())), rows, k)
        models.sort(key=lambda model: (model.by_chance, -model.score, model.base, model.model))
        ranked = [replace(model, rank=rank) for rank, model in enumerate(models[:k], start=1)]
        asked = sorted({word for family in families for word in family.asked})
        compared = sum(family.compared for family in families)
        nothing = (NOTHING if compared else NONE_PASSES) if families else NOT_ASKED
        return FoundByText(
            verdict=ranked[0].verdict if ranked else nothing,
            asked=asked,
            unknown=sorted(set(words) - set(asked)),
            compared=compared,
            neighbours=ranked,
            families=families,
            left_out=left_out,
        )

    return catalog.look(answer)


def _matched(
    view: FamilyView, index: TextIndex, asked: Places, rows: Rows, k: int
) -> list[ModelByText]:
    scores, near = index.scores(asked), asked[:0]
    if index.responses is not None:
        near = np.unique(index.responses.nearest(asked)[0])
    rows = rows[np.argsort(-scores[rows], kind="stable")[:k]]
    labels, chances = view.labels_at(rows.tolist()), index.chances(scores[rows], len(asked))
    return [
        ModelByText(
            rank=0,
            model=view.ids[row],
            base=view.base,
            words=index.told(row, asked, near)[:MOST_SHOWN],
            verdict=_verdict(float(chance)),
            by_chance=round(float(chance), 4),
            score=round(float(scores[row]), 3),
            probability=None,
            dataset=labels[row].dataset,
            author=labels[row].author,
            run=labels[row].run,
        )
        for row, chance in zip(rows.tolist(), chances, strict=True)
    ]


def _verdict(chance: float) -> str:
    if chance <= SURE:
        return "matches"
    return "perhaps" if chance <= PERHAPS else NOTHING
