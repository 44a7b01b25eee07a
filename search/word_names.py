"""Words as names for what has none: groups of models, and models without a data set.

A group answers to a word by the mean of its members, beside that of the family. It is named only
by words to which it answers more than 19 of 20 random groups of its size answer to any
(docs/words.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from ..errors import RequestError
from ..store import Catalog, FamilyView
from .footprints import FamilyFootprints, personal_names
from .responses import FamilyResponses, Words

NAMED = 3
"""Words of a name."""

SAME = 0.6
"""Cosine of two words' vectors from which one of them says it: "feeling" and "feelings"."""

SURE, DRAWS = 0.95, 200
"""Share of random groups that answer less strongly, and how many are drawn."""

SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Models of random groups: a group is compared with those of its size, or with smaller ones, whose
means are larger."""

AT_ONCE = 500
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
        for start in range(0, len(keys), AT_ONCE):
            some = keys[start : start + AT_ONCE]
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
