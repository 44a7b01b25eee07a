"""The nearest fine-tunes of a model, stored or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from ..errors import EmptyCatalog, RequestError, UnknownRecipe
from ..records import Fingerprint, Recipe, SlotStats
from ..store import Catalog, ModelRow, VectorIndex
from .precision import TIE_DECIMALS
from .refine import CANDIDATES, candidate_scores, has_sketches


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A model of the catalog; `base` decides where several families have that id."""

    model: str
    base: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshQuery:
    """A model that was fingerprinted for this question and is not stored.

    Attributes:
        model: What to call it in the answer.
        slots: With their sketches scores are finer, and can be explained.
    """

    model: str
    base: str
    fingerprint: Fingerprint
    dataset: str | None = None
    slots: tuple[SlotStats, ...] = ()


Query = StoredQuery | FreshQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """One answer.

    Attributes:
        rank: From 1.
        score: Cosine of the fingerprints, −1…1.
        score_se: Standard error of the score as an estimate of the recipe's kernel;
            0 for recipes without random features.
    """

    rank: int
    model: str
    base: str
    score: float
    score_se: float
    dataset: str | None
    author: str | None
    run: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The answers to one query, nearest first; equal scores in order of id."""

    model: str
    dataset: str | None
    base: str
    recipe: Recipe
    neighbours: tuple[Neighbour, ...]

    def to_json(self) -> dict[str, object]:
        """The documented keys, ready for json.dumps."""
        return {
            "query": {"model": self.model, "dataset": self.dataset, "base": self.base},
            "recipe": self.recipe.name,
            "recipe_id": self.recipe.id,
            "neighbours": [
                {
                    "rank": one.rank,
                    "model": one.model,
                    "score": one.score,
                    "score_se": one.score_se,
                    "dataset": one.dataset,
                    "author": one.author,
                    "run": one.run,
                    "base": one.base,
                }
                for one in self.neighbours
            ],
        }


@dataclass(frozen=True, slots=True)
class _Asked:
    """A query with everything resolved. A stored one leaves itself out of its answer."""

    model: str
    dataset: str | None
    base: str
    recipe: Recipe
    vector: Float32[np.ndarray, " dim"]
    itself: str | None
    slots: tuple[SlotStats, ...]


def nearest(
    catalog: Catalog,
    query: Query,
    *,
    k: int,
    dataset: str | None = None,
    author: str | None = None,
    where: str | None = None,
    recipe: str | None = None,
    base: str | None = None,
) -> Neighbours:
    """The `k` nearest of the query's family that pass every filter, or all if fewer do.

    Raises:
        RequestError: k < 1, or the query has no vector to search with; an unknown model or
            recipe, a bad filter and an empty catalog raise its subclasses.
    """
    if k < 1:
        raise RequestError(f"k must be at least 1, got {k}")
    asked = _resolve(catalog, query, recipe, base)
    index = VectorIndex.open(catalog, asked.base, asked.recipe)
    if not len(index):
        raise EmptyCatalog(f"no model of {asked.base} has a {asked.recipe.name} fingerprint")
    rows = catalog.models(
        base=asked.base, status="indexed", dataset=dataset, author=author, where=where
    )
    known = {row.id: row for row in rows if row.id != asked.itself}
    wide = max(k, CANDIDATES)
    (found,) = index.search(asked.vector[None, :], wide, allowed=list(known))
    scored = _score_again(catalog, asked, found)[:k]
    return Neighbours(
        model=asked.model,
        dataset=asked.dataset,
        base=asked.base,
        recipe=asked.recipe,
        neighbours=_answers(scored, known),
    )


def _resolve(catalog: Catalog, query: Query, recipe: str | None, base: str | None) -> _Asked:
    if isinstance(query, StoredQuery):
        return _resolve_stored(catalog, query, recipe, base)
    made = query.fingerprint
    if recipe not in (None, made.recipe.name, made.recipe.id):
        raise RequestError(
            f"{query.model} was fingerprinted under {made.recipe.name}, not {recipe}"
        )
    return _Asked(
        query.model, query.dataset, query.base, made.recipe, made.vector, None, query.slots
    )


def _resolve_stored(
    catalog: Catalog, query: StoredQuery, recipe: str | None, base: str | None
) -> _Asked:
    row = catalog.model(query.model, query.base or base)
    if row.status != "indexed":
        raise RequestError(
            f"{row.id} is not indexed ({row.code}: {row.reason}): "
            "ask for one that `deltadex ls --status indexed` lists"
        )
    chosen = catalog.find_recipe(recipe, row.base)
    _, vectors = catalog.vectors(row.base, chosen, ids=[row.id])
    if not len(vectors):
        raise UnknownRecipe(
            f"{row.id} has no {chosen.name} fingerprint ({chosen.id}), only "
            f"{', '.join(row.recipes) or 'none'}: name one of those as the recipe"
        )
    slots = tuple(catalog.slots(row.base, row.id))
    return _Asked(row.id, row.dataset, row.base, chosen, vectors[0], row.id, slots)


def _score_again(
    catalog: Catalog, asked: _Asked, found: Sequence[tuple[str, float]]
) -> list[tuple[str, float, float]]:
    """(id, score, standard error) of the candidates from their sketches, best first.

    Recipes without sketches keep the score of the search, which is exact: their features
    are not random.
    """
    query = {stats.slot: stats.sketch for stats in asked.slots if stats.sketch.size}
    if not found or not query or not has_sketches(asked.recipe):
        return [(name, score, 0.0) for name, score in found]
    names = sorted(name for name, _ in found)
    scores, errors = candidate_scores(catalog, asked.base, asked.recipe, query, names)
    scored = zip(names, scores.tolist(), errors.tolist(), strict=True)
    return sorted(scored, key=lambda one: (-round(one[1], TIE_DECIMALS), one[0]))


def _answers(
    scored: Sequence[tuple[str, float, float]], known: Mapping[str, ModelRow]
) -> tuple[Neighbour, ...]:
    """What is known of each found model, its score clipped to the range of a cosine."""
    return tuple(
        Neighbour(
            rank=rank,
            model=name,
            base=known[name].base,
            score=min(1.0, max(-1.0, score)),
            score_se=error,
            dataset=known[name].dataset,
            author=known[name].author,
            run=known[name].run,
        )
        for rank, (name, score, error) in enumerate(scored, start=1)
    )
