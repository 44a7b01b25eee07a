"""Which models of a family were trained on a data set, or on data like it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ..arrays import Float64, Int64
from ..errors import RequestError, UnknownRecipe
from ..records import GROUP, PERMUTED, DataSet, Slot
from ..store import Catalog, FamilyView, Filters, SketchMatrix, block_dims
from .data_control import ControlComparison, compare_data
from .neighbours import EVERY_MODEL, ResolvedQuery, candidates_of, rank_rows
from .scoring.data_evidence import null_calibration, with_labels
from .scoring.data_scores import KIND, DataScores
from .scoring.evidence import Calibration, Verdict, verdict
from .scoring.family_scores import FamilyScores
from .scoring.normalisation import bounded

NO_COPY = 0.0
"""A data set is no model, so that no model is its copy, whatever the cosine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedModel:
    """A model near a data set's gradient.

    Attributes:
        rank: From 1.
        cosine: Of the gradient and the update, over slots and kinds of features, −1…1.
        score: z, bounded to −1…1.
        z: Deviations above this gradient's scores with the family's strangers.
        z_error: Standard error of z over groups of the examples; None with fewer than three.
        fdr: Share of such answers that are expected to be wrong, 0…1.
        verdict: The same in words.
    """

    rank: int
    model: str
    cosine: float
    score: float
    z: float
    z_error: float | None
    fdr: float
    verdict: Verdict
    dataset: str | None
    author: str | None
    run: str | None
    base: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedModels:
    """The answer to a data set, nearest first; equal scores in order of id.

    Attributes:
        compared: Models that were compared.
        references: Gradients of other data by which models were normalised too; 0 where there are
            too few.
        control: The highest z of the same texts with their labels permuted; None without labels.
        calibration: The tail of z that rates of false discoveries are known from.
        comparison: With a control, model by model in the same order; None without one.
    """

    data: str
    base: str
    recipe: str
    recipe_id: str
    models: tuple[TrainedModel, ...]
    compared: int
    references: int
    control: float | None
    calibration: Calibration
    comparison: ControlComparison | None = None

    @property
    def verdict(self) -> Verdict:
        """Of the nearest model."""
        return self.models[0].verdict if self.models else "no model stands out"

    def to_json(self) -> dict[str, object]:
        """The documented keys, ready for json.dumps."""
        return {
            "recipe": self.recipe,
            "recipe_id": self.recipe_id,
            "verdict": self.verdict,
            "compared": self.compared,
            "references": self.references,
            "calibration": self.calibration.to_json(),
            "comparison": None if self.comparison is None else self.comparison.to_json(),
            "neighbours": [asdict(model) for model in self.models],
        }

    def control_json(self) -> dict[str, object] | None:
        return None if self.control is None else {"labels": "permuted", "z": self.control}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataNeighbour:
    """A kept data set near a model; the attributes are those of `TrainedModel`.

    One number for one pair: `fdr` is that of the model among the models near the data set.
    """

    rank: int
    data: str
    examples: int
    loss: str
    cosine: float
    z: float
    z_error: float | None
    fdr: float
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestData:
    """The kept data sets of a model's family, the nearest first."""

    model: str
    base: str
    recipe: str
    recipe_id: str
    data: tuple[DataNeighbour, ...]
    calibration: Calibration

    def to_json(self) -> dict[str, object]:
        """The documented keys, ready for json.dumps."""
        return {
            "query": {"model": self.model, "base": self.base},
            "recipe": self.recipe,
            "recipe_id": self.recipe_id,
            "verdict": self.data[0].verdict if self.data else "no data set stands out",
            "calibration": self.calibration.to_json(),
            "data": [asdict(one) for one in self.data],
        }


def find_data(
    catalog: Catalog, model: str, *, base: str | None = None, recipe: str | None = None
) -> NearestData:
    """The kept data sets of a stored model's family, nearest first.

    Raises:
        RequestError: none is kept under the recipe.
        UnknownModel: there is no such model.
        UnknownRecipe: the model has no fingerprint of that recipe.
    """

    def answer() -> NearestData:
        stored = catalog.stored(model, base)
        view = catalog.family(stored.base, catalog.find_recipe(recipe, stored.base))
        kept = catalog.data_sets.all(stored.base, view.recipe.id)
        if not kept:
            raise RequestError(
                f"no data set is kept for {stored.base}: `deltadex find-trained-on FILE --keep "
                "NAME` keeps one"
            )
        return nearest_data(view, stored.id, kept)

    return catalog.look(answer)


