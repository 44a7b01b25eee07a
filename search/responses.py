"""What models' updates answer to, in words.

A stored response is beside the model's own mean over words; here it is beside what models of its
kind answer, too, so that function words and what every update favours do not count. A word that is
asked counts with the words near it, by the squared cosine of their vectors and by how far a word
tells the family's models apart (docs/words.md).

Words are names for what has none, too: groups of models, and models without a data set. A group
answers to a word by the mean of its members, beside that of the family. It is named only by words
to which it answers more than 19 of 20 random groups of its size answer to any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..arrays import Float32, Float64, Int8, Int64, Shaped
from ..errors import RequestError
from ..records import Footprint
from ..store import STEPS, Catalog, FamilyView, Lexicon
from .footprints import FamilyFootprints, personal_names

NEAR = 5
"""Words of the lexicon that stand for one of a text; itself among them."""

SMOOTHED = 15
"""Words over which a word's response is averaged before a model's words are listed."""

SHRINKAGE = 4.0
"""Models as which the family counts in the mean of a kind, and nothing in that of the family."""

AT_ONCE, SPREAD_PARTS = 2_000, 64
"""Models, and parts of the words, that become numbers at a time."""

Nearest = tuple[Int64[np.ndarray, "asked n"], Float32[np.ndarray, "asked n"]]
"""Places of words, and their squared cosines."""

Words = Float64[np.ndarray, " words"]
Smoothed = Float64[np.ndarray, "models words"]


@dataclass(frozen=True, eq=False)
class FamilyResponses:
    """The responses of a family's models, centred. `keys`: of the models, rising; `columns`: by
    word, in `STEPS` of the model's standard deviation over words; `spread`: of each word over the
    models, in those steps; `usual`: what models of each kind answer, and of any ("")."""

    sha256: str
    lexicon: Lexicon
    keys: Int64[np.ndarray, " models"]
    columns: Int8[np.ndarray, "words models"]
    spread: Float32[np.ndarray, " words"]
    usual: Mapping[str, Float32[np.ndarray, " words"]]

    @classmethod
    def of(cls, catalog: Catalog, view: FamilyView) -> FamilyResponses | None:
        """Those of a family under its commonest lexicon; None where no model has any."""
        return view.derived(_Held, lambda view: _Held(_read(catalog, view))).responses

    def words(self, key: int) -> list[tuple[str, float]]:
        """The words that a model answers to, the strongest first, with standard deviations."""
        return self.listed(self.smoothed(np.searchsorted(self.keys, [key])))

    def listed(self, smoothed: Smoothed) -> list[tuple[str, float]]:
        order = np.argsort(-smoothed[0], kind="stable").tolist()
        return [(self.lexicon.words[i], float(smoothed[0, i])) for i in order]

    def of_fresh(self, footprint: Footprint, kind: str) -> Smoothed | None:
        """As `smoothed`, of a model that is not stored; None where it has no such responses."""
        stored = np.frombuffer(footprint.responses, np.int8)
        if not len(stored) or footprint.lexicon != self.sha256:
            return None
        own = _beside(stored[None], self.usual.get(kind, self.usual[""]))
        return self._smooth(own.T)

    def smoothed(self, places: Int64[np.ndarray, " some"]) -> Smoothed:
        """Of models by their places, each word's answer averaged with those of words near it."""
        return self._smooth(self.columns[:, places])

    def _smooth(self, columns: Shaped[np.ndarray, "words models"]) -> Smoothed:
        near, weights = self._near
        total = np.zeros(columns.shape)
        for column, weight in zip(near.T, weights.T, strict=True):
            total += columns[column] * weight[:, None]
        # words of a base of zeros are near none
        return np.asarray((total / (STEPS * np.maximum(weights.sum(axis=1), 1e-6)[:, None])).T)

    def answers(self, place: int) -> Float32[np.ndarray, " words"]:
        """Of one model, by its place among `keys`, in standard deviations."""
        return np.asarray(self.columns[:, place] / np.float32(STEPS))

    def together(self, models: Sequence[int] | slice | Int64[np.ndarray, " members"]) -> Words:
        """The mean of some models, by their places among `keys`, averaged over near words."""
        mean = self.columns[:, models].mean(axis=1, dtype=np.float64)
        return np.asarray(self._smooth(mean[:, None])[0])

    def cosine(self, word: int, other: int) -> float:
        """Of two words, by their places."""
        return float(self._vectors[word] @ self._vectors[other])

    def has(self, key: int) -> bool:
        return bool(np.isin(key, self.keys))

    @cached_property
    def _vectors(self) -> Float32[np.ndarray, "all axes"]:
        vectors = self.lexicon.vectors.astype(np.float32)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.maximum(lengths, 1e-6), dtype=np.float32)

    @cached_property
    def _near(self) -> Nearest:
        return self.nearest(np.arange(len(self.lexicon.words)), SMOOTHED)

    def nearest(self, asked: Int64[np.ndarray, " asked"], n: int = NEAR) -> Nearest:
        """The words of responses nearest to each word, and their squared cosines."""
        cosines = self._vectors[asked] @ self._vectors[: len(self.lexicon.words)].T
        n = min(n, cosines.shape[1])
        places = np.argpartition(-cosines, n - 1, axis=1)[:, :n]
        return places, np.maximum(np.take_along_axis(cosines, places, 1), 0) ** 2

    def scores(
        self, places: Int64[np.ndarray, "asked n"], weights: Float32[np.ndarray, "asked n"]
    ) -> Float64[np.ndarray, " models"]:
        """How much models answer to some words by the words near them, in standard deviations."""
        told = weights * self.spread[places] ** 2
        told = (told / max(float(told.sum()) * STEPS, 1e-12)).ravel().astype(np.float32)
        chosen = self.columns[places.ravel()].astype(np.float32)
        return np.asarray(told @ chosen, dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    responses: FamilyResponses | None


def _read(catalog: Catalog, view: FamilyView) -> FamilyResponses | None:
    lexicons = catalog.footprints.lexicons(view.base)
    if not lexicons:
        return None
    lexicon = Lexicon.from_bytes(catalog.footprints.tokenizer(lexicons[0]))
    rows = catalog.footprints.responses(view.base, lexicons[0])
    known, n_words = set(view.keys.tolist()), len(lexicon.words)
    rows = [(key, some) for key, some in rows if key in known and len(some) == n_words]
    keys = np.array([key for key, _ in rows], dtype=np.int64)
    stored = np.frombuffer(b"".join(some for _, some in rows), np.int8).reshape(-1, n_words)
    kinds = np.asarray(view.kinds)[np.searchsorted(view.keys, keys)]
    usual = _usual(stored, kinds)
    columns = np.empty(stored.shape[::-1], np.int8)
    for kind in np.unique(kinds):
        places = np.flatnonzero(kinds == kind)
        for some in np.array_split(places, 1 + len(places) // AT_ONCE):
            columns[:, some] = _beside(stored[some], usual[kind]).T
    spread = np.concatenate([some.std(axis=1) for some in np.array_split(columns, SPREAD_PARTS)])
    if len(keys) == 1:
        spread[:] = 1.0  # one model tells no words apart
    return FamilyResponses(lexicons[0], lexicon, keys, columns, spread.astype(np.float32), usual)


def _usual(
    stored: Int8[np.ndarray, "models words"], kinds: np.ndarray
) -> dict[str, Float32[np.ndarray, " words"]]:
    """The mean of each kind, drawn to the family's."""
    family = stored.sum(axis=0, dtype=np.float64) / (len(stored) + SHRINKAGE)
    usual = {"": family.astype(np.float32)}
    for kind in np.unique(kinds).tolist():
        rows = kinds == kind
        total = stored[rows].sum(axis=0, dtype=np.float64) + SHRINKAGE * family
        usual[kind] = (total / (rows.sum() + SHRINKAGE)).astype(np.float32)
    return usual


def _beside(
    stored: Int8[np.ndarray, "models words"], usual: Float32[np.ndarray, " words"]
) -> Int8[np.ndarray, "models words"]:
    """Beside what is usual, in steps of the model's standard deviation."""
    own = stored.astype(np.float32) - usual
    own *= STEPS / np.maximum(own.std(axis=1, keepdims=True), 1e-6)
    return np.asarray(np.clip(np.round(own), -127, 127).astype(np.int8))


NAMED = 3
"""Words of a name."""

SAME = 0.6
"""Cosine of two words' vectors from which one of them says it: "feeling" and "feelings"."""

SURE, DRAWS = 0.95, 200
"""Share of random groups that answer less strongly, and how many are drawn."""

SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Models of random groups: a group is compared with those of its size, or with smaller ones, whose
means are larger."""

FOOTPRINTS_AT_ONCE = 500
"""Models whose footprints are in memory at a time."""


def surest_words(seen: Sequence[str], answers: Iterable[str], n: int) -> list[str]:
    """The first `n` words of a model: those that its footprint names and its update answers to,
    where they are as many, by the answers; else those of the footprint, or the answers alone.

    A row of the embedding moves about as far for one occurrence as for many.
    """
    answers, named = list(answers), set(seen)
    both = [word for word in answers if word in named]
    return (both if len(both) >= n else list(seen) or answers)[:n]


class WordNames:
    """The words of a family's models and groups, where it is known what their updates answer to."""

    def __init__(self, catalog: Catalog, view: FamilyView) -> None:
        self._catalog, self._view = catalog, view
        self._responses = FamilyResponses.of(catalog, view)
        self._usual = 0.0 if self._responses is None else self._responses.together(slice(None))
        self._limits: dict[int, float] = {}

    @classmethod
    def of(cls, catalog: Catalog, view: FamilyView) -> WordNames:
        return catalog.look(lambda: view.derived(cls, lambda view: cls(catalog, view)))

    def of_group(self, ids: Sequence[str]) -> list[str]:
        """The words of some models together, the strongest first; none where fewer than half of
        them have responses, or where random groups answer as strongly."""
        responses = self._responses
        if responses is None:
            return []
        keys = self._view.keys[self._view.rows(ids)]
        places = np.flatnonzero(np.isin(responses.keys, keys))
        if 2 * len(places) < len(ids) or not SIZES[0] <= len(places) < len(responses.keys):
            return []
        strengths = responses.together(places) - self._usual
        return self._strongest(responses, strengths, self._limit(responses, len(places)))

    def of_models(self, ids: Sequence[str]) -> dict[str, list[str]]:
        """The words of each of some models, the strongest first: those to which its update answers
        and that its footprint names, where that names any."""
        responses = self._responses
        if responses is None:
            return {}
        keys = self._view.keys[self._view.rows(ids)]
        keys = keys[np.isin(keys, responses.keys)]
        names = {}
        for start in range(0, len(keys), FOOTPRINTS_AT_ONCE):
            some = keys[start : start + FOOTPRINTS_AT_ONCE]
            touched, places = self._touched(some.tolist()), np.searchsorted(responses.keys, some)
            rows = np.searchsorted(self._view.keys, some)
            for key, place, row in zip(some.tolist(), places.tolist(), rows.tolist(), strict=True):
                strengths, known = responses.together([place]), touched.get(key)
                names[self._view.ids[row]] = self._strongest(responses, strengths, 0.0, known)
        return names

    def _limit(self, responses: FamilyResponses, n_models: int) -> float:
        """What few random groups of so many models, or a few less, answer to any word."""
        n_models = max(n for n in SIZES if n <= n_models)
        if n_models not in self._limits:
            rng, n_all = np.random.default_rng(n_models), len(responses.keys)
            drawn = [rng.choice(n_all, n_models, replace=False) for _ in range(DRAWS)]
            best = [(responses.together(some) - self._usual).max() for some in drawn]
            self._limits[n_models] = float(np.quantile(best, SURE))
        return self._limits[n_models]

    def _strongest(
        self,
        responses: FamilyResponses,
        strengths: Words,
        above: float,
        known: Collection[str] | None = None,
    ) -> list[str]:
        """The first words above a strength, none of which says the same as another."""
        chosen: list[int] = []
        for place in np.argsort(-strengths, kind="stable").tolist():
            if len(chosen) == NAMED or strengths[place] <= above:
                break
            word = responses.lexicon.words[place]
            is_shown = word not in personal_names() and (known is None or word in known)
            if is_shown and all(responses.cosine(place, other) < SAME for other in chosen):
                chosen.append(place)
        return [responses.lexicon.words[place] for place in chosen]

    def _touched(self, keys: Sequence[int]) -> dict[int, Collection[str]]:
        """The words of footprints that name tokens, by the models' keys."""
        family = FamilyFootprints.read(self._catalog, self._view.base)
        naming = sorted(set(keys) & set(family.keys))
        touched: dict[int, Collection[str]] = {}
        for one in self._catalog.footprints.all(self._view.base, naming):
            try:
                pieces = family.vocabulary(one.footprint).pieces
            except RequestError:  # its tokenizer is not kept
                continue
            tokens = [token for token in one.footprint.tokens.tolist() if token < len(pieces)]
            touched[one.key] = {pieces[t].text.casefold() for t in tokens if pieces[t].starts}
        return touched
