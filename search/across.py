"""Models of other bases that were trained on the same data, by words.

Words are the same whatever the base. Over the whole words that two vocabularies share, a model is
the row of its touched tokens' ranks, of unit length, without the mean of its family; two models are
compared by the cosine. What it proves depends on who else is near: a model of the candidate's base
that lies nearer to another of the query's family was trained on that one's data. Coefficients are
of other families (docs/across.md). No label and no gradient is asked. Where one of the two has no
footprint, what updates answer to orders models (`across_answers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..arrays import Bool, Float64
from ..errors import RequestError, UnknownRecipe
from ..records import Footprint
from ..store import Catalog, FamilyView, Filters
from .across_answers import Answering, Asked, Touched, Worded, compare_worded, worded
from .evidence import Numbers, sigmoid
from .family_scores import TIE_DECIMALS, Cohort, Rows, bounded, lengths_without, lower_spread
from .neighbours import EVERY_MODEL, Near, Query, ResolvedQuery, rank_rows, resolve
from .vocabulary import Vocabulary
from .word_rows import SHRINKAGE, SparseRows, TokenRows
from .word_space import (
    FEWEST_RANKED,
    WordSpace,
    shared_words,
    usual_vocabulary,
    vocabulary_of,
    whole,
)

FEWEST_KNOWN = 8
"""Models with a footprint, of either family, from which a probability is known."""

COEFFICIENTS = (-8.3, 29.0, 6.6, 3.3)
"""Of 1; the cosine; how far it is above the candidate's best with another model of the query's
family; and whether one of the two footprints is tied."""

BY_FOOTPRINTS, BY_ANSWERS = "footprints", "answers"

LONE_BOUND = 0.87
"""Probability from which there is a verdict, `perhaps`: 2 % of models reach it whose data no other
base has, and whose corpus one has."""

MODELS_AT_ONCE = 4_000
"""Models whose tokens are held at a time: 64 MB."""


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """Some models of a family over shared words: their rows, and the mean of its cohort."""

    rows: SparseRows
    mean: Float64[np.ndarray, " words"]

    def cosines(self, other: Side) -> Float64[np.ndarray, "models others"]:
        mine, theirs = (side.rows.along(side.mean) for side in (self, other))
        across = self.rows.along(other.mean), other.rows.along(self.mean)
        covariances = self.rows.products(other.rows) - across[0][:, None] - across[1]
        covariances += self.mean @ other.mean
        lengths = (
            lengths_without(side.rows.squares(), toward, float(side.mean @ side.mean))
            for side, toward in ((self, mine), (other, theirs))
        )
        return np.asarray(covariances / np.outer(*lengths))


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
        view, resolved = resolve(catalog, query, recipe, None)
        comparisons = _comparisons(catalog, view, resolved)
        left_out, families, found = [], [], []
        for base in catalog.bases():
            if base == view.base:
                continue
            reasons = []
            for compare in comparisons:
                try:
                    other = catalog.family(base, catalog.find_recipe(recipe, base))
                    for compared in compare(other):
                        found += compared.best(k, filters)
                        families.append(compared.about())
                except (RequestError, UnknownRecipe) as err:
                    reasons.append(str(err))
            if all(family["base"] != base for family in families):
                left_out.append({"base": base, "reason": "; ".join(dict.fromkeys(reasons))})
        if not families:
            reasons = [f"{row['base']} {row['reason']}" for row in left_out]
            raise RequestError(f"no other family to compare {view.base} with: {'; '.join(reasons)}")
        ranked = ranked_across(found, k)
        return {
            "query": {"model": resolved.model, "base": view.base, "dataset": resolved.dataset},
            "recipe": view.recipe.name,
            "verdict": ranked[0].verdict if ranked else "no model stands out",
            "verdict_from": LONE_BOUND,
            "neighbours": [asdict(model) for model in ranked],
            "families": families,
            "left_out": left_out,
        }

    return catalog.look(answer)


def _comparisons(
    catalog: Catalog, view: FamilyView, query: ResolvedQuery
) -> list[Callable[[FamilyView], Iterator[_Compared]]]:
    """How models of another family are compared with a query: by footprints where both have one,
    else by what updates answer to; `RequestError` where the query has neither."""
    own = view.rows([] if query.itself is None else [query.itself])
    sides: dict[type, Worded] = {type(side): side for side in worded(catalog, view)}
    try:
        by_footprints = _Asked.of(catalog, view, query).compare
    except RequestError:
        mine = sides.get(Answering)
        asked = _answers_of(mine, own, query) if isinstance(mine, Answering) else None
        if mine is None or asked is None:
            raise
        return [partial(_by_answers, catalog, mine, asked, (Touched, Answering))]
    mine = sides.get(Touched)
    if mine is None or not len(own):
        return [by_footprints]
    asked = partial(mine.matrix, own)
    return [by_footprints, partial(_by_answers, catalog, mine, asked, (Answering,))]


def _answers_of(family: Answering, own: Rows, query: ResolvedQuery) -> Asked | None:
    """What a query answers to, stored or not; None where that is not known."""
    if np.isin(own, family.answered).any():
        return partial(family.matrix, own)
    if query.footprint is None:
        return None
    fresh = family.responses.of_fresh(query.footprint, query.kind)
    return None if fresh is None else partial(family.more_than_usual, fresh)


def _by_answers(
    catalog: Catalog, mine: Worded, asked: Asked, sorts: tuple[type, ...], other: FamilyView
) -> Iterator[_Compared]:
    """Another family's models of some sorts; `RequestError` where none can be compared."""
    reason = "has no model whose words are known"
    found = []
    for theirs in worded(catalog, other):
        if isinstance(theirs, sorts):
            try:
                found.append(compare_worded(mine, asked, theirs))
            except RequestError as err:
                reason = str(err)
    if not found:
        raise RequestError(reason)
    for one in found:
        yield _Compared(other, one.rows, one.cosines, None, one.n_words, BY_ANSWERS)


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """A query and the cohort of its family, by their footprints."""

    catalog: Catalog
    view: FamilyView
    footprints: Sequence[Footprint]
    vocabulary: Vocabulary

    @classmethod
    def of(cls, catalog: Catalog, view: FamilyView, query: ResolvedQuery) -> _Asked:
        """The query's footprint is the first; `RequestError` where it has none to compare."""
        own = view.rows([] if query.itself is None else [query.itself])
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
        known = [one for one in others if one is not None and not _are_copies(one, first)]
        if len(known) < FEWEST_RANKED:
            raise RequestError(f"{view.base} {_too_few(len(known))}")
        return cls(catalog, view, [first, *known], vocabulary_of(catalog, view, first))

    def compare(self, other: FamilyView) -> Iterator[_Compared]:
        """The models of another family that have footprints; `RequestError` where it cannot be
        compared."""
        cohort = whole(other.footprints(other.keys[Cohort.of(other).rows]))
        n_known = sum(one is not None for one in cohort)
        theirs = usual_vocabulary(self.catalog, other, cohort)
        if theirs is None or n_known < FEWEST_RANKED:
            raise RequestError(_too_few(n_known))
        words = shared_words(self.vocabulary.words, theirs.words)
        space = WordSpace(self.catalog, {word: place for place, word in enumerate(words)})
        mine = space.rows(self.view, self.footprints)
        asked = Side(mine, _mean(mine))
        mean = _mean(space.rows(other, cohort))
        is_tied, numbers = self._numbers(asked, mean, space, other)
        rows = np.flatnonzero(np.isfinite(numbers[0]))
        cosines, gaps = numbers[:, rows]
        likely = probabilities(cosines, gaps, is_tied[rows] | (self.footprints[0].kind == "tied"))
        is_known = min(len(self.footprints), len(rows)) >= FEWEST_KNOWN
        yield _Compared(other, rows, cosines, likely if is_known else None, len(words))

    def _numbers(
        self, asked: Side, mean: Float64[np.ndarray, " words"], space: WordSpace, other: FamilyView
    ) -> tuple[Bool[np.ndarray, " models"], Float64[np.ndarray, "2 models"]]:
        """Of every model of a family: whether its footprint is tied; its cosine with the query, and
        how far that is above its best with another model of the query's family, NaN where it has no
        footprint."""
        numbers, is_tied = np.full((2, len(other)), np.nan), np.zeros(len(other), dtype=np.bool_)
        for start in range(0, len(other), MODELS_AT_ONCE):
            footprints = whole(other.footprints(other.keys[start : start + MODELS_AT_ONCE]))
            rows = space.rows(other, footprints)
            cosines = asked.cosines(Side(rows, mean))
            here = start + np.flatnonzero(rows.are_here)
            numbers[0, here] = cosines[0, here - start]
            numbers[1, here] = (cosines[0] - cosines[1:].max(axis=0))[here - start]
            is_tied[here] = TokenRows.of(footprints, None).codes[here - start] == 1
        return is_tied, numbers


