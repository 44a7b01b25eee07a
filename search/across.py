"""Models of other bases that were trained on the same data, by words.

Words are the same whatever the base. Over the whole words that two vocabularies share, a model is
the row of its touched tokens' ranks, of unit length, without the mean of its family; two models are
compared by the cosine. What it proves depends on who else is near: a model of the candidate's base
that lies nearer to another of the query's family was trained on that one's data. Coefficients are
of other families (docs/across.md). No label and no gradient is asked. Where one of the two has no
footprint, how much more than usual updates answer to each word, and those near it, orders models:
no probability is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Literal

import numpy as np

from ..arrays import Float64, Int64
from ..errors import RequestError, UnknownRecipe
from ..records import Footprint
from ..store import Catalog, FamilyView, Filters
from .evidence import Numbers, sigmoid
from .family_scores import TIE_DECIMALS, Cohort, Rows, lower_spread
from .footprints import FamilyFootprints
from .neighbours import EVERY_MODEL, Near, Query, ResolvedQuery, rank_rows, resolve, with_rates
from .responses import FamilyResponses, Smoothed
from .word_rows import SHRINKAGE, Tokens, tells, touched_ranks

FEWEST_KNOWN = 8
"""Models with a footprint, of either family, from which a probability is known."""

COEFFICIENTS = (-8.3, 29.0, 6.6, 3.3)
"""Of 1; the cosine; how far it is above the candidate's best with another model of the query's
family; and whether one of the two footprints is tied."""

LONE_BOUND = 0.87
"""Probability from which there is a verdict, `perhaps`: 2 % of models reach it whose data no other
base has, and whose corpus one has."""

FEWEST_WORDS = 100
"""Words that two families share, from which models are compared."""

FEWEST_RANKED = 4
"""Models of either family, of known words, from which an order says something."""

MODELS_AT_ONCE = 500

Matrix = Float64[np.ndarray, "models words"]
By = Literal["footprints", "answers"]


@dataclass(frozen=True, slots=True, eq=False)
class Worded:
    """Models of a family, at some rows of its view, by the words that training touched, or by those
    that their updates answer to more than usual; `matrix`: a row for each of some models, over some
    of the `words`, of zeros where nothing is known."""

    view: FamilyView
    rows: Rows
    words: Iterable[str]
    matrix: Callable[[Rows, Sequence[str]], Matrix]

    def units(self, words: Sequence[str]) -> Iterator[Matrix]:
        """Rows of unit length, `MODELS_AT_ONCE` models at a time."""
        for some in np.array_split(self.rows, 1 + len(self.rows) // MODELS_AT_ONCE):
            yield unit(self.matrix(some, words))

    def usual(self, words: Sequence[str]) -> Float64[np.ndarray, " words"]:
        """The mean of the family's cohort; `RequestError` as `mean_of`."""
        cohort = np.intersect1d(Cohort.of(self.view).rows, self.rows)
        return mean_of(self.view.base, replace(self, rows=cohort).units(words))


def worded(catalog: Catalog, view: FamilyView) -> dict[By, Worded]:
    """A family's models by their footprints, and those that have none by what they answer to."""
    found: dict[By, Worded] = {}
    family = FamilyFootprints.read(catalog, view.base)
    rows = np.flatnonzero(np.isin(view.keys, family.keys))
    footprints = whole(view, np.intersect1d(Cohort.of(view).rows, rows))
    if (usual := Tokens.usual(footprints)) is not None:
        naming = (one for one in footprints if one is not None)
        one = next(one for one in naming if one.tokenizer == usual.tokenizer)

        def touched(some: Rows, words: Sequence[str]) -> Matrix:
            return touched_matrix(family, whole(view, some), words)

        words = family.vocabulary_of(one).words
        found["footprints"] = Worded(view, rows, words, touched)
    if (responses := FamilyResponses.of(catalog, view)) is not None:
        answering = np.setdiff1d(np.searchsorted(view.keys, responses.keys), rows)
        answered = partial(more_than_usual, responses, view)
        found["answers"] = Worded(view, answering, responses.lexicon.words, answered)
    return found


