"""The nearest fine-tunes of a model, stored or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ..arrays import Float32, Float64, Int64
from ..errors import EmptyCatalog, RequestError, UnknownRecipe
from ..records import Fingerprint, Recipe, SlotStats
from ..store import NO_LENGTH, Catalog, FamilyView, Label, ModelFilter, SketchMatrix, Stored
from .labelled import TIE_DECIMALS
from .sketch_scores import (
    CANDIDATES,
    ROUGHNESS,
    Candidates,
    StandardErrors,
    has_sketches,
    kind_means,
)

SKETCH_FILE_MIN_MODELS = 1_000
"""Models of a family whose sketches are worth a file beside the catalog."""

POOLED_CANDIDATES = 28
"""Candidates of a recipe without sketches: four bits a number hold the ten nearest among them."""

SPARE = 8
"""Candidates beyond k: a view that was not caught up may name models that were removed."""

EVERY_MODEL = ModelFilter()


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


Query = StoredQuery | FreshQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A model near the query.

    Attributes:
        rank: From 1.
        score: Cosine of the fingerprints, centred where the recipe is, −1…1.
        score_se: Standard error of the score as an estimate of the recipe's kernel;
            0 for recipes without random features.
        cosine: The same before any mean is taken out: near 1 for copies, whatever their kind.
    """

    rank: int
    model: str
    score: float
    score_se: float
    cosine: float
    dataset: str | None
    author: str | None
    run: str | None
    base: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The neighbours of a query, nearest first; equal scores in order of id."""

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
            "neighbours": [asdict(neighbour) for neighbour in self.neighbours],
        }


@dataclass(frozen=True, slots=True)
class ResolvedQuery:
    """A query with everything that a search needs of it.

    Attributes:
        itself: The stored model that is left out of its own answer.
        sketches: One row; None where it has none.
    """

    model: str
    dataset: str | None
    kind: str
    vector: Float32[np.ndarray, " dim"]
    itself: str | None
    sketches: SketchMatrix | None


@dataclass(frozen=True, slots=True)
class _Scored:
    """A row and its label, with its centred cosine, the standard error of that, and its plain
    cosine."""

    row: int
    label: Label
    score: float
    error: float
    cosine: float


def find_similar(
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
    """The `k` nearest of the query's family that pass every filter, at one moment.

    Args:
        recipe: By name or id; by default the one that most of the family's models have.
        base: Which family, where several have a model of that id.

    Raises:
        RequestError: k < 1, or the query has no vector to search with; an unknown model or
            recipe, a bad filter and an empty catalog raise its subclasses.
    """
    if k < 1:
        raise RequestError(f"k must be at least 1, got {k}")
    wanted = ModelFilter(dataset=dataset, author=author, where=where)

    def answer() -> Neighbours:
        view, resolved = resolve(catalog, query, recipe, base)
        return nearest(view, resolved, k=k, wanted=wanted)

    return catalog.look(answer)


def resolve(
    catalog: Catalog, query: Query, recipe: str | None, base: str | None
) -> tuple[FamilyView, ResolvedQuery]:
    """The family that a query searches, and the data that a search needs of the query.

    Raises:
        RequestError: the query has no vector to search with; an unknown model or recipe raises
            its subclass.
    """
    if isinstance(query, StoredQuery):
        stored = catalog.stored(query.model, query.base or base)
        view = catalog.family(stored.base, catalog.find_recipe(recipe, stored.base))
        return view, _stored_query(catalog, view, stored)
    made_by = query.fingerprint.recipe
    if recipe not in (None, made_by.name, made_by.id):
        raise RequestError(f"{query.model} was fingerprinted under {made_by.name}, not {recipe}")
    sketches = {s.slot: s.sketch for s in query.slots if s.sketch.size}
    return catalog.family(query.base, made_by), ResolvedQuery(
        model=query.model,
        dataset=query.dataset,
        kind=query.kind,
        vector=query.fingerprint.vector,
        itself=None,
        sketches=SketchMatrix.of_model(sketches) if sketches else None,
    )


def _stored_query(catalog: Catalog, view: FamilyView, stored: Stored) -> ResolvedQuery:
    keys = np.array([stored.key], dtype=np.int64)
    try:
        (vector,) = view.vectors(keys)
    except KeyError:
        recipe, others = view.recipe, catalog.model(stored.id, stored.base).recipes
        raise UnknownRecipe(
            f"{stored.id} has no {recipe.name} fingerprint ({recipe.id}), only "
            f"{', '.join(others) or 'none'}: name one of those as the recipe"
        ) from None
    sketches = view.sketches(keys) if has_sketches(view.recipe) else None
    return ResolvedQuery(
        model=stored.id,
        dataset=stored.dataset,
        kind=stored.kind,
        vector=vector,
        itself=stored.id,
        sketches=None if sketches is None or sketches.lengths[0] == NO_LENGTH else sketches,
    )


def nearest(
    view: FamilyView, query: ResolvedQuery, *, k: int, wanted: ModelFilter = EVERY_MODEL
) -> Neighbours:
    """The `k` nearest of a family that pass a filter, or all if fewer do.

    Raises:
        EmptyCatalog: the family is empty.
        BadFilter: the filter's condition is not understood.
    """
    if not len(view):
        raise EmptyCatalog(f"no model of {view.base} has a {view.recipe.name} fingerprint")
    allowed = None if wanted == EVERY_MODEL else view.rows_where(wanted)
    scored = _best(view, query, k, allowed)
    return Neighbours(
        model=query.model,
        dataset=query.dataset,
        base=view.base,
        recipe=view.recipe,
        neighbours=tuple(
            Neighbour(
                rank=rank,
                model=view.ids[best.row],
                base=view.base,
                score=min(1.0, max(-1.0, best.score)),
                score_se=best.error,
                cosine=min(1.0, max(-1.0, best.cosine)),
                dataset=best.label.dataset,
                author=best.label.author,
                run=best.label.run,
            )
            for rank, best in enumerate(scored, start=1)
        ),
    )


def prepare_search(
    catalog: Catalog, base: str, recipe: Recipe, *, goes_on: Callable[[], bool] = lambda: True
) -> None:
    """Derive now what the first search after a change needs.

    Args:
        goes_on: Called before each part of the sketch file; False stops the writing.

    Raises:
        StoreFull: the disk has no space for the sketches; searches then read the catalog.
    """

    def prepare(view: FamilyView) -> None:
        try:
            if has_sketches(recipe) and len(view) >= SKETCH_FILE_MIN_MODELS:
                view.write_sketch_file(goes_on)
        finally:
            _ = view.index, view.labels, kind_means(view)

    catalog.family(base, recipe, prepare=prepare)


def _best(
    view: FamilyView, query: ResolvedQuery, k: int, allowed: Int64[np.ndarray, " allowed"] | None
) -> list[_Scored]:
    """The `k` nearest, best first.

    Candidates by their pooled vectors, each kind for itself, since its mean shifts all of its
    scores alike; then scored from their sketches, where there are any.
    """
    centred = kind_means(view).pooled.centred([query.kind], query.vector[None, :])[0]
    sketches = query.sketches if has_sketches(view.recipe) else None
    n_candidates = max(2 * k, POOLED_CANDIDATES if sketches is None else CANDIDATES)
    single = centred.astype(np.float32)
    rows = [view.candidates(single, n_candidates, of_kind) for of_kind in _by_kind(view, allowed)]
    candidates = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *rows]))
    if query.itself is not None:
        candidates = np.setdiff1d(candidates, view.rows([query.itself]))
    if len(candidates) and sketches is not None:
        return _best_by_sketches(view, query, k, candidates, sketches)
    return _best_by_vectors(view, query, k, candidates, centred)


def _by_kind(
    view: FamilyView, allowed: Int64[np.ndarray, " allowed"] | None
) -> list[Int64[np.ndarray, " rows"] | None]:
    """The rows that are allowed, kind by kind; None for all, of one kind or of a large family."""
    if allowed is None:
        if not view.index.is_exact or len(set(view.kinds)) <= 1:
            return [None]
        allowed = np.arange(len(view))
    kinds = np.array([view.kinds[row] for row in allowed.tolist()])
    return [allowed[kinds == kind] for kind in np.unique(kinds)]


def _best_by_vectors(
    view: FamilyView,
    query: ResolvedQuery,
    k: int,
    candidates: Int64[np.ndarray, " candidates"],
    centred: Float64[np.ndarray, " dim"],
) -> list[_Scored]:
    """The `k` nearest of some models by their pooled vectors."""
    labels = view.labels_at(candidates.tolist())
    rows = list(labels)
    vectors = view.vectors(view.keys[rows])
    centred_vectors = kind_means(view).pooled.centred([view.kinds[row] for row in rows], vectors)
    scores = centred_vectors @ centred
    errors_of = StandardErrors(centred) if has_sketches(view.recipe) else None
    plain = query.vector.astype(np.float64)
    return [
        _Scored(
            row=rows[i],
            label=labels[rows[i]],
            score=float(scores[i]),
            error=errors_of.cosine(centred_vectors[i])[1] if errors_of else 0.0,
            cosine=float(vectors[i].astype(np.float64) @ plain),
        )
        for i in _ranked([view.ids[row] for row in rows], scores)[:k]
    ]


def _best_by_sketches(
    view: FamilyView,
    query: ResolvedQuery,
    k: int,
    candidates: Int64[np.ndarray, " candidates"],
    sketches: SketchMatrix,
) -> list[_Scored]:
    """The `k` nearest of some models by their sketches.

    All are scored roughly; exactly those that may be among the best.
    """
    kinds = [view.kinds[row] for row in candidates.tolist()]
    matrix = view.sketches(view.keys[candidates])
    scorer = Candidates(matrix, kinds, kind_means(view).sketches, sketches, query.kind)
    rough = scorer.rough()
    likely = _likely(rough, k + SPARE)
    labels = view.labels_at(candidates[likely].tolist())
    present = np.array([i for i in likely.tolist() if int(candidates[i]) in labels], dtype=np.int64)
    chosen = present[_likely(rough[present], k)]
    exact, rows = scorer.exact(chosen.tolist()), candidates[chosen].tolist()
    return [
        _Scored(
            row=rows[i],
            label=labels[rows[i]],
            score=float(exact.scores[i]),
            error=float(exact.errors[i]),
            cosine=float(exact.cosines[i]),
        )
        for i in _ranked([view.ids[row] for row in rows], exact.scores)[:k]
    ]


def _likely(rough: Float64[np.ndarray, " models"], n: int) -> Int64[np.ndarray, " likely"]:
    """The rows among which the `n` best are, in order: those, and what is as good but for
    roughness."""
    if not len(rough):
        return np.zeros(0, dtype=np.int64)
    last = np.sort(rough)[-min(n, len(rough))]
    return np.flatnonzero(rough >= last - ROUGHNESS)


def _ranked(ids: Sequence[str], scores: Float64[np.ndarray, " models"]) -> list[int]:
    """Places, the best first; equal scores in order of id."""
    return sorted(range(len(ids)), key=lambda i: (-round(float(scores[i]), TIE_DECIMALS), ids[i]))