def _are_copies(one: Footprint, other: Footprint) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in ("tokens", "strengths")
    )


def _too_few(n: int) -> str:
    return f"has {n} models whose footprints name tokens; {FEWEST_RANKED} are needed"


def _mean(rows: SparseRows) -> Float64[np.ndarray, " words"]:
    return np.asarray(rows.sum() / (np.count_nonzero(rows.are_here) + SHRINKAGE))


def probabilities(cosines: Numbers, gaps: Numbers, is_tied: Bool[np.ndarray, " models"]) -> Numbers:
    """That models of two bases were trained on the same data, 0…1."""
    constant, of_cosine, of_gap, of_tied = COEFFICIENTS
    return sigmoid(constant + of_cosine * cosines + of_gap * gaps + of_tied * is_tied)


@dataclass(frozen=True, slots=True, eq=False)
class _Compared:
    """Models of another family, by rows of its view: how near each is to the query over so many
    words, and its probability, where that is known."""

    view: FamilyView
    rows: Rows
    cosines: Numbers
    likely: Numbers | None
    n_words: int
    by: str = BY_FOOTPRINTS

    def about(self) -> dict[str, Any]:
        return {
            "base": self.view.base,
            "models": len(self.view),
            "compared": len(self.rows),
            "words": self.n_words,
            "by": self.by,
            "is_calibrated": self.likely is not None,
        }

    def best(self, k: int, filters: Filters) -> list[Near]:
        """The `k` nearest that pass, not yet ranked among those of other families."""
        view, rows, cosines = self.view, self.rows, self.cosines
        allowed = view.rows_where(filters) if filters else rows
        best = np.flatnonzero(np.isin(rows, allowed))
        best = best[rank_rows(view.ids, rows[best], cosines[best])][:k]
        centre, spread = lower_spread(cosines)
        z, labels = (cosines - centre) / spread, view.labels_at(rows[best].tolist())
        models = []
        for place in best.tolist():
            row, p = int(rows[place]), None if self.likely is None else float(self.likely[place])
            models.append(
                Near(
                    rank=0,
                    model=view.ids[row],
                    base=view.base,
                    probability=p,
                    verdict="no model stands out" if p is None or p < LONE_BOUND else "perhaps",
                    z=float(z[place]),
                    fdr=None,
                    cosine=float(np.clip(cosines[place], -1.0, 1.0)),
                    score=float(bounded(z[place : place + 1])[0]),
                    dataset=labels[row].dataset,
                    author=labels[row].author,
                    run=labels[row].run,
                )
            )
        return models


def ranked_across(found: list[Near], k: int) -> list[Near]:
    """The likeliest of all bases, those of unknown probability last, with rates of false
    discoveries down to each."""

    def key(model: Near) -> tuple[bool, float, str, str]:
        known = model.probability
        value = model.z if known is None else known
        return known is None, -round(value, TIE_DECIMALS), model.base, model.model

    chosen, wrong, fdr = [], 0.0, 0.0
    for rank, model in enumerate(sorted(found, key=key)[:k], start=1):
        rate = None
        if model.probability is not None:
            wrong += 1.0 - model.probability
            rate = fdr = max(fdr, wrong / rank)
        chosen.append(replace(model, rank=rank, fdr=rate))
    return chosen
