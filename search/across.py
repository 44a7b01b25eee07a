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
from typing import Any

import numpy as np

from ..arrays import Float64, Int64
from ..errors import RequestError, UnknownRecipe
from ..records import Footprint
from ..store import Catalog, FamilyView, Filters
from .evidence import Numbers, sigmoid
from .family_scores import TIE_DECIMALS, Cohort, Rows, lower_spread
from .footprints import NO_TOKENIZER, Vocabularies
from .neighbours import EVERY_MODEL, Near, Query, ResolvedQuery, rank_rows, resolve, with_rates
from .responses import FamilyResponses, Smoothed
from .vocabulary import Vocabulary
from .word_rows import SHRINKAGE, TokenRows, tells, usual_reading

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

Tokens = Int64[np.ndarray, " tokens"]
Matrix = Float64[np.ndarray, "models words"]


def touched_matrix(
    catalog: Catalog, view: FamilyView, footprints: Sequence[Footprint | None], words: Sequence[str]
) -> Matrix:
    """Ranks of the tokens that are some words; zeros of what is not known."""
    columns = {word: place for place, word in enumerate(words)}
    first = {one.tokenizer: one for one in footprints if one is not None}
    known = {name: _columns_of(catalog, view, one, columns) for name, one in first.items()}
    places = [_NOWHERE if one is None else known[one.tokenizer] for one in footprints]
    return TokenRows.of(footprints, None).over(len(words), places).dense()


_NOWHERE = np.full(1, -1)


def _columns_of(
    catalog: Catalog, view: FamilyView, footprint: Footprint, columns: Mapping[str, int]
) -> Tokens:
    """The column of each token, −1 of one that is none of the words."""
    try:
        vocabulary = vocabulary_of(catalog, view, footprint)
    except RequestError:
        return _NOWHERE
    places = np.full(len(vocabulary), -1, dtype=np.int64)
    for word, token in vocabulary.words.items():
        places[token] = columns.get(word, -1)
    return places


def shared_words(mine: Iterable[str], theirs: Worded) -> list[str]:
    """Words of both, sorted; `RequestError` where they are too few."""
    words = sorted(set(mine) & set(theirs.words))
    if len(words) < FEWEST_WORDS:
        raise RequestError(
            f"{theirs.view.base}: too few words are shared, {len(words)} of {FEWEST_WORDS}"
        )
    return words


def vocabulary_of(catalog: Catalog, view: FamilyView, footprint: Footprint) -> Vocabulary:
    """That of a footprint's tokens; `RequestError` where none is kept."""
    sha256 = footprint.tokenizer or catalog.footprints.family_tokenizer(view.base)
    if sha256 is None:
        raise RequestError(NO_TOKENIZER.format(base=view.base))
    return Vocabularies.of(catalog).get(catalog, sha256, footprint.own_tokenizer)


def whole(footprints: Sequence[Footprint | None]) -> list[Footprint | None]:
    """Those that name tokens and of which all rows were read: a token that was not read is not one
    that is untouched."""
    return [
        one if one is not None and tells(one) and one.share == 1 else None for one in footprints
    ]


@dataclass(slots=True, eq=False)
class Touched:
    """Models by the words that training touched; `rows`: of the view."""

    view: FamilyView
    rows: Rows
    catalog: Catalog
    vocabulary: Vocabulary

    @property
    def words(self) -> Iterable[str]:
        return self.vocabulary.words

    def matrix(self, rows: Rows, words: Sequence[str]) -> Matrix:
        footprints = whole(self.view.footprints(self.view.keys[rows]))
        return touched_matrix(self.catalog, self.view, footprints, words)


@dataclass(slots=True, eq=False)
class Answering:
    """Models by the words that their updates answer to more than usual."""

    view: FamilyView
    rows: Rows
    responses: FamilyResponses

    @property
    def answered(self) -> Rows:
        """Of all models whose answers are known."""
        return np.searchsorted(self.view.keys, self.responses.keys)

    @property
    def words(self) -> Iterable[str]:
        return self.responses.lexicon.words

    def matrix(self, rows: Rows, words: Sequence[str]) -> Matrix:
        places = np.searchsorted(self.responses.keys, self.view.keys[rows])
        return self.more_than_usual(self.responses.smoothed(places), words)

    def more_than_usual(self, smoothed: Smoothed, words: Sequence[str]) -> Matrix:
        place_of = {word: place for place, word in enumerate(self.words)}
        answers = smoothed[:, [place_of[word] for word in words]]
        return np.asarray(np.maximum(answers - answers.mean(axis=1, keepdims=True), 0))


Worded = Touched | Answering


