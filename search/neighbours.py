"""The nearest fine-tunes of a model, stored or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ..arrays import Float32, Float64, Int64
from ..errors import EmptyCatalog, HolderLost, RequestError, UnknownRecipe
from ..records import Fingerprint, Recipe, SlotStats
from ..store import NO_LENGTH, RESCORED, Catalog, Labelled, SketchMatrix, VectorIndex
from .means import family_means
from .precision import TIE_DECIMALS
from .refine import CANDIDATES, ROUGHNESS, Candidates, SketchMeans, has_sketches
from .standard_error import StandardErrors


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
        kind: `full` or `adapter`: whose mean is taken out.
        slots: With their sketches scores are finer, and can be explained.
    """

    model: str
    base: str
    fingerprint: Fingerprint
    kind: str = "full"
    dataset: str | None = None
    slots: tuple[SlotStats, ...] = ()


AT_HAND_FROM = 1_000
"""Models of a family whose sketches are worth a file beside the catalog."""

MAYBE_GONE = 8
"""Answers to spare: an index that was not caught up may name models that are gone."""

TRIES = 3
"""Answers that are made while the catalog changes under them, which may leave a model out, or
while its holder ends."""

Query = StoredQuery | FreshQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """One answer.

    Attributes:
        rank: From 1.
        score: Cosine of the fingerprints, centred where the recipe is, −1…1.
        score_se: Standard error of the score as an estimate of the recipe's kernel;
            0 for recipes without random features.
        cosine: The same before any mean is taken out: near 1 for copies, whatever their kind.
    """

    rank: int
    model: str
    base: str
    score: float
    score_se: float
    cosine: float
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
                    "cosine": one.cosine,
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
    """A query with everything resolved. A stored one leaves itself out of its answer.

    Attributes:
        sketches: One row; None where it has none.
    """

    model: str
    dataset: str | None
    base: str
    kind: str
    recipe: Recipe
    vector: Float32[np.ndarray, " dim"]
    itself: str | None
    sketches: SketchMatrix | None


@dataclass(frozen=True, slots=True)
class _Scored:
    """One of the nearest: centred cosine, its standard error, plain cosine."""

    model: str
    score: float
    error: float
    cosine: float


@dataclass(frozen=True, slots=True)
class Filters:
    """Which models are wanted as neighbours."""

    dataset: str | None = None
    author: str | None = None
    where: str | None = None


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

    for n_left in reversed(range(TRIES)):
        before = catalog.changes
        try:
            asked = _resolve(catalog, query, recipe, base)
            found = _nearest(catalog, asked, k, Filters(dataset, author, where))
        except HolderLost:
            if not n_left:
                raise
            continue
        if not catalog.waits_for_index or catalog.changes == before:
            break
    return found


def prepare_search(
    catalog: Catalog, base: str, recipe: Recipe, *, goes_on: Callable[[], bool] = lambda: True
) -> None:
    """Do now what the first search after a change would wait for.

    Args:
        goes_on: Asked now and then, where much is to be written.

    Raises:
        StoreFull: there is no room for the sketches; searches read the catalog then.
    """
    kept = catalog.family_vectors(base, recipe)
    try:
        if has_sketches(recipe) and kept.count() >= AT_HAND_FROM:
            kept.keep_sketches_at_hand(goes_on)
    finally:
        VectorIndex.open(
            catalog,
            base,
            recipe,
            prepare=lambda index: family_means(catalog, base, recipe, index),
        )


def _nearest(catalog: Catalog, asked: _Asked, k: int, filters: Filters) -> Neighbours:
    index = VectorIndex.open(catalog, asked.base, asked.recipe)
    if not len(index):
        raise EmptyCatalog(f"no model of {asked.base} has a {asked.recipe.name} fingerprint")
    with catalog.snapshot():
        allowed = None
        if filters != Filters():
            passed = catalog.models(base=asked.base, **asdict(filters))
            allowed = [row.id for row in passed]
        scored, known = _best(catalog, asked, index, k, allowed)
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
        query.model,
        query.dataset,
        query.base,
        query.kind,
        made.recipe,
        made.vector,
        None,
        _sketches_of(query),
    )


def _sketches_of(query: FreshQuery) -> SketchMatrix | None:
    sketches = {s.slot: s.sketch for s in query.slots if s.sketch.size}
    return SketchMatrix.of_model(sketches) if sketches else None


def _resolve_stored(
    catalog: Catalog, query: StoredQuery, recipe: str | None, base: str | None
) -> _Asked:
    model = catalog.stored(query.model, query.base or base)
    chosen = catalog.find_recipe(recipe, model.base)
    kept = catalog.family_vectors(model.base, chosen)
    _, vectors = kept.of(np.array([model.key], dtype=np.int64))
    if not len(vectors):
        others = catalog.model(model.id, model.base).recipes
        raise UnknownRecipe(
            f"{model.id} has no {chosen.name} fingerprint ({chosen.id}), only "
            f"{', '.join(others) or 'none'}: name one of those as the recipe"
        )
    sketches = kept.sketches([model.key]) if has_sketches(chosen) else None
    if sketches is not None and sketches.lengths[0] == NO_LENGTH:
        sketches = None
    return _Asked(
        model.id, model.dataset, model.base, model.kind, chosen, vectors[0], model.id, sketches
    )