def nearest_data(view: FamilyView, model: str, kept: Sequence[DataSet]) -> NearestData:
    """Kept data sets by their z with a model of the family."""
    rows = view.rows([model])
    if not len(rows):
        raise UnknownRecipe(f"{model} has no fingerprint under {view.recipe.id}")
    found = []
    for data in kept:
        ranked = rank_models(view, data_scores(view, other_data(kept, data)), data, also=rows)
        place = int(np.flatnonzero(ranked.rows == rows[0])[0])
        evidence, row = ranked.evidence, int(ranked.order[place])
        pair = (float(evidence.z[row]), float(evidence.cosines[row]), evidence.error(row))
        found.append((data, *pair, float(ranked.rates[place])))
    return NearestData(
        model=model,
        base=view.base,
        recipe=view.recipe.name,
        recipe_id=view.recipe.id,
        calibration=null_calibration(len(view)),
        data=data_neighbours(found),
    )


def data_neighbours(
    scored: Sequence[tuple[DataSet, float, float, float | None, float]],
) -> tuple[DataNeighbour, ...]:
    """Data sets by falling z with one model.

    Args:
        scored: Each with its z, cosine, standard error and rate of false discoveries.
    """
    ranked = sorted(scored, key=lambda entry: (-entry[1], entry[0].name))
    return tuple(
        DataNeighbour(
            rank=rank,
            data=data.name,
            examples=data.examples,
            loss=data.loss,
            cosine=min(1.0, max(-1.0, cosine)),
            z=z,
            z_error=error,
            fdr=rate,
            verdict=verdict(NO_COPY, rate),
        )
        for rank, (data, z, cosine, error, rate) in enumerate(ranked, start=1)
    )


def find_trained_on(
    catalog: Catalog,
    data: DataSet,
    *,
    k: int,
    wanted: Filters = EVERY_MODEL,
    control: DataSet | None = None,
) -> TrainedModels:
    """The `k` models of the data set's family nearest to its gradient, at one moment.

    Args:
        control: Alike data that no model saw, with which each of them is compared.

    Raises:
        RequestError: k < 1, or the family keeps no sketches of the recipe, or the control cannot be
            compared with the data; an empty catalog and a bad filter raise its subclasses.
    """
    if k < 1:
        raise RequestError(f"k must be at least 1, got {k}")

    def answer() -> TrainedModels:
        view = catalog.family(data.base, data.fingerprint.recipe)
        kept = catalog.data_sets.all(data.base, view.recipe.id)
        others = other_data(kept, data)
        return nearest_models(view, data, others, k=k, wanted=wanted, control=control)

    return catalog.look(answer)


def check_searchable(catalog: Catalog, base: str, *, recipe: str | None, wanted: Filters) -> None:
    """Raise what `find_trained_on` would raise, before a gradient is computed for it."""

    def check() -> None:
        view = catalog.family(base, catalog.find_recipe(recipe, base))
        if not block_dims(view.recipe):
            raise _no_sketches(view)
        if view.recipe.share < 1:
            raise RequestError(
                f"{view.base} was indexed with a budget: recipe {view.recipe.id} reads some rows "
                "of each matrix, and a data set needs whole ones; run `deltadex index` without "
                "--budget, or name another recipe with --recipe"
            )
        if not wanted.passes_all:
            view.rows_where(wanted)

    catalog.look(check)


def nearest_models(
    view: FamilyView,
    data: DataSet,
    others: Sequence[DataSet],
    *,
    k: int,
    wanted: Filters = EVERY_MODEL,
    control: DataSet | None = None,
) -> TrainedModels:
    """The `k` models nearest to a data set that pass a filter.

    Args:
        others: Data sets by which models are normalised too.
        control: With which the models are compared.

    Raises:
        RequestError: the family has no model with sketches under the data set's recipe, or the
            control cannot be compared with the data.
    """
    scores = data_scores(view, others)
    ranked = rank_models(view, scores, data, k=k, wanted=wanted)
    evidence, rows = ranked.evidence, ranked.rows
    labels = view.labels_at(rows[:k].tolist())
    models = []
    for rank, (place, row, rate) in enumerate(
        zip(ranked.order[:k].tolist(), rows.tolist(), ranked.rates.tolist(), strict=False), 1
    ):
        models.append(
            TrainedModel(
                rank=rank,
                model=view.ids[row],
                cosine=min(1.0, max(-1.0, float(evidence.cosines[place]))),
                score=float(bounded(np.array([evidence.z[place]]))[0]),
                z=float(evidence.z[place]),
                z_error=evidence.error(place),
                fdr=rate,
                verdict=verdict(NO_COPY, rate),
                dataset=labels[row].dataset,
                author=labels[row].author,
                run=labels[row].run,
                base=view.base,
            )
        )
    return TrainedModels(
        data=data.name,
        base=view.base,
        recipe=view.recipe.name,
        recipe_id=view.recipe.id,
        models=tuple(models),
        compared=ranked.compared,
        references=scores.n_references,
        control=evidence.control,
        calibration=null_calibration(len(view)),
        comparison=(
            compare_data(view, scores.family, data, control, rows[:k])
            if control is not None and len(rows)
            else None
        ),
    )


