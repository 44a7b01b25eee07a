"""The nearest fine-tunes of a model, stored or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ..arrays import Float32, Float64, Int64
from ..errors import EmptyCatalog, RequestError, UnknownRecipe
from ..records import Fingerprint, Recipe, Slot, SlotStats
from ..store import Catalog, FamilyView, Label, ModelFilter, SketchMatrix, Stored
from .labelled import TIE_DECIMALS
from .pooled_means import PooledMeans
from .scoring.evidence import Calibration, Verdict, verdict
from .scoring.family_scores import (
    Comparable,
    FamilyScores,
    VectorMatrix,
    bounded,
    has_sketches,
)

SKETCH_FILE_MIN_MODELS = 1_000
"""Models of a family whose sketches are worth a file beside the catalog."""

COMPARED_WHOLE = 256
"""Models of a family up to which all are scored; of a larger one, the best by pooled vectors."""

CANDIDATES = 128
"""How many of these."""

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
        cosine: Of the two updates, over slots and kinds of features, −1…1: 1 for copies.
        score: What ranks: z, bounded to −1…1; a family's strangers are around 0.
        z: Standard deviations above the family's strangers.
        fdr: Share of such answers that are expected to be wrong, 0…1.
        verdict: The same in words.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The neighbours of a query, nearest first; equal scores in order of id.

    Attributes:
        compared: Models that the query was compared with, these among them.
        calibration: What the rates of false discoveries are known from.
    """

    model: str
    dataset: str | None
    base: str
    recipe: Recipe
    neighbours: tuple[Neighbour, ...]
    compared: int
    calibration: Calibration

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
            "calibration": asdict(self.calibration),
            "neighbours": [asdict(neighbour) for neighbour in self.neighbours],
        }


@dataclass(frozen=True, slots=True)
class ResolvedQuery:
    """A query with everything that a search needs of it.

    Attributes:
        itself: The stored model that is left out of its own answer.
        features: One row: its sketches, or its vector where the recipe keeps none.
    """

    model: str
    dataset: str | None
    kind: str
    vector: Float32[np.ndarray, " dim"]
    itself: str | None
    features: Comparable


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
    sketches = {s.slot: s.sketch for s in query.slots if s.sketch}
    return catalog.family(query.base, made_by), ResolvedQuery(
        model=query.model,
        dataset=query.dataset,
        kind=query.kind,
        vector=query.fingerprint.vector,
        itself=None,
        features=_features(made_by, query.fingerprint.vector, sketches),
    )


def _features(
    recipe: Recipe, vector: Float32[np.ndarray, " dim"], sketches: Mapping[Slot, bytes]
) -> Comparable:
    if has_sketches(recipe):
        return SketchMatrix.of_model(sketches, recipe)
    return VectorMatrix(vector[None, :])


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
    return ResolvedQuery(
        model=stored.id,
        dataset=stored.dataset,
        kind=stored.kind,
        vector=vector,
        itself=stored.id,
        features=(
            view.sketches(keys) if has_sketches(view.recipe) else VectorMatrix(vector[None, :])
        ),
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
    allowed = np.arange(len(view)) if wanted == EVERY_MODEL else view.rows_where(wanted)
    if query.itself is not None:
        allowed = np.setdiff1d(allowed, view.rows([query.itself]))
    rows = _candidates(view, query, k, allowed)
    labels = view.labels_at(rows.tolist())
    rows = np.array([row for row in rows.tolist() if row in labels], dtype=np.int64)
    family = FamilyScores.of(view)
    calibration = family.calibration(view)
    itself = -1 if query.itself is None else int(view.rows([query.itself])[0])
    asked = family.prepare(query.features, [query.kind], [itself])
    scores = family.compare(asked, family.stored(view, rows))
    z = scores.z[0]
    order = _ranked([view.ids[row] for row in rows.tolist()], z)
    rates = calibration.fdr(z[order], len(allowed))
    return Neighbours(
        model=query.model,
        dataset=query.dataset,
        base=view.base,
        recipe=view.recipe,
        compared=len(allowed),
        calibration=calibration,
        neighbours=tuple(
            _neighbour(
                view,
                int(rows[place]),
                labels[int(rows[place])],
                rank=rank,
                cosine=float(scores.cosines[0, place]),
                z=float(z[place]),
                fdr=float(rate),
            )
            for rank, (place, rate) in enumerate(zip(order[:k], rates, strict=False), start=1)
        ),
    )


def _neighbour(
    view: FamilyView, row: int, label: Label, *, rank: int, cosine: float, z: float, fdr: float
) -> Neighbour:
    return Neighbour(
        rank=rank,
        model=view.ids[row],
        base=view.base,
        cosine=min(1.0, max(-1.0, cosine)),
        score=float(bounded(np.array([z]))[0]),
        z=z,
        fdr=fdr,
        verdict=verdict(cosine, fdr),
        dataset=label.dataset,
        author=label.author,
        run=label.run,
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
            _ = view.index, view.labels, FamilyScores.of(view)

    catalog.family(base, recipe, prepare=prepare)


def _candidates(
    view: FamilyView, query: ResolvedQuery, k: int, allowed: Int64[np.ndarray, " allowed"]
) -> Int64[np.ndarray, " candidates"]:
    """The rows to score: all that are allowed of a small family, else the best of each kind by
    pooled vectors."""
    if len(allowed) <= max(COMPARED_WHOLE, k):
        return allowed
    pooled = PooledMeans.of(view)
    centred = pooled.centred([query.kind], query.vector[None, :])[0].astype(np.float32)
    n = max(2 * k, CANDIDATES)
    rows = [view.candidates(centred, n, of_kind) for of_kind in _by_kind(view, allowed)]
    return np.intersect1d(np.concatenate(rows), allowed)


def _by_kind(
    view: FamilyView, allowed: Int64[np.ndarray, " allowed"]
) -> list[Int64[np.ndarray, " rows"] | None]:
    """The rows that are allowed, kind by kind; None for all of a large family."""
    if not view.index.is_exact and len(allowed) >= len(view) - 1:
        return [None]
    kinds = np.array([view.kinds[row] for row in allowed.tolist()])
    return [allowed[kinds == kind] for kind in np.unique(kinds)]


def _ranked(ids: Sequence[str], scores: Float64[np.ndarray, " models"]) -> list[int]:
    """Places, the best first; equal scores in order of id."""
    return sorted(range(len(ids)), key=lambda i: (-round(float(scores[i]), TIE_DECIMALS), ids[i]))
