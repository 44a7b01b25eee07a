"""Which models of a family were trained on a data set, or on data like it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ..arrays import Float64, Int64
from ..errors import RequestError
from ..records import DataSet, Slot
from ..store import Catalog, FamilyView, ModelFilter, SketchMatrix, block_dims
from .neighbours import EVERY_MODEL, ResolvedQuery, candidates_of, rank_rows
from .scoring.data_scores import KIND, DataScores
from .scoring.evidence import RATE, SMALL_FAMILY, Calibration, Verdict, verdict
from .scoring.family_scores import FamilyScores
from .scoring.normalisation import PairScores, bounded

WHOLE, GROUP, SHUFFLED = "whole", "group", "shuffled"
"""Parts of a data set's sketches: over all examples, over groups of them, with labels permuted."""

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
        references: Gradients of other data by which models were normalised; 0 where it was by other
            models.
        control: The highest z of the same texts with their labels permuted; None without labels.
        calibration: What the rates of false discoveries are known from.
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
            "control": None if self.control is None else {"labels": "permuted", "z": self.control},
            "calibration": self.calibration.to_json(),
            "models": [asdict(model) for model in self.models],
        }


def find_trained_on(
    catalog: Catalog, data: DataSet, *, k: int, wanted: ModelFilter = EVERY_MODEL
) -> TrainedModels:
    """The `k` models of the data set's family nearest to its gradient, at one moment.

    Raises:
        RequestError: k < 1, or the family keeps no sketches of the recipe; an empty catalog and a
            bad filter raise its subclasses.
    """
    if k < 1:
        raise RequestError(f"k must be at least 1, got {k}")

    def answer() -> TrainedModels:
        view = catalog.family(data.base, data.fingerprint.recipe)
        others = [one for one in catalog.data_sets.all(data.base, view.recipe.id) if not _same(one, data)]
        return nearest_models(view, data, others, k=k, wanted=wanted)

    return catalog.look(answer)


def nearest_models(
    view: FamilyView,
    data: DataSet,
    others: Sequence[DataSet],
    *,
    k: int,
    wanted: ModelFilter = EVERY_MODEL,
) -> TrainedModels:
    """The `k` models nearest to a data set that pass a filter.

    Args:
        others: Data sets by which models are normalised.

    Raises:
        RequestError: the family has no model with sketches under the data set's recipe.
    """
    scores = data_scores(view, others, data)
    query = ResolvedQuery(
        model=data.name,
        dataset=None,
        kind=KIND,
        vector=data.fingerprint.vector,
        itself=None,
        sketches=None,
    )
    allowed = None if wanted == EVERY_MODEL else view.rows_where(wanted)
    rows = candidates_of(view, query, k, allowed)
    labels = view.labels_at(rows.tolist())
    rows = np.array([row for row in rows.tolist() if row in labels], dtype=np.int64)
    compared = len(view) if allowed is None else len(allowed)
    pairs, errors = score_data(view, scores, data, rows)
    calibration = null_calibration(len(view))
    z = pairs.z[0]
    order = rank_rows([view.ids[row] for row in rows.tolist()], z)
    rates = calibration.fdr(z[order], compared)
    models = []
    for rank, (place, rate) in enumerate(zip(order[:k].tolist(), rates.tolist(), strict=False), 1):
        row = int(rows[place])
        models.append(
            TrainedModel(
                rank=rank,
                model=view.ids[row],
                cosine=min(1.0, max(-1.0, float(pairs.cosines[0, place]))),
                score=float(bounded(np.array([z[place]]))[0]),
                z=float(z[place]),
                z_error=None if errors is None else float(errors[place]),
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
        compared=compared,
        references=scores.n_references,
        control=_control(view, scores, data, rows),
        calibration=calibration,
    )


def data_scores(view: FamilyView, others: Sequence[DataSet], data: DataSet | None) -> DataScores:
    """What scores gradients with a family: by other data sets, and permuted labels of this one."""
    family = FamilyScores.of(view)
    if family is None:
        raise RequestError(
            f"no model of {view.base} has sketches under {view.recipe.id}: a data set is compared "
            "with those"
        )
    references = [one.sketches[WHOLE] for one in others if WHOLE in one.sketches]
    for one in (*others, *([] if data is None else [data])):
        references += parts_of(one, SHUFFLED)
    return DataScores(family, sketch_rows(references, view) if references else None)


def sketch_rows(rows: Sequence[Mapping[Slot, bytes]], view: FamilyView) -> SketchMatrix:
    """Sketches of several gradients, a row each."""
    return SketchMatrix.of_models(rows, view.recipe)


def parts_of(data: DataSet, kind: str) -> list[Mapping[Slot, bytes]]:
    """The sketches of all parts of a kind: of groups, or with labels permuted."""
    return [data.sketches[name] for name in sorted(data.sketches) if name.split()[0] == kind]


def score_data(
    view: FamilyView, scores: DataScores, data: DataSet, rows: Int64[np.ndarray, " rows"]
) -> tuple[PairScores, Float64[np.ndarray, " rows"] | None]:
    """The data set's scores with some models, and their standard errors over groups.

    Each group's scores are on its own scale, so that the standard error is relative: the deviation
    of the groups' z, in units of their mean's share of the whole's, over the root of their number.
    """
    models = scores.family.stored(view, rows)
    whole = scores.compare(scores.prepare(sketch_rows([data.sketches[WHOLE]], view)), models)
    groups = parts_of(data, GROUP)
    if len(groups) < 3:
        return whole, None
    z = scores.compare(scores.prepare(sketch_rows(groups, view)), models).z
    errors: Float64[np.ndarray, " rows"] = z.std(axis=0, ddof=1) / np.sqrt(len(groups))
    return whole, errors


def null_calibration(n_models: int) -> Calibration:
    """False discovery rates from the null alone: no label says what a data set is near to."""
    rate = RATE * (1.0 + SMALL_FAMILY / max(1, n_models))
    return Calibration(rate, "the null alone", 0, 0)


def _control(
    view: FamilyView, scores: DataScores, data: DataSet, rows: Int64[np.ndarray, " rows"]
) -> float | None:
    """The highest z that the same texts reach with their labels permuted."""
    shuffled = parts_of(data, SHUFFLED)
    if not shuffled or not len(rows):
        return None
    models = scores.family.stored(view, rows)
    z = scores.compare(scores.prepare(sketch_rows(shuffled, view)), models).z
    return float(np.median(z.max(axis=1)))


def _same(one: DataSet, other: DataSet) -> bool:
    """Whether two are one data set: by name, or by the bytes of their files."""
    return one.name == other.name or one.sha256 == other.sha256