@dataclass(frozen=True, slots=True, eq=False)
class RankedModels:
    """Models by falling z with a data set.

    Attributes:
        rows: Of the models in the family.
        order: Their places in the evidence.
        rates: Of false discoveries.
        compared: Models that could have come first.
    """

    rows: Int64[np.ndarray, " models"]
    order: Int64[np.ndarray, " models"]
    rates: Float64[np.ndarray, " models"]
    evidence: DataEvidence
    compared: int


def rank_models(
    view: FamilyView,
    scores: DataScores,
    data: DataSet,
    *,
    k: int = 1,
    wanted: Filters = EVERY_MODEL,
    also: Int64[np.ndarray, " rows"] | None = None,
) -> RankedModels:
    """The models that may be the `k` nearest to a data set, and those in the rows `also`."""
    query = ResolvedQuery(
        model=data.name,
        dataset=None,
        kind=KIND,
        vector=data.fingerprint.vector,
        itself=None,
        sketches=None,
    )
    allowed = None if wanted.passes_all else view.rows_where(wanted)
    rows = candidates_of(view, query, k, allowed)
    rows = rows if also is None else np.union1d(rows, also)
    labels = view.labels_at(rows.tolist())
    rows = np.array([row for row in rows.tolist() if row in labels], dtype=np.int64)
    compared = len(view) if allowed is None else len(allowed)
    evidence = score_data(view, scores, data, rows)
    order, rates = rank_with_rates(
        view, rows, evidence.z, [labels[row].dataset for row in rows.tolist()], compared
    )
    return RankedModels(rows[order], order, rates, evidence, compared)


def rank_with_rates(
    view: FamilyView,
    rows: Int64[np.ndarray, " models"],
    z: Float64[np.ndarray, " models"],
    labels: Sequence[str | None],
    compared: int,
) -> tuple[Int64[np.ndarray, " models"], Float64[np.ndarray, " models"]]:
    """The places of models by falling z with one data set, and their false discovery rates."""
    order = rank_rows(view.ids, rows, z)
    rates = null_calibration(len(view)).fdr(z[order], compared)
    return order, with_labels(rates, [labels[place] for place in order.tolist()])


def data_scores(view: FamilyView, others: Sequence[DataSet]) -> DataScores:
    """What scores gradients with a family, by its strangers and by other data sets."""
    family = FamilyScores.of(view)
    if family is None:
        raise _no_sketches(view)
    references = [one.whole for one in others]
    return DataScores(family, sketch_rows(references, view) if references else None)


def _no_sketches(view: FamilyView) -> RequestError:
    return RequestError(
        f"no model of {view.base} has sketches under {view.recipe.id}, and a data set is compared "
        "with those; `deltadex index --recipe sketch` makes them"
    )


def sketch_rows(rows: Sequence[Mapping[Slot, bytes]], view: FamilyView) -> SketchMatrix:
    """Sketches of several gradients, a row each."""
    return SketchMatrix.of_rows(rows, view.recipe)


@dataclass(frozen=True, slots=True, eq=False)
class DataEvidence:
    """A data set's scores with some models.

    Attributes:
        errors: Of z: the standard deviation of the groups' z over the root of their number; None
            with fewer than three. A group's z is lower than the whole's, as it has fewer examples.
        control: The highest z that the same texts reach with their labels permuted; None without.
    """

    z: Float64[np.ndarray, " models"]
    cosines: Float64[np.ndarray, " models"]
    errors: Float64[np.ndarray, " models"] | None
    control: float | None

    def error(self, place: int) -> float | None:
        """The standard error of one model's z."""
        return None if self.errors is None else float(self.errors[place])


def score_data(
    view: FamilyView, scores: DataScores, data: DataSet, rows: Int64[np.ndarray, " rows"]
) -> DataEvidence:
    """The data set's scores with the models at some rows; all of its parts compared at once."""
    groups, permuted = data.parts(GROUP), data.parts(PERMUTED)
    gradients = scores.prepare(sketch_rows([data.whole, *groups, *permuted], view))
    pairs = scores.compare(gradients, scores.family.stored(view, rows))
    of_groups, of_permuted = pairs.z[1 : 1 + len(groups)], pairs.z[1 + len(groups) :]
    return DataEvidence(
        z=pairs.z[0],
        cosines=pairs.cosines[0],
        errors=of_groups.std(axis=0, ddof=1) / np.sqrt(len(groups)) if len(groups) > 2 else None,
        control=float(np.median(of_permuted.max(axis=1))) if of_permuted.size else None,
    )


def other_data(kept: Sequence[DataSet], data: DataSet) -> list[DataSet]:
    """The kept data sets but this one: by name, or by the bytes of its files."""
    return [one for one in kept if data.name != one.name and data.sha256 != one.sha256]
