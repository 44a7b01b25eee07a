"""The nearest fine-tunes of a model, and which slots, layers and roles carry a similarity.

An attached index is a family of its own, whose strangers are its models: a z counts the same as in
the catalog, standard deviations above the family's strangers (docs/publishing.md).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from math import fsum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from ..arrays import Float32, Float64, Int64
from ..errors import EmptyCatalog, RequestError, StoreDamaged, UnknownRecipe
from ..records import Fingerprint, Footprint, Recipe, Slot, SlotStats, role_order, stack_order
from ..store import (
    Catalog,
    FamilyView,
    Filters,
    ModelLabel,
    SketchMatrix,
    Stored,
    block_dims,
    compared_as,
    true_cosines,
)
from .evidence import Calibration, LabelledCohort, Numbers, Verdict
from .family_scores import (
    TIE_DECIMALS,
    Codes,
    Cohort,
    FamilyScores,
    PairScores,
    Rows,
    bounded,
    weights_by_kinds,
)
from .labelled import PooledMeans, VectorScores

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    from ..store import AttachedIndex

log = logging.getLogger(__name__)

AnyNear = TypeVar("AnyNear", bound="Near")

EVERY_MODEL = Filters()

SKETCH_FILE_MIN_MODELS = 1_000
"""Models of a family whose sketches are worth a file beside the catalog."""

COMPARED_WHOLE = 256
"""Models of a family up to which all are scored; of a larger one, the best by pooled vectors."""

CANDIDATES = 128
"""How many of these: one bit a number holds the ten nearest among them."""

JUDGED = 128
"""Models of a list whose labels and scores say what the nearest prove."""

VECTOR_CANDIDATES = 256
"""How many where vectors are all there is: they cost little."""

NAMES_SHOWN = 3
FEWEST_OWN = 16
"""Models from which a catalog knows its strangers; fewer are scored as the largest index's."""


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A model of the catalog; `base` decides where several families have that id."""

    model: str
    base: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshQuery:
    """A model that was fingerprinted for this question and is not stored; with sketches in its
    slots scores are finer, and can be explained. Of an attached index they are `published`
    instead. Its kind is `full` or `adapter`."""

    model: str
    base: str
    fingerprint: Fingerprint
    kind: str = "full"
    dataset: str | None = None
    slots: tuple[SlotStats, ...] = ()
    published: SketchMatrix | None = None
    footprint: Footprint | None = None

    @classmethod
    def of_attached(cls, index: AttachedIndex, id: str) -> FreshQuery:
        """A model of an attached index; KeyError where it has none of that id."""
        row = index.row_of[id]
        rows = np.array([row], dtype=np.int64)
        vector, sketches = index.vectors_at(rows)[0], index.sketches_at(rows)
        norm = float(index.models.column("norm")[row].as_py())
        return cls(
            model=id,
            base=index.base,
            fingerprint=Fingerprint(recipe=index.recipe, vector=vector, norm=norm),
            kind=index.kinds[row],
            dataset=index.models.column("dataset")[row].as_py(),
            published=sketches if sketches.has_sketches[0] else None,
        )


Query = StoredQuery | FreshQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """A model near what was asked: a model, a data set's gradient, or a model of another base.

    cosine: over slots and kinds of features of the two updates, or of words, −1…1. score: what
    ranks: z, bounded to −1…1. z: standard deviations above the family's strangers, or among the
    models of another base. probability: that it was trained on the query's data; None where nothing
    is known to calibrate on. fdr: share of all answers down to this one that are expected to be
    wrong.
    """

    rank: int
    model: str
    cosine: float
    score: float
    z: float
    probability: float | None
    fdr: float | None
    verdict: Verdict
    dataset: str | None
    author: str | None
    run: str | None
    base: str

    def to_json(self) -> dict[str, Any]:
        # not `asdict`, which copies every value deeply
        return {column.name: getattr(self, column.name) for column in fields(self)}

    @classmethod
    def of(
        cls: type[AnyNear], model: str, label: ModelLabel, z: float, cosine: float, **more: Any
    ) -> AnyNear:
        """With what follows of z and cosine, and from the label."""
        return cls(
            model=model,
            z=z,
            score=float(bounded(np.array([z]))[0]),
            cosine=min(1.0, max(-1.0, cosine)),
            dataset=label.dataset,
            author=label.author,
            run=label.run,
            **more,
        )


def falling_rates(ranked: Iterable[tuple[float | None, float | None]]) -> list[float | None]:
    """Rates of false discoveries down to each of some ranked models, which never fall, from the
    probability of each and its rate so far: of one of no known probability that rate, if it is
    known."""
    rates: list[float | None] = []
    wrong, least = 0.0, 0.0
    for rank, (probability, own) in enumerate(ranked, start=1):
        if probability is not None:
            wrong += 1.0 - probability
            own = wrong / rank
        least = max(least, own or 0.0)
        rates.append(None if own is None else least)
    return rates


def with_rates(ranked: Sequence[AnyNear]) -> list[AnyNear]:
    """Models of several families by falling probability, with their ranks and `falling_rates`."""
    rates = falling_rates((model.probability, model.fdr) for model in ranked)
    numbered = enumerate(zip(ranked, rates, strict=True), start=1)
    return [replace(model, rank=rank, fdr=rate) for rank, (model, rate) in numbered]


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour(Near):
    """A model near the query; `source` is the attached index that it is of, None for the
    catalog."""

    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The neighbours of a query among `compared` models, nearest first; equal scores in order of
    id.

    With indexes `attached`, the calibration is the catalog's, or the first index's. `suspects` are
    those of the query and its neighbours whose labels contradict the distances.
    """

    model: str
    dataset: str | None
    base: str
    recipe: Recipe
    neighbours: tuple[Neighbour, ...]
    compared: int
    calibration: Calibration
    attached: tuple[str, ...] = ()
    suspects: tuple[Mapping[str, Any], ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Of the nearest model."""
        return self.neighbours[0].verdict if self.neighbours else "no model stands out"

    def to_json(self) -> dict[str, object]:
        return {
            "query": {"model": self.model, "dataset": self.dataset, "base": self.base},
            "recipe": self.recipe.name,
            "recipe_id": self.recipe.id,
            "verdict": self.verdict,
            "compared": self.compared,
            "attached": list(self.attached),
            "calibration": self.calibration.to_json(),
            "neighbours": [neighbour.to_json() for neighbour in self.neighbours],
            "suspects": list(self.suspects),
        }


@dataclass(frozen=True, slots=True)
class ResolvedQuery:
    """A query with everything that a search needs of it; `itself` is left out of its own answer,
    and `near` are the rows to score, where they are known."""

    model: str
    dataset: str | None
    kind: str
    vector: Float32[np.ndarray, " dim"]
    itself: str | None
    sketches: SketchMatrix | None
    footprint: Footprint | None = None
    near: Rows | None = None


def find_similar(
    catalog: Catalog,
    query: Query,
    *,
    k: int,
    filters: Filters = EVERY_MODEL,
    recipe: str | None = None,
    attached: Sequence[AttachedIndex] = (),
) -> Neighbours:
    """The `k` nearest of the query's family that pass the filters, at one moment.

    The recipe, by name or id, is by default the one that most of the family's models have;
    `attached` indexes of the query's base are searched too where their recipe is the same.

    Raises RequestError: k < 1, or the query has no vector to search with; an unknown model or
    recipe, a bad filter and an empty catalog raise its subclasses. BadIndex: an attached index is
    damaged.
    """

    def answer() -> Neighbours:
        view, resolved = resolve(catalog, query, recipe)
        return nearest(view, resolved, k=k, filters=filters, attached=attached)

    return catalog.look(answer)


def find_similar_each(
    catalog: Catalog,
    queries: Sequence[StoredQuery],
    *,
    k: int,
    filters: Filters = EVERY_MODEL,
    recipe: str | None = None,
) -> Iterator[tuple[int, Neighbours | RequestError]]:
    """The answers of `find_similar` to several queries, or why there is none, each with its place
    as soon as it is known. Their candidates are found together; in a snapshot of the caller's, all
    are of one moment."""

    def prepare() -> list[tuple[FamilyView, ResolvedQuery] | RequestError]:
        ready: list[tuple[FamilyView, ResolvedQuery] | RequestError] = []
        groups: dict[tuple[str, str, int], list[int]] = {}
        for place, query in enumerate(queries):
            try:
                view, resolved = resolve(catalog, query, recipe)
            except RequestError as err:
                ready.append(err)
                continue
            ready.append((view, resolved))
            family = view.base, view.recipe.id, _n_candidates(resolved, k)
            if (
                not filters
                and len(view) > max(COMPARED_WHOLE, k)
                and _by_kind(view, None) == [None]
            ):
                groups.setdefault(family, []).append(place)
        for (*_, n), places in groups.items():
            alike = [one for place in places if isinstance(one := ready[place], tuple)]
            view = alike[0][0]
            near = view.candidates_each(_centred(view, [resolved for _, resolved in alike]), n)
            for place, (_, resolved), rows in zip(places, alike, near, strict=True):
                ready[place] = view, replace(resolved, near=np.unique(rows))
        return ready

    for place, one in enumerate(catalog.look(prepare)):
        if isinstance(one, RequestError):
            yield place, one
            continue
        try:
            yield place, catalog.look(partial(nearest, *one, k=k, filters=filters))
        except RequestError as err:
            yield place, err


def resolve(catalog: Catalog, query: Query, recipe: str | None) -> tuple[FamilyView, ResolvedQuery]:
    """The family that a query searches, and the data that a search needs of the query; RequestError
    where it has no vector, UnknownModel and UnknownRecipe as named."""
    if isinstance(query, StoredQuery):
        view, stored = _found(catalog, query.model, query.base, recipe)
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
        kind=compared_as(query.kind, query.slots),
        vector=query.fingerprint.vector,
        itself=None,
        sketches=SketchMatrix.of_rows([sketches], made_by) if sketches else query.published,
        footprint=query.footprint,
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
        kind=view.kinds[rows[0]] if is_here else stored.kind,
        vector=vector,
        itself=stored.id,
        sketches=sketches if sketches is not None and sketches.has_sketches[0] else None,
    )


def pair_cosine(catalog: Catalog, first: str, second: str, base: str) -> float | None:
    """The `cosine` of two stored models of a family; None where they share no default recipe."""
    try:
        view, query = resolve(catalog, StoredQuery(first, base), None)
    except UnknownRecipe:
        return None
    (itself,), rows = view.rows([first]), view.rows([second])
    if not len(rows):
        return None
    scores, _ = _scored(view, query, int(itself), rows, is_here=True)
    return float(np.clip(scores.cosines[0, 0], -1.0, 1.0))


class _Ranked(NamedTuple):
    """What the catalog, or one attached index, has near a query: model, label, cosine and z of the
    best, `JUDGED` or more, their `trusted` labels, and the family's suspects by id."""

    best: Sequence[tuple[str, ModelLabel, float, float]]
    trusted: Sequence[str | None]
    suspects: Mapping[str, Mapping[str, Any]]
    compared: int
    calibration: Calibration
    base: str
    source: str | None = None


def nearest(
    view: FamilyView,
    query: ResolvedQuery,
    *,
    k: int,
    filters: Filters = EVERY_MODEL,
    attached: Sequence[AttachedIndex] = (),
) -> Neighbours:
    """The `k` nearest that pass the filters, or all if fewer do; a model that several places have
    counts once, the catalog's first. Raises EmptyCatalog and BadFilter."""
    indexes = [index for index in attached if index.recipe.id == view.recipe.id]
    for index in attached:
        if index not in indexes:
            log.info("%s is not searched: its recipe is %s", index.name, index.recipe.id)
    if not len(view) and not indexes:
        raise EmptyCatalog(f"no model of {view.base} has a {view.recipe.name} fingerprint")
    parts, largest = [], max(indexes, key=lambda index: index.manifest.models, default=None)
    if len(view):
        few = largest.family if largest is not None and len(view) < FEWEST_OWN else None
        allowed = view.rows_where(filters) if filters else None
        parts.append(_rank(view, query, k, allowed, strangers=few))
    seen = {query.model, *view.ids} if indexes else set()
    for index in indexes:
        allowed = index.family.rows_where(filters)
        allowed = allowed[[index.ids[row] not in seen for row in allowed.tolist()]]
        parts.append(_rank(index.family, query, k, allowed, source=index.name))
        seen.update(index.ids)
    compared = sum(part.compared for part in parts)
    found = [
        (*best, trusted, place)
        for place, part in enumerate(parts)
        for best, trusted in zip(part.best, part.trusted, strict=True)
    ]
    if len(parts) > 1:  # each is in order
        found.sort(key=lambda best: (-round(best[3], TIE_DECIMALS), best[0]))
    z, cosines = np.array([best[3] for best in found]), np.array([best[2] for best in found])
    labels = [best[4] for best in found]
    judgements = [part.calibration.judge(z, labels, cosines, compared) for part in parts]
    neighbours, fdr = [], 0.0
    for place, (model, label, cosine, model_z, _, of) in enumerate(found[:k]):
        part, judged = parts[of], judgements[of]
        fdr = max(fdr, float(judged.fdr[place]))
        neighbours.append(
            Neighbour.of(
                model,
                label,
                model_z,
                cosine,
                rank=place + 1,
                probability=judged.probability(place),
                fdr=fdr,
                verdict=judged.verdicts[place],
                base=part.base,
                source=part.source,
            )
        )
    suspects = {id: one for part in reversed(parts) for id, one in part.suspects.items()}
    shown = [query.itself, *(neighbour.model for neighbour in neighbours)]
    return Neighbours(
        model=query.model,
        dataset=query.dataset,
        base=view.base,
        recipe=view.recipe,
        suspects=tuple(suspects[id] for id in shown if id in suspects),
        neighbours=tuple(neighbours),
        compared=compared,
        calibration=parts[0].calibration,
        attached=tuple(index.name for index in indexes),
    )


def _rank(
    view: FamilyView,
    query: ResolvedQuery,
    k: int,
    allowed: Rows | None,
    *,
    strangers: FamilyView | None = None,
    source: str | None = None,
) -> _Ranked:
    """Models of the catalog, or of an attached index, normalised by another family's `strangers`
    where it has too few."""
    name = query.itself if source is None else query.model
    itself = int(next(iter(view.rows([name] if name else [])), -1))
    rows = candidates_of(view, query, k, allowed)
    if not view.is_current:  # some were removed since
        rows = np.array(sorted(view.labels_at(rows.tolist())), np.int64)
    rows = rows[rows != itself]
    is_here = itself >= 0 and source is None and strangers is None
    scores, evidence = _scored(view, query, itself, rows, strangers, is_here=is_here)
    calibration = evidence.calibration(strangers or view)
    _check_finite(view, rows, scores.z[0])
    compared = len(view) - view.n_removed if allowed is None else len(allowed)
    compared -= itself >= 0 and (allowed is None or itself in allowed)
    order = rank_rows(view.ids, rows, scores.z[0])
    rows, cosines, z = rows[order], scores.cosines[0, order], scores.z[0, order]
    best = rows[: max(k, JUDGED)].tolist()
    labels = view.labels_at(best)
    stated = [labels[row].stated for row in best]
    suspects = [] if strangers else [one.to_json(view.ids) for one in evidence.suspects(view)]
    return _Ranked(
        best=[
            (view.ids[row], labels[row], *numbers)
            for row, *numbers in zip(best, cosines.tolist(), z.tolist(), strict=False)
        ],
        trusted=stated if strangers else calibration.trusted(best, stated),
        suspects={one["model"]: one for one in suspects},
        compared=compared,
        calibration=calibration,
        base=view.base,
        source=source,
    )


def _check_finite(view: FamilyView, rows: Rows, scores: Float64[np.ndarray, " rows"]) -> None:
    """Raise `StoreDamaged` for scores that are not numbers, which would leave models out of an
    answer."""
    wrong = rows[~np.isfinite(scores)].tolist()
    if wrong:
        names = ", ".join(view.ids[row] for row in wrong[:NAMES_SHOWN])
        raise StoreDamaged(
            f"models with scores that are not numbers: {len(wrong)} ({names}): their fingerprints, "
            f"or those of other models of {view.base}, are damaged; `deltadex doctor` names them"
        )


def _scored(
    view: FamilyView,
    query: ResolvedQuery,
    itself: int,
    rows: Rows,
    strangers: FamilyView | None = None,
    *,
    is_here: bool,
) -> tuple[PairScores, LabelledCohort]:
    """The query, of which the view knows what is stored where it `is_here`, with some models: by
    sketches, or by vectors where there are none; normalised by the `strangers` of another family,
    if one is given."""
    of = strangers or view
    kinds = [view.kinds[row] for row in rows.tolist()]
    family = FamilyScores.of(of) if query.sketches is not None else None
    if family is not None and query.sketches is not None:
        if is_here:
            asked = family.stored(view, np.array([itself]))
        else:
            place = -1 if strangers else itself
            words = () if strangers else family.fresh_words(view, query.footprint)
            asked = family.prepare(query.sketches, [query.kind], [place], words)
        if strangers is None:
            others = family.stored(view, rows)
        else:
            others = family.prepare(view.sketches(view.keys[rows]), kinds, [-1] * len(rows))
        return family.compare(asked, others), family.evidence
    scores = VectorScores.of(of)
    vector = scores.prepare(query.vector[None, :], [query.kind])
    theirs = scores.prepare(view.vectors_at(rows), kinds)
    return scores.compare(vector, theirs), scores.evidence


def prepare_search(
    catalog: Catalog,
    base: str,
    recipe: Recipe,
    *,
    goes_on: Callable[[float], bool] = lambda _: True,
) -> None:
    """Derive now what the first search after a change needs; `goes_on`, told the share
    that is done, stops the sketch file if False.

    Raises StoreFull where the disk has no space for the sketches; searches then read the catalog.
    """

    def prepare(view: FamilyView) -> None:
        try:
            if block_dims(recipe) and len(view) >= SKETCH_FILE_MIN_MODELS:
                view.write_sketch_file(goes_on)
        finally:
            _ = view.index, view.labels, FamilyScores.of(view) or VectorScores.of(view)

    catalog.family(base, recipe, prepare=prepare)


def prepare_traits(
    catalog: Catalog, base: str, recipe: Recipe, *, goes_on: Callable[[], bool] = lambda: True
) -> None:
    """Compare all models of a large family with its strangers, unless a file has it already: what
    searches would do of the candidates that no earlier one had; `goes_on` stops it if False."""
    view = catalog.family(base, recipe)
    if (family := FamilyScores.of(view)) is not None:
        family.write_traits(view, goes_on)


def candidates_of(
    view: FamilyView, query: ResolvedQuery, k: int, allowed: Int64[np.ndarray, " allowed"] | None
) -> Int64[np.ndarray, " candidates"]:
    """The rows to score: all that are allowed of a small family, else the best of each kind by
    pooled vectors."""
    if (len(view) if allowed is None else len(allowed)) <= max(COMPARED_WHOLE, k):
        return np.arange(len(view)) if allowed is None else allowed
    if query.near is not None and allowed is None:
        return query.near
    single, n = _centred(view, [query])[0], _n_candidates(query, k)
    return np.unique(view.candidates(single, n, *_by_kind(view, allowed)))


def _centred(
    view: FamilyView, queries: Sequence[ResolvedQuery]
) -> Float32[np.ndarray, "queries dim"]:
    vectors = np.stack([query.vector for query in queries])
    centred = PooledMeans.of(view).centred([query.kind for query in queries], vectors)
    return np.asarray(centred.astype(np.float32))


def _n_candidates(query: ResolvedQuery, k: int) -> int:
    return max(2 * k, CANDIDATES if query.sketches is not None else VECTOR_CANDIDATES)


def _by_kind(view: FamilyView, allowed: Int64[np.ndarray, " allowed"] | None) -> list[Rows | None]:
    """The rows that are allowed, kind by kind, since a kind's mean shifts all of its scores alike;
    None for all, of one kind or of a large family."""
    if allowed is None:
        if not view.is_exact or len(Cohort.of(view).kinds) <= 1:
            return [None]
        allowed = np.arange(len(view))
    kinds = Cohort.of(view).of_models[allowed]
    return [allowed[kinds == kind] for kind in np.unique(kinds)]


def rank_rows(ids: Sequence[str], rows: Codes, scores: Numbers) -> Codes:
    """Places of some of a family's models, the best first; equal scores in order of id."""
    falling = -np.round(scores, TIE_DECIMALS)
    order: Codes = np.argsort(falling, kind="stable")
    is_tie = np.diff(falling[order]) == 0
    if is_tie.any():
        starts = np.flatnonzero(np.concatenate([[True], ~is_tie]))
        for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
            if stop - start > 1:
                order[start:stop] = sorted(order[start:stop], key=lambda i: ids[int(rows[i])])
    return order


@dataclass(frozen=True, slots=True)
class Explained:
    """One of the two models: its name, its kind, its slots."""

    model: str
    kind: str
    slots: Sequence[SlotStats]


def explain_pair(
    catalog: Catalog, query: Query, model: str, *, recipe: str | None = None
) -> dict[str, Any]:
    """Which slots carry the similarity of a query and a stored model, as `explain_slots` has it.

    Raises RequestError where the recipe stores no slot sketches, and its subclasses for an unknown
    model or recipe.
    """

    def answer() -> dict[str, Any]:
        if isinstance(query, FreshQuery):
            family, made_by = query.base, query.fingerprint.recipe
            first = Explained(query.model, query.kind, query.slots)
        else:
            row = catalog.model(query.model, query.base)
            family, made_by = row.base, catalog.find_recipe(recipe, row.base)
            first = Explained(row.id, row.kind, catalog.slots(row.key, made_by.id))
        sketch_blocks(made_by)
        row = catalog.model(model, family)
        second = Explained(row.id, row.kind, catalog.slots(row.key, made_by.id))
        return explain_slots(first, second, made_by)

    return catalog.look(answer)


def explain_slots(query: Explained, other: Explained, recipe: Recipe) -> dict[str, Any]:
    """The document of the similarity of two models by slot, role, layer and kind of feature.

    A slot's contribution is its part of the plain cosine that `find-similar` shows: the mean over
    slots of each slot's cosine, its blocks weighted as between models of these kinds. They sum to
    the similarity; `share` is a fraction of it, None where it is not positive. `slots` are those
    that both changed, the largest contribution first, with |ΔW| / |W| of both (None: W was not
    read); those of `only_query` and `only_model` contribute nothing.
    """
    sizes = sketch_blocks(recipe)
    mine = {stats.slot: stats for stats in query.slots if stats.fro_norm > 0}
    theirs = {stats.slot: stats for stats in other.slots if stats.fro_norm > 0}
    parts = _contributions(query, mine, other, theirs, recipe)
    similarity = fsum(fsum(blocks) for blocks in parts.values())

    def carried(contribution: float) -> dict[str, float | None]:
        share = contribution / similarity if similarity > 0 else None
        return {"contribution": contribution, "share": share}

    def totals(kind: str, name: Callable[[Slot], str]) -> list[dict[str, Any]]:
        sums: dict[str, float] = {}
        for slot, blocks in parts.items():
            sums[name(slot)] = sums.get(name(slot), 0.0) + fsum(blocks)
        return [{kind: key, **carried(total)} for key, total in sums.items()]

    shares: list[dict[str, Any]] = [
        {
            "slot": str(slot),
            **carried(fsum(blocks)),
            "blocks": dict(zip(sizes, blocks, strict=True)),
            "relative_norm": {
                "query": mine[slot].relative_norm,
                "model": theirs[slot].relative_norm,
            },
        }
        for slot, blocks in parts.items()
    ]
    by_role = totals("role", lambda slot: slot.role)
    by_block: list[dict[str, Any]] = [
        {"block": name, **carried(fsum(part[i] for part in parts.values()))}
        for i, name in enumerate(sizes)
    ]
    return {
        "query": query.model,
        "model": other.model,
        "similarity": similarity,
        "by_role": sorted(by_role, key=lambda total: role_order(total["role"])),
        "by_layer": totals("layer", lambda slot: f"{slot.stack}.{slot.layer}"),
        "by_block": by_block,
        "slots": sorted(shares, key=lambda share: -share["contribution"]),
        "only_query": list(map(str, sorted(mine.keys() - theirs.keys(), key=_reading_order))),
        "only_model": list(map(str, sorted(theirs.keys() - mine.keys(), key=_reading_order))),
    }


def sketch_blocks(recipe: Recipe) -> dict[str, int]:
    """The recipe's blocks of slot sketches with their lengths; RequestError where it stores
    none."""
    blocks = block_dims(recipe)
    if not blocks:
        raise RequestError(
            f"recipe {recipe.name} stores no slot sketches to explain with: "
            "use a recipe that does, such as the default one"
        )
    return blocks


def _contributions(
    query: Explained,
    mine: Mapping[Slot, SlotStats],
    other: Explained,
    theirs: Mapping[Slot, SlotStats],
    recipe: Recipe,
) -> dict[Slot, tuple[float, ...]]:
    """Each common slot's part of the cosine, by block, in reading order: those of the cosine of
    codes, scaled together to what they estimate."""
    first, second = _sketches(query.model, mine, recipe), _sketches(other.model, theirs, recipe)
    own, others = (compared_as(one.kind, one.slots) for one in (query, other))
    kinds = sorted({own, others})
    pair = kinds.index(own), kinds.index(others)
    weights = weights_by_kinds(list(block_dims(recipe)), kinds)[pair]
    weights = weights * first.weights[0].any(axis=0) * second.weights[0].any(axis=0)
    weights /= weights.sum() or 1.0
    parts: dict[Slot, list[float]] = {}
    for slot, block, share in first.shares(second):
        parts.setdefault(slot, []).append(float(weights[block] * share[0, 0]))
    coded = np.array([fsum(fsum(blocks) for blocks in parts.values())])
    scale = float(true_cosines(coded)[0] / coded[0]) if coded[0] else 1.0
    return {
        slot: tuple(part * scale for part in parts[slot])
        for slot in sorted(parts, key=_reading_order)
    }


def _sketches(model: str, slots: Mapping[Slot, SlotStats], recipe: Recipe) -> SketchMatrix:
    try:
        return SketchMatrix.of_rows([{slot: s.sketch for slot, s in slots.items()}], recipe)
    except ValueError as err:
        raise RequestError(f"{model} has {err}: index it again with this recipe") from None


def _reading_order(slot: Slot) -> tuple[tuple[int, str], int, tuple[int, str]]:
    """Stacks as data flows through them, then layers, then roles in printing order."""
    return stack_order(slot.stack), slot.layer, role_order(slot.role)