def whole(view: FamilyView, rows: Rows) -> list[Footprint | None]:
    """The footprints of some models that name tokens and of which all rows were read: a token that
    was not read is not one that is untouched."""
    return [_whole(one) for one in view.footprints(view.keys[rows])]


def _whole(footprint: Footprint | None) -> Footprint | None:
    is_whole = footprint is not None and tells(footprint) and footprint.share == 1
    return footprint if is_whole else None


def touched_matrix(
    family: FamilyFootprints, footprints: Sequence[Footprint | None], words: Sequence[str]
) -> Matrix:
    """Ranks of the tokens that are some words; zeros of what is not known."""
    columns = {word: place for place, word in enumerate(words)}
    places: dict[str | None, Int64[np.ndarray, " tokens"]] = {}
    rows = np.zeros((len(footprints), len(words)))
    for row, one in zip(rows, footprints, strict=True):
        if one is None:
            continue
        if one.tokenizer not in places:
            places[one.tokenizer] = _columns_of(family, one, columns)
        inside = one.tokens < len(places[one.tokenizer])
        place = places[one.tokenizer][one.tokens[inside]]
        row[place[place >= 0]] = touched_ranks(one.strengths)[inside][place >= 0]
    return rows


def _columns_of(
    family: FamilyFootprints, footprint: Footprint, columns: Mapping[str, int]
) -> Int64[np.ndarray, " tokens"]:
    """The column of each token, −1 of one that is none of the words; none without a vocabulary."""
    try:
        vocabulary = family.vocabulary_of(footprint)
    except RequestError:
        return np.zeros(0, dtype=np.int64)
    places = np.full(len(vocabulary), -1, dtype=np.int64)
    for word, token in vocabulary.words.items():
        places[token] = columns.get(word, -1)
    return places


def more_than_usual(
    responses: FamilyResponses, view: FamilyView, rows: Rows, words: Sequence[str]
) -> Matrix:
    """What some models answer to beyond their own mean over all words."""
    places = np.searchsorted(responses.keys, view.keys[rows])
    return _beyond_mean(responses, responses.smoothed(places), words)


def _beyond_mean(responses: FamilyResponses, smoothed: Smoothed, words: Sequence[str]) -> Matrix:
    place_of = {word: place for place, word in enumerate(responses.lexicon.words)}
    answers = smoothed[:, [place_of[word] for word in words]]
    return np.asarray(np.maximum(answers - answers.mean(axis=1, keepdims=True), 0))


def unit(rows: Matrix) -> Matrix:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-9))


def mean_of(base: str, parts: Iterable[Matrix]) -> Float64[np.ndarray, " words"]:
    """Of a family's models, drawn to nothing where they are few; `RequestError` where too few of
    them are known by these words."""
    total, n_known = np.zeros(1), 0
    for rows in parts:
        total = total + rows.sum(axis=0)
        n_known += int(np.count_nonzero(rows.any(axis=1)))
    if n_known < FEWEST_RANKED:
        raise RequestError(
            f"{base}: words are known of too few models, {n_known} of {FEWEST_RANKED}"
        )
    return np.asarray(total / (n_known + SHRINKAGE))