def worded(catalog: Catalog, view: FamilyView) -> list[Worded]:
    """A family's models by their footprints, and those that have none by what they answer to."""
    found: list[Worded] = []
    rows = np.flatnonzero(np.isin(view.keys, catalog.footprints.keys(view.base)))
    cohort = np.intersect1d(Cohort.of(view).rows, rows)
    footprints = whole(view.footprints(view.keys[cohort]))
    if (usual := usual_reading(footprints)) is not None:
        one = next(one for one in footprints if one is not None and one.tokenizer == usual[0])
        found.append(Touched(view, rows, catalog, vocabulary_of(catalog, view, one)))
    responses = FamilyResponses.of(catalog, view)
    if responses is not None:
        every = Answering(view, rows, responses)
        found.append(replace(every, rows=np.setdiff1d(every.answered, rows)))
    return found


def unit_rows(side: Worded, rows: Rows, words: Sequence[str]) -> Iterator[Matrix]:
    """Rows of unit length, `MODELS_AT_ONCE` models at a time."""
    for some in np.array_split(rows, 1 + len(rows) // MODELS_AT_ONCE):
        yield unit(side.matrix(some, words))


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
    others: tuple[type, ...]
    footprints: Sequence[Footprint] = ()


def _queries(catalog: Catalog, view: FamilyView, query: ResolvedQuery) -> list[_Asked]:
    """By footprints where the query has one, whose tokens are compared with what models without
    one answer to, too; else by what it answers to. `RequestError` where it has neither."""
    own = view.rows([] if query.itself is None else [query.itself])
    sides: dict[type, Worded] = {type(side): side for side in worded(catalog, view)}
    try:
        by_footprints = _by_footprints(catalog, view, query, own)
    except RequestError:
        mine = sides.get(Answering)
        matrix = _answers_of(mine, own, query) if isinstance(mine, Answering) else None
        if mine is None or matrix is None:
            raise
        return [_by_answers(mine, matrix, (Touched, Answering))]
    mine = sides.get(Touched)
    if mine is None or not len(own):
        return [by_footprints]
    return [by_footprints, _by_answers(mine, partial(mine.matrix, own), (Answering,))]


def _by_footprints(catalog: Catalog, view: FamilyView, query: ResolvedQuery, own: Rows) -> _Asked:
    """The query beside the cohort of its family; `RequestError` where it has no footprint to
    compare, or too few others have."""
    if query.footprint is not None:
        first: Footprint | None = view.comparable(query.footprint)
    else:
        first = next(iter(view.footprints(view.keys[own])), None)
    cohort = Cohort.of(view).rows
    others = whole(view.footprints(view.keys[cohort[~np.isin(cohort, own)]]))
    (first,) = whole([first])
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

    def rows(words: Sequence[str]) -> Matrix:
        matrix = unit(touched_matrix(catalog, view, known, words))
        return unit(matrix - mean_of(view.base, [matrix]))

    return _Asked(vocabulary_of(catalog, view, first).words, rows, (Touched,), known)


def _by_answers(
    mine: Worded, matrix: Callable[[Sequence[str]], Matrix], others: tuple[type, ...]
) -> _Asked:
    def rows(words: Sequence[str]) -> Matrix:
        return unit(unit(matrix(words)) - _usual(mine, words))

    return _Asked(mine.words, rows, others)


def _usual(side: Worded, words: Sequence[str]) -> Float64[np.ndarray, " words"]:
    """The mean of a family's cohort."""
    rows = np.intersect1d(Cohort.of(side.view).rows, side.rows)
    return mean_of(side.view.base, unit_rows(side, rows, words))


def _answers_of(
    family: Answering, own: Rows, query: ResolvedQuery
) -> Callable[[Sequence[str]], Matrix] | None:
    """What a query answers to, stored or not; None where that is not known."""
    if np.isin(own, family.answered).any():
        return partial(family.matrix, own)
    if query.footprint is None:
        return None
    fresh = family.responses.of_fresh(query.footprint, query.kind)
    return None if fresh is None else partial(family.more_than_usual, fresh)


def _comparisons(
    catalog: Catalog, asked: Sequence[_Asked], other: FamilyView, reasons: list[str]
) -> Iterator[_ComparedFamily]:
    """The query with another family's models of each sort; `reasons` has why one cannot be."""
    sides = worded(catalog, other)
    for query, theirs in product(asked, sides):
        if isinstance(theirs, query.others):
            try:
                yield _compare(catalog, query, theirs)
            except RequestError as err:
                reasons.append(str(err))


def _compare(catalog: Catalog, asked: _Asked, theirs: Worded) -> _ComparedFamily:
    """`RequestError` where either family has too few models, or they share too few words."""
    words = shared_words(asked.words, theirs)
    queries, mean = asked.rows(words), _usual(theirs, words)
    parts = []
    for rows in unit_rows(theirs, theirs.rows, words):
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
