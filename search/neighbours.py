"""The nearest fine-tunes of a model, stored or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np

from ..arrays import Float32, Float64, Int64
from ..errors import EmptyCatalog, RequestError, StoreDamaged, UnknownRecipe
from ..records import Fingerprint, Recipe, SlotStats
from ..store import (
    Catalog,
    FamilyView,
    Filters,
    Label,
    SketchMatrix,
    Stored,
    block_dims,
)
from .labelled import TIE_DECIMALS
from .pooled_means import PooledMeans
from .scoring.cohort import KindCodes
from .scoring.evidence import Calibration, Verdict, verdict
from .scoring.family_scores import FamilyScores
from .scoring.normalisation import PairScores, bounded
from .scoring.vector_scores import VectorScores

SKETCH_FILE_MIN_MODELS = 1_000
"""Models of a family whose sketches are worth a file beside the catalog."""

COMPARED_WHOLE = 256
"""Models of a family up to which all are scored; of a larger one, the best by pooled vectors."""

CANDIDATES = 128
"""How many of these: one bit a number holds the ten nearest among them."""

VECTOR_CANDIDATES = 256
"""How many where vectors are all there is: they cost little."""

NAMES_SHOWN = 3
"""Models that an error names."""

EVERY_MODEL = Filters()


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
        cosine: Of the two updates, over slots and kinds of features, −1…1: 1 for copies.
        score: What ranks: z, bounded to −1…1; a family's strangers are around 0.
        z: Standard deviations above the family's strangers.
        fdr: Share of such answers that are expected to be wrong, 0…1.
        verdict: The same in words.
        source: The attached index that the model is of; None for one of the catalog.
    """

    rank: int
    model: str
    cosine: float
    score: float
    z: float
    fdr: float
    verdict: Verdict
    dataset: str | None
    author: str | None
    run: str | None
    base: str
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The neighbours of a query, nearest first; equal scores in order of id.

    Attributes:
        compared: Models that the query was compared with, these among them.
        calibration: What the rates of false discoveries are known from; with attached indexes, the
            catalog's, or the first index's.
        attached: Names of the indexes that were searched beside the catalog.
    """

    model: str
    dataset: str | None
    base: str
    recipe: Recipe
    neighbours: tuple[Neighbour, ...]
    compared: int
    calibration: Calibration
    attached: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Of the nearest model."""
        return self.neighbours[0].verdict if self.neighbours else "no model stands out"

    def to_json(self) -> dict[str, object]:
        """The documented keys, ready for json.dumps."""
        return {
            "query": {"model": self.model, "dataset": self.dataset, "base": self.base},
            "recipe": self.recipe.name,
            "recipe_id": self.recipe.id,
            "verdict": self.verdict,
            "compared": self.compared,
            "attached": list(self.attached),
            "calibration": self.calibration.to_json(),
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


@runtime_checkable
class Search(Protocol):
    """What answers a resolved query, as `nearest` does."""

    def __call__(
        self, view: FamilyView, query: ResolvedQuery, *, k: int, wanted: Filters
    ) -> Neighbours: ...


def find_similar(
    catalog: Catalog,
    query: Query,
    filters: Filters = EVERY_MODEL,
    *,
    k: int,
    recipe: str | None = None,
    base: str | None = None,
    search: Search | None = None,
) -> Neighbours:
    """The `k` nearest of the query's family that pass every filter, at one moment.

    Args:
        recipe: By name or id; by default the one that most of the family's models have.
        base: Which family, where several have a model of that id.
        search: Finds them for the resolved query; by default among the family's models alone.

    Raises:
        RequestError: k < 1, or the query has no vector to search with; an unknown model or
            recipe, a bad filter and an empty catalog raise its subclasses.
    """
    if k < 1:
        raise RequestError(f"k must be at least 1, got {k}")

    def answer() -> Neighbours:
        view, resolved = resolve(catalog, query, recipe, base)
        return (search or nearest)(view, resolved, k=k, wanted=filters)

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
        view, stored = _found(catalog, query.model, query.base or base, recipe)
        return view, _stored_query(catalog, view, stored)
    made_by = query.fingerprint.recipe
    if recipe not in (None, made_by.name, made_by.id):
        raise RequestError(f"{query.model} was fingerprinted under {made_by.name}, not {recipe}")
    sketches = {}
    if block_dims(made_by):
        sketches = {s.slot: s.sketch for s in query.slots if s.sketch}
    return catalog.family(query.base, made_by), ResolvedQuery(
        model=query.model,
        dataset=query.dataset,
        kind=query.kind,
        vector=query.fingerprint.vector,
        itself=None,
        sketches=SketchMatrix.of_model(sketches, made_by) if sketches else None,
    )


def _found(
    catalog: Catalog, id: str, base: str | None, recipe: str | None
) -> tuple[FamilyView, Stored]:
    """A stored model and its family: from memory where the family is known, else by statements."""
    bases = catalog.bases()
    family = bases[0] if base is None and len(bases) == 1 else base
    if family in bases and catalog.recipes_of(family):
        with suppress(UnknownRecipe):
            view = catalog.family(family, catalog.find_recipe(recipe, family))
            if (known := view.stored(id)) is not None:
                return view, known
    stored = catalog.stored(id, base)
    return catalog.family(stored.base, catalog.find_recipe(recipe, stored.base)), stored


def _stored_query(catalog: Catalog, view: FamilyView, stored: Stored) -> ResolvedQuery:
    keys = np.array([stored.key], dtype=np.int64)
    rows = view.rows([stored.id])
    try:
        is_here = len(rows) == 1 and view.keys[rows[0]] == stored.key
        (vector,) = view.vectors_at(rows) if is_here else view.vectors(keys)
    except KeyError:
        recipe, others = view.recipe, catalog.model(stored.id, stored.base).recipes
        raise UnknownRecipe(
            f"{stored.id} has no {recipe.name} fingerprint ({recipe.id}), only "
            f"{', '.join(others) or 'none'}: name one of those as the recipe"
        ) from None
    sketches = view.sketches(keys) if FamilyScores.of(view) is not None else None
    return ResolvedQuery(
        model=stored.id,
        dataset=stored.dataset,
        kind=stored.kind,
        vector=vector,
        itself=stored.id,
        sketches=sketches if sketches is not None and sketches.has_sketches[0] else None,
    )


def pair_cosine(catalog: Catalog, first: str, second: str, base: str) -> float | None:
    """The `cosine` of two stored models of a family; None where they share no default recipe."""
    try:
        view, query = resolve(catalog, StoredQuery(first, base), None, base)
    except UnknownRecipe:
        return None
    (itself,), rows = view.rows([first]), view.rows([second])
    if not len(rows):
        return None
    scores, _ = _scored(view, query, int(itself), rows)
    return float(np.clip(scores.cosines[0, 0], -1.0, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankedModels:
    """The models of a family that were scored, nearest first.

    Attributes:
        rows: Of the models.
        compared: Models that the query was compared with, these among them.
    """

    rows: Int64[np.ndarray, " models"]
    cosines: Float64[np.ndarray, " models"]
    z: Float64[np.ndarray, " models"]
    compared: int
    calibration: Calibration


def rank_family(view: FamilyView, query: ResolvedQuery, k: int, wanted: Filters) -> RankedModels:
    """At least the `k` nearest of a family that pass a filter, or all if fewer do.

    Raises:
        BadFilter: the filter's condition is not understood.
    """
    itself = -1 if query.itself is None else int(view.rows([query.itself])[0])
    allowed = None if wanted.passes_all else view.rows_where(wanted)
    rows = candidates_of(view, query, k, allowed)
    if not view.is_current:
        rows = np.array(sorted(view.labels_at(rows.tolist())), np.int64)
    rows = rows[rows != itself]
    scores, calibration = _scored(view, query, itself, rows)
    check_finite(view, rows, scores.z[0])
    compared = len(view) if allowed is None else len(allowed)
    compared -= itself >= 0 and (allowed is None or itself in allowed)
    order = rank_rows(view.ids, rows, scores.z[0])
    return RankedModels(
        rows=rows[order],
        cosines=scores.cosines[0, order],
        z=scores.z[0, order],
        compared=compared,
        calibration=calibration,
    )


def nearest(
    view: FamilyView, query: ResolvedQuery, *, k: int, wanted: Filters = EVERY_MODEL
) -> Neighbours:
    """The `k` nearest of a family that pass a filter, or all if fewer do.

    Raises:
        EmptyCatalog: the family is empty.
        BadFilter: the filter's condition is not understood.
    """
    if not len(view):
        raise EmptyCatalog(f"no model of {view.base} has a {view.recipe.name} fingerprint")
    ranked = rank_family(view, query, k, wanted)
    rates = ranked.calibration.fdr(ranked.z, ranked.compared, ranked.cosines)
    return Neighbours(
        model=query.model,
        dataset=query.dataset,
        base=view.base,
        recipe=view.recipe,
        compared=ranked.compared,
        calibration=ranked.calibration,
        neighbours=tuple(
            replace(neighbour, rank=rank, fdr=rate, verdict=verdict(neighbour.cosine, rate))
            for rank, (neighbour, rate) in enumerate(
                zip(best_of(view, ranked, k), rates.tolist(), strict=False), start=1
            )
        ),
    )


def best_of(view: FamilyView, ranked: RankedModels, k: int) -> list[Neighbour]:
    """The first `k` of a family's ranked models; their ranks and rates are still to be known."""
    best = ranked.rows[:k].tolist()
    labels = view.labels_at(best)
    return [
        make_neighbour(view.ids[row], view.base, labels[row], cosine=cosine, z=z)
        for row, cosine, z in zip(
            best, ranked.cosines[:k].tolist(), ranked.z[:k].tolist(), strict=True
        )
    ]


def check_finite(
    view: FamilyView, rows: Int64[np.ndarray, " rows"], scores: Float64[np.ndarray, " rows"]
) -> None:
    """Refuse scores that are not numbers, which would leave models out of an answer.

    Raises:
        StoreDamaged: some are not, of models at these rows.
    """
    wrong = rows[~np.isfinite(scores)].tolist()
    if wrong:
        names = ", ".join(view.ids[row] for row in wrong[:NAMES_SHOWN])
        raise StoreDamaged(
            f"{len(wrong)} models have scores that are not numbers ({names}): their fingerprints, "
            f"or those of other models of {view.base}, are damaged; `deltadex doctor` names them"
        )


def _scored(
    view: FamilyView, query: ResolvedQuery, itself: int, rows: Int64[np.ndarray, " rows"]
) -> tuple[PairScores, Calibration]:
    """The query with some models: by sketches, or by vectors where there are none."""
    family = FamilyScores.of(view) if query.sketches is not None else None
    if family is not None and query.sketches is not None:
        asked = family.prepare(query.sketches, [query.kind], [itself])
        pairs = family.compare(asked, family.stored(view, rows))
        return pairs, family.evidence.calibration(view)
    vectors = VectorScores.of(view)
    vector = vectors.prepare(query.vector[None, :], [query.kind])
    return vectors.search(view, vector, rows), vectors.evidence.calibration(view)


def make_neighbour(
    model: str, base: str, label: Label, *, cosine: float, z: float, source: str | None = None
) -> Neighbour:
    """A neighbour whose rank, rate and verdict are still to be known."""
    return Neighbour(
        rank=0,
        model=model,
        base=base,
        cosine=min(1.0, max(-1.0, cosine)),
        score=float(bounded(np.array([z]))[0]),
        z=z,
        fdr=1.0,
        verdict="no model stands out",
        dataset=label.dataset,
        author=label.author,
        run=label.run,
        source=source,
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
            if block_dims(recipe) and len(view) >= SKETCH_FILE_MIN_MODELS:
                view.write_sketch_file(goes_on)
        finally:
            _ = view.index, view.labels, FamilyScores.of(view) or VectorScores.of(view)

    catalog.family(base, recipe, prepare=prepare)


def candidates_of(
    view: FamilyView,
    query: ResolvedQuery,
    k: int,
    allowed: Int64[np.ndarray, " allowed"] | None,
) -> Int64[np.ndarray, " candidates"]:
    """The rows to score: all that are allowed of a small family, else the best of each kind by
    pooled vectors."""
    if (len(view) if allowed is None else len(allowed)) <= max(COMPARED_WHOLE, k):
        return np.arange(len(view)) if allowed is None else allowed
    centred = PooledMeans.of(view).centred([query.kind], query.vector[None, :])[0]
    n = max(2 * k, CANDIDATES if query.sketches is not None else VECTOR_CANDIDATES)
    single = centred.astype(np.float32)
    rows = [view.candidates(single, n, of_kind) for of_kind in _by_kind(view, allowed)]
    return np.unique(np.concatenate(rows))


def _by_kind(
    view: FamilyView, allowed: Int64[np.ndarray, " allowed"] | None
) -> list[Int64[np.ndarray, " rows"] | None]:
    """The rows that are allowed, kind by kind, since a kind's mean shifts all of its scores alike;
    None for all, of one kind or of a large family."""
    if allowed is None:
        if not view.index.is_exact or len(KindCodes.of(view).names) <= 1:
            return [None]
        allowed = np.arange(len(view))
    kinds = KindCodes.of(view).codes[allowed]
    return [allowed[kinds == kind] for kind in np.unique(kinds)]


def rank_rows(
    ids: Sequence[str], rows: Int64[np.ndarray, " models"], scores: Float64[np.ndarray, " models"]
) -> Int64[np.ndarray, " models"]:
    """Places of some of a family's models, the best first; equal scores in order of id."""
    falling = -np.round(scores, TIE_DECIMALS)
    order: Int64[np.ndarray, " models"] = np.argsort(falling, kind="stable")
    is_tie = np.diff(falling[order]) == 0
    if is_tie.any():
        starts = np.flatnonzero(np.concatenate([[True], ~is_tie]))
        for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
            if stop - start > 1:
                order[start:stop] = sorted(order[start:stop], key=lambda i: ids[int(rows[i])])
    return order