def find_across(
    catalog: Catalog,
    query: Query,
    *,
    k: int,
    filters: Filters = EVERY_MODEL,
    recipe: str | None = None,
) -> dict[str, Any]:
    """The document of the `k` models of other bases that were likeliest trained on the query's
    data.

    Raises RequestError: of the query's words nothing is known, or of too few models of its family
    or of all others; or its vocabulary is not kept.
    """

    def answer() -> dict[str, Any]:
        view, resolved = resolve(catalog, query, recipe)
        asked = _queries(catalog, view, resolved)
        left_out, found = [], []
        families: list[dict[str, Any]] = []
        for base in catalog.bases():
            if base == view.base:
                continue
            reasons: list[str] = []
            n_before = len(families)
            try:
                other = catalog.family(base, catalog.find_recipe(recipe, base))
                for compared in _comparisons(catalog, asked, other, reasons):
                    found += compared.best(k, filters)
                    families.append(compared.about())
            except (RequestError, UnknownRecipe) as err:
                reasons.append(str(err))
            if len(families) == n_before:
                reasons = reasons or [f"{base}: footprints, or answers, are known of 0 models"]
                left_out.append({"base": base, "reason": "; ".join(dict.fromkeys(reasons))})
        if not families:
            reasons = [row["reason"] for row in left_out]
            raise RequestError(f"no other family to compare {view.base} with: {'; '.join(reasons)}")
        ranked = with_rates(sorted(found, key=_place)[:k])
        return {
            "query": {"model": resolved.model, "base": view.base, "dataset": resolved.dataset},
            "recipe": view.recipe.name,
            "verdict": ranked[0].verdict if ranked else "no model stands out",
            "verdict_from": LONE_BOUND,
            "neighbours": [model.to_json() for model in ranked],
            "families": families,
            "left_out": left_out,
        }

    return catalog.look(answer)


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """A query by its footprint, or by what its update answers to: the words that are known of it,
    and over some of them its row, of unit length and without the mean of its family; by footprints
    followed by the rows of that. `others`: which models of a family it is compared with."""

    words: Iterable[str]
    rows: Callable[[Sequence[str]], Matrix]
    others: tuple[By, ...]
    footprints: Sequence[Footprint] = ()


def _queries(catalog: Catalog, view: FamilyView, query: ResolvedQuery) -> list[_Asked]:
    """By footprints where the query has one, whose tokens are compared with what models without
    one answer to, too; else by what it answers to. `RequestError` where it has neither."""
    own = view.rows([] if query.itself is None else [query.itself])
    sides = worded(catalog, view)
    try:
        by_footprints = _by_footprints(catalog, view, query, own)
    except RequestError:
        if (matrix := _answers_of(catalog, view, own, query)) is None:
            raise
        return [_by_answers(sides["answers"], matrix, ("footprints", "answers"))]
    mine = sides.get("footprints")
    if mine is None or not len(own):
        return [by_footprints]
    return [by_footprints, _by_answers(mine, partial(mine.matrix, own), ("answers",))]


def _by_footprints(catalog: Catalog, view: FamilyView, query: ResolvedQuery, own: Rows) -> _Asked:
    """The query beside the cohort of its family; `RequestError` where it has no footprint to
    compare, or too few others have."""
    if query.footprint is not None:
        first: Footprint | None = view.comparable(query.footprint)
    else:
        first = next(iter(view.footprints(view.keys[own])), None)
    cohort = Cohort.of(view).rows
    others, first = whole(view, cohort[~np.isin(cohort, own)]), _whole(first)
    if first is None:
        raise RequestError(
            f"{query.model} has no footprint that names tokens, and what its update answers to "
            "is not known: models are compared across bases by those"
        )
    # a copy of the query is not another model of its family
    known = [first, *(one for one in others if one is not None and not _are_copies(one, first))]
    if len(known) <= FEWEST_RANKED:
        raise RequestError(
            f"{view.base} has too few models whose footprints name tokens: "
            f"{len(known) - 1} of {FEWEST_RANKED}"
        )

    family = FamilyFootprints.read(catalog, view.base)

    def rows(words: Sequence[str]) -> Matrix:
        matrix = unit(touched_matrix(family, known, words))
        return unit(matrix - mean_of(view.base, [matrix]))

    return _Asked(family.vocabulary_of(first).words, rows, ("footprints",), known)


def _by_answers(
    mine: Worded, matrix: Callable[[Sequence[str]], Matrix], others: tuple[By, ...]
) -> _Asked:
    def rows(words: Sequence[str]) -> Matrix:
        return unit(unit(matrix(words)) - mine.usual(words))

    return _Asked(mine.words, rows, others)


def _answers_of(
    catalog: Catalog, view: FamilyView, own: Rows, query: ResolvedQuery
) -> Callable[[Sequence[str]], Matrix] | None:
    """What a query answers to, stored or not; None where that is not known."""
    responses = FamilyResponses.of(catalog, view)
    if responses is None:
        return None
    if np.isin(view.keys[own], responses.keys).any():
        return partial(more_than_usual, responses, view, own)
    if query.footprint is None:
        return None
    fresh = responses.of_fresh(query.footprint, query.kind)
    return None if fresh is None else partial(_beyond_mean, responses, fresh)