def _best(
    catalog: Catalog, asked: _Asked, index: VectorIndex, k: int, allowed: list[str] | None
) -> tuple[list[_Scored], dict[str, Labelled]]:
    """The `k` nearest, best first, and what is known of them.

    Candidates by their pooled vectors, each kind for itself, since its mean shifts all of its
    scores alike; then scored from their sketches, where there are any.
    """
    means = family_means(catalog, asked.base, asked.recipe, index)
    vector = means.pooled.centred([asked.kind], asked.vector[None, :])
    query_vector = vector[0].astype(np.float32)
    sketches = asked.sketches if has_sketches(asked.recipe) else None
    n_candidates = max(2 * k, RESCORED if sketches is None else CANDIDATES)
    found = {
        name
        for names in index.by_kind(allowed)
        for name in index.shortlist(query_vector, n_candidates, allowed=names)
    }
    names = sorted(found - {asked.itself})
    if names and sketches is not None:
        return _best_in_detail(catalog, asked, index, k, names, means.sketches, sketches)
    known = catalog.labels_of(index.keys_of(names))
    names = [name for name in names if name in known]
    vectors = index.vectors_of(names)
    centred_vectors = means.pooled.centred(index.kinds_of(names), vectors)
    scores = centred_vectors @ vector[0]
    rows = _ranked(names, scores)[:k]
    errors = np.zeros(len(rows))
    if has_sketches(asked.recipe):
        errors_of = StandardErrors(vector[0])
        errors = np.array([errors_of.cosine(centred_vectors[row])[1] for row in rows])
    plain = vectors[rows].astype(np.float64) @ asked.vector.astype(np.float64)
    scored = [
        _Scored(names[row], *map(float, numbers))
        for row, *numbers in zip(rows, scores[rows], errors, plain, strict=True)
    ]
    return scored, known


def _best_in_detail(
    catalog: Catalog,
    asked: _Asked,
    index: VectorIndex,
    k: int,
    names: Sequence[str],
    means: SketchMeans,
    sketches: SketchMatrix,
) -> tuple[list[_Scored], dict[str, Labelled]]:
    """The `k` nearest of some models by their sketches, and what is known of them.

    All are scored roughly; exactly those that may be among the best.
    """
    keys, kinds = index.keys_of(names), index.kinds_of(names)
    matrix = catalog.family_vectors(asked.base, asked.recipe).sketches(keys)
    candidates = Candidates(matrix, kinds, means, sketches, asked.kind)
    rough = candidates.rough()
    # an index that was not caught up may name models that are gone
    known = catalog.labels_of([keys[row] for row in _likely(rough, k + MAYBE_GONE)])
    there = np.array([row for row, name in enumerate(names) if name in known], dtype=np.int64)
    rows = there[_likely(rough[there], k)].tolist()
    exact = candidates.exact(rows)
    order = _ranked([names[row] for row in rows], exact.scores)[:k]
    scored = [
        _Scored(
            names[rows[i]], float(exact.scores[i]), float(exact.errors[i]), float(exact.cosines[i])
        )
        for i in order
    ]
    return scored, known


def _likely(rough: Float64[np.ndarray, " models"], n: int) -> Int64[np.ndarray, " likely"]:
    """The rows among which the `n` best are, in order: those, and what is as good but for
    roughness."""
    if not len(rough):
        return np.zeros(0, dtype=np.int64)
    last = np.sort(rough)[-min(n, len(rough))]
    return np.flatnonzero(rough >= last - ROUGHNESS)


def _ranked(
    names: Sequence[str], scores: Float64[np.ndarray, " models"]
) -> Int64[np.ndarray, " models"]:
    """Rows, the best first; equal scores in order of id."""
    keys = sorted(
        range(len(names)), key=lambda i: (-round(float(scores[i]), TIE_DECIMALS), names[i])
    )
    return np.array(keys, dtype=np.int64)


def _answers(scored: Sequence[_Scored], known: Mapping[str, Labelled]) -> tuple[Neighbour, ...]:
    """What is known of each found model, its score clipped to the range of a cosine."""
    return tuple(
        Neighbour(
            rank=rank,
            model=one.model,
            base=known[one.model].base,
            score=min(1.0, max(-1.0, one.score)),
            score_se=one.error,
            cosine=min(1.0, max(-1.0, one.cosine)),
            dataset=known[one.model].dataset,
            author=known[one.model].author,
            run=known[one.model].run,
        )
        for rank, one in enumerate(scored, start=1)
    )