def _comparisons(
    catalog: Catalog, asked: Sequence[_Asked], other: FamilyView, reasons: list[str]
) -> Iterator[_ComparedFamily]:
    """The query with another family's models of each sort; `reasons` has why one cannot be."""
    sides = worded(catalog, other).items()
    for query, (by, theirs) in product(asked, sides):
        if by in query.others:
            try:
                yield _compare(catalog, query, theirs)
            except RequestError as err:
                reasons.append(str(err))


def _compare(catalog: Catalog, asked: _Asked, theirs: Worded) -> _ComparedFamily:
    """`RequestError` where either family has too few models, or they share too few words."""
    words = sorted(set(asked.words) & set(theirs.words))
    if len(words) < FEWEST_WORDS:
        raise RequestError(
            f"{theirs.view.base}: too few words are shared, {len(words)} of {FEWEST_WORDS}"
        )
    queries, mean = asked.rows(words), theirs.usual(words)
    parts = []
    for rows in theirs.units(words):
        parts.append(np.where(rows.any(axis=1), queries @ unit(rows - mean).T, np.nan))
    cosines = np.concatenate(parts, axis=1)
    rows = theirs.rows[here := np.isfinite(cosines[0])]
    nearest, *others = cosines[:, here]
    gaps = None
    if others and min(len(queries), len(rows)) >= FEWEST_KNOWN:
        gaps = nearest - np.max(others, axis=0)
    return _ComparedFamily(asked, theirs.view, rows, nearest, gaps, len(words))


def _are_copies(one: Footprint, other: Footprint) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in ("tokens", "strengths")
    )


@dataclass(frozen=True, slots=True, eq=False)
class _ComparedFamily:
    """Models of another family, by rows of its view: how near each is to the query over so many
    words; and how far that is above its best with another model of the query's family, where a
    probability is known."""

    asked: _Asked
    view: FamilyView
    rows: Rows
    cosines: Numbers
    gaps: Numbers | None
    n_words: int

    def about(self) -> dict[str, Any]:
        return {
            "base": self.view.base,
            "models": len(self.view),
            "compared": len(self.rows),
            "words": self.n_words,
            "by": "footprints" if self.asked.footprints else "answers",
            "is_calibrated": self.gaps is not None,
        }

    def _probabilities(self, places: Rows) -> list[float] | list[None]:
        """That some of the models were trained on the query's data, 0…1."""
        if self.gaps is None:
            return [None] * len(places)
        own = [*self.view.footprints(self.view.keys[self.rows[places]])]
        kinds = [one is not None and one.kind == "tied" for one in own]
        is_tied = np.array(kinds, dtype=np.bool_) | (self.asked.footprints[0].kind == "tied")
        constant, of_cosine, of_gap, of_tied = COEFFICIENTS
        logits = constant + of_cosine * self.cosines[places] + of_gap * self.gaps[places]
        likely: list[float] = sigmoid(logits + of_tied * is_tied).tolist()
        return likely

    def best(self, k: int, filters: Filters) -> list[Near]:
        """The `k` nearest that pass, not yet ranked among those of other families."""
        view, rows, cosines = self.view, self.rows, self.cosines
        allowed = view.rows_where(filters) if filters else rows
        best = np.flatnonzero(np.isin(rows, allowed))
        best = best[rank_rows(view.ids, rows[best], cosines[best])][:k]
        centre, spread = lower_spread(cosines)
        z, labels = (cosines - centre) / spread, view.labels_at(rows[best].tolist())
        return [
            Near.of(
                view.ids[row],
                labels[row],
                float(z[place]),
                float(cosines[place]),
                rank=0,
                base=view.base,
                probability=p,
                verdict="no model stands out" if p is None or p < LONE_BOUND else "perhaps",
                fdr=None,
            )
            for place, row, p in zip(
                best.tolist(), rows[best].tolist(), self._probabilities(best), strict=True
            )
        ]


def _place(model: Near) -> tuple[bool, float, str, str]:
    """In the order of all bases: the likeliest first, those of unknown probability last."""
    known = model.probability
    value = model.z if known is None else known
    return known is None, -round(value, TIE_DECIMALS), model.base, model.model
