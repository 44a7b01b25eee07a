"""Which models of a family were trained on a data set, or on data like it.

The gradient of a base's loss over a data set, negated, is treated as a full fine-tune's ΔW, and its
cosines are normalised as a model's are. Where enough gradients of *other* data are kept, a model's
side is also normalised by its cosines with these, and the lower of the two z counts.

A logistic regression takes z, and how many models there are, to the probability that a model was
trained on the data. Its coefficients are of other families, since how near models of two data sets
are says little of gradients (`COEFFICIENTS`: `python -m benchmarks.families data-evidence`). No
label is asked; labels can only lower it, to the share of labelled models, as near or nearer, that
have the same one.

`compare_data` says whether a model lies nearer to a data set than to a control: alike texts that
it did not see. Both are gradients over disjoint groups of examples. A model's score with a group is
the sum of its cosines, in standard deviations of the family's strangers; the effect is the mean
score with the groups of the data less that with those of the control. Two nulls are tested, and the
larger p counts: the groups of both files are exchangeable (a permutation test: Fisher 1935;
Phipson, Smyth 2010); and the two files differ for *every* model, as files from two sources do (the
model's difference over its standard error among those of the family's strangers, whose centre is
taken out of the effect). The idea of a control that no model saw: dataset inference (Maini et al.
2021, arXiv 2104.10706; 2024, arXiv 2406.06443).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import combinations
from math import comb, isnan, log
from typing import Any, Literal

import numpy as np

from ..arrays import Bool, Float64, Int64
from ..errors import RequestError, UnknownRecipe
from ..records import GROUP, LABELLED_LOSSES, PERMUTED, TOKEN_LOSSES, WHOLE, DataSet, Slot
from ..results import count
from ..store import Catalog, FamilyView, Filters, SketchMatrix, block_dims, true_cosines
from .evidence import (
    FEWEST_MODELS,
    LONE_SHARE,
    Calibration,
    Judgement,
    Numbers,
    Verdict,
    sigmoid,
    verdict,
)
from .family_scores import (
    LEAST_SPREAD,
    NORMAL_LOWER,
    TIE_DECIMALS,
    BlockPairs,
    Codes,
    FamilyScores,
    PairScores,
    Rows,
    Scored,
    Traits,
    Weights,
    lower_spread,
    normalised,
    plain,
    weights_by_kinds,
)
from .neighbours import (
    EVERY_MODEL,
    Near,
    ResolvedQuery,
    candidates_of,
    falling_rates,
    rank_rows,
    with_rates,
)

FEWEST_REFERENCES = 10
"""Gradients of other data from which models are normalised by them too; eight are noise."""

PRIOR_REFERENCES = 4.0
"""Weight of all models' spread in that of one model, in references: few know it badly."""

KIND = "full"
"""A gradient changes every weight, as full fine-tunes do."""

TOKEN_WEIGHTS = {
    "full": {"update": 1.0, "output": 0.0, "input": 0.0},
    "adapter": {"update": 1.0, "output": 1.0, "input": 0.0},
}
"""Weights of the blocks between a gradient of tokens and a model of each kind: what such data
changes is on the output side, of which an adapter's update is a noisy part. Gradients of classes
have the weights of models."""

COEFFICIENTS = {
    "tokens": (-12.81, 5.06, 0.52),
    "classes": (-10.98, 3.83, 1.47),
    "contrastive": (-2.0, 0.75, 0.0),
}
"""By kind of loss, of 1, log z and the log of the family's size: few models know z badly. A
contrastive loss proves next to nothing: sets that no model saw reach z 17."""

LARGEST_FITTED = 80
"""Models of the largest family of which `COEFFICIENTS` are; z of more is lowered by what the
largest of as many strangers would gain."""

Places = Int64[np.ndarray, " _"]

LossKind = Literal["tokens", "classes", "contrastive"]

LONE_BOUND = 0.85
"""Probability that at most 5 % of data sets that no model saw reach, on files held out."""

LONE_ODDS = 0.16
"""Of such data sets, about the share `LONE_ODDS` × (1 − p) / p reach a probability p."""

LEAST_Z = 0.1
BLOCK = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedModel(Near):
    """A model near a data set's gradient; `z_error`: the standard error of z over groups of the
    examples, None with fewer than three."""

    fdr: float
    z_error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedModels:
    """The answer to a data set, nearest first; equal scores in order of id.

    references: gradients of other data by which models were normalised too, 0 where there are too
    few. control: the highest z of the same texts with their labels permuted. comparison: with a
    control, model by model in the same order.
    """

    recipe: str
    recipe_id: str
    models: tuple[TrainedModel, ...]
    compared: int
    references: int
    control: float | None
    calibration: DataCalibration
    comparison: dict[str, Any] | None = None

    @property
    def verdict(self) -> Verdict:
        """Of the nearest model."""
        return self.models[0].verdict if self.models else "no model stands out"

    def to_json(self) -> dict[str, Any]:
        return {
            "recipe": self.recipe,
            "recipe_id": self.recipe_id,
            "verdict": self.verdict,
            "compared": self.compared,
            "references": self.references,
            "calibration": self.calibration.to_json(),
            "comparison": self.comparison,
            "neighbours": [model.to_json() for model in self.models],
        }

    def control_json(self) -> dict[str, object] | None:
        return None if self.control is None else {"labels": "permuted", "z": self.control}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataNeighbour:
    """A kept data set near a model; the attributes are those of `TrainedModel`."""

    rank: int
    data: str
    examples: int
    loss: str
    cosine: float
    z: float
    z_error: float | None
    probability: float | None
    fdr: float | None
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptEvidence:
    """The kept data sets of a family, by name, and their evidence with some of its models: z, plain
    cosines, the probability that a model was trained on a data set (NaN in families too small to
    say), and rates of false discoveries among the models beside a data set."""

    sets: tuple[DataSet, ...]
    z: Float64[np.ndarray, "data models"] = field(compare=False)
    cosines: Float64[np.ndarray, "data models"] = field(compare=False)
    probabilities: Float64[np.ndarray, "data models"] = field(compare=False)
    rates: Float64[np.ndarray, "data models"] = field(compare=False)

    def neighbours(self, column: int) -> tuple[DataNeighbour, ...]:
        """The data sets nearest to the model of a column, all of them."""
        arrays = self.z, self.cosines, self.probabilities, self.rates
        numbers = (values[:, column].tolist() for values in arrays)
        return _data_neighbours(
            (data, z, cosine, None, None if isnan(p) else p, rate)
            for data, z, cosine, p, rate in zip(self.sets, *numbers, strict=True)
        )


class DataScores:
    """Scores of some gradients with the models of a family, each normalised by others of them; the
    sketches of each are read once."""

    def __init__(self, family: FamilyScores, gradients: SketchMatrix) -> None:
        n = len(gradients)
        prepared = family.prepare(gradients, [KIND] * n, [-1] * n)
        self.family, self._gradients = family, gradients
        self._traits = family.unwhitened(prepared).traits
        self._among_cohort = gradients.cosines(family.unwhitened_strangers.features)

    @classmethod
    def of(cls, view: FamilyView, gradients: Sequence[Mapping[Slot, bytes]]) -> DataScores:
        """RequestError where none of a view's models has sketches."""
        family = FamilyScores.of(view)
        if family is None:
            raise _no_sketches(view)
        return cls(family, SketchMatrix.of_rows(gradients, view.recipe))

    def compare(
        self, models: Scored, asked: Iterable[tuple[str, Places, Places]]
    ) -> Iterator[PairScores]:
        """For each loss, with the places of gradients under it and of those of other data: cosines
        of each with every model, and z in deviations of the same gradient's scores with the cohort,
        above their median; all unwhitened."""
        cosines = self._gradients.cosines(models.features)
        for loss, rows, others in asked:
            yield self._scored(cosines, models.traits, loss, rows, others)

    def _scored(
        self, cosines: BlockPairs, models: Traits, loss: str, rows: Places, others: Places
    ) -> PairScores:
        # whitened cosines find full fine-tunes a little better by gradients, and LoRA much worse
        own, weights = self._traits.take(rows), self._weights(loss)
        cohort = self.family.unwhitened_strangers.traits
        here, among = cosines[:, rows], self._among_cohort[:, rows]
        whole = plain(here, (own.kinds, own.blocks), (models.kinds, models.blocks), weights)

        def on_scale(models: Traits, cohort: Traits) -> Float64[np.ndarray, "gradients models"]:
            """Normalised cosines, in deviations of those with the cohort."""
            raw = normalised(here, own, models, weights)
            strangers = normalised(among, own, cohort, weights)
            scales = np.array([lower_spread(values) for values in strangers])
            return np.asarray((raw - scales[:, :1]) / scales[:, 1:])

        z = on_scale(models, cohort)
        if len(others) >= FEWEST_REFERENCES:
            seen = self.seen(cosines[:, others], models)
            z = np.minimum(z, on_scale(seen, self.seen(self._among_cohort[:, others], cohort)))
        return PairScores(cosines=true_cosines(whole), z=z)

    def _weights(self, loss: str) -> Weights:
        blocks, kinds = list(self._gradients.dims), self.family.kinds
        weights = weights_by_kinds(blocks, [KIND] * len(kinds))
        if loss in TOKEN_LOSSES:
            for column, kind in enumerate(kinds):
                of_kind = TOKEN_WEIGHTS["adapter" if kind == "adapter" else "full"]
                weights[:, column] = [of_kind.get(block, 1.0) for block in blocks]
        return weights

    def seen(
        self, cosines: Float64[np.ndarray, "blocks references models"], traits: Traits
    ) -> Traits:
        """Traits with centres and spreads of cosines with other data."""
        n = cosines.shape[1]
        centre, variance = np.median(cosines, axis=1), cosines.var(axis=1)
        typical = np.median(variance, axis=1, keepdims=True)
        spread = np.sqrt((n * variance + PRIOR_REFERENCES * typical) / (n + PRIOR_REFERENCES))
        kinds = self.family.kinds
        # a gradient meets a model's traits for its kind, else those for the first
        kind = kinds.index(KIND) if KIND in kinds else 0
        centres, spreads = traits.centres.copy(), traits.spreads.copy()
        centres[:, :, kind], spreads[:, :, kind] = centre.T, np.maximum(spread, LEAST_SPREAD).T
        return replace(traits, centres=centres, spreads=spreads)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCalibration(Calibration):
    """What a data set's probabilities are computed from: the coefficients of its kind of loss. The
    null alone in families too small for them."""

    kind: LossKind

    @classmethod
    def of(cls, n_models: int, loss: str) -> DataCalibration:
        of_texts: LossKind = "tokens" if loss in TOKEN_LOSSES else "classes"
        return cls(
            models=n_models,
            source="families like it" if n_models >= FEWEST_MODELS else "the null alone",
            kind="contrastive" if loss == "contrastive" else of_texts,
            bound=LONE_BOUND,
        )

    def among(self, n_families: int) -> DataCalibration:
        """For one of several families that are asked together: a data set that no model saw has a
        verdict in any of them in `LONE_SHARE` of cases (Bonferroni)."""
        joint = n_families / (n_families + LONE_SHARE / LONE_ODDS)
        return replace(self, bound=max(LONE_BOUND, joint))

    def probabilities(
        self, z: Numbers, labels: Sequence[str | None], is_copy: Bool[np.ndarray, " models"]
    ) -> Numbers:
        """Of the rows of a ranking by falling z, with the labels of its rows; 0…1."""
        constant, of_z, of_size = COEFFICIENTS[self.kind]
        log_z, log_size = self.features(z)
        return with_labels(sigmoid(constant + of_z * log_z + of_size * log_size), labels)

    def stand_apart(
        self, z: Numbers, rates: Numbers, is_copy: Bool[np.ndarray, " models"]
    ) -> Bool[np.ndarray, " models"]:
        """None: strangers of a gradient reach higher than the null says."""
        return np.zeros(len(z), np.bool_)

    def features(self, z: Numbers) -> tuple[Numbers, float]:
        """Log z, and the log of the family's size."""
        gain = self.rate * log(max(1.0, self.models / LARGEST_FITTED))
        return np.log(np.maximum(z - gain, LEAST_Z)), log(min(self.models, LARGEST_FITTED))


def with_labels(probabilities: Numbers, labels: Sequence[str | None]) -> Numbers:
    """The probabilities of neighbours, nearest first, lowered where their labels disagree."""
    lowered: Numbers = probabilities.copy()
    nearer: Counter[str] = Counter()
    for place, label in enumerate(labels):
        if label is not None:
            nearer[label] += 1
            lowered[place] = min(lowered[place], nearer[label] / nearer.total())
    return lowered


def _rank_models(
    view: FamilyView,
    data: DataSet,
    kept: Sequence[DataSet],
    *,
    k: int = 1,
    filters: Filters = EVERY_MODEL,
    also: Rows | None = None,
) -> TrainedModels:
    """The models that may be the `k` nearest to a data set, which the other `kept` ones normalise
    too, and those in the rows `also`; all parts of the data set compared at once.

    The error of z is the standard deviation of the groups' z over the root of their number: a
    group's z is lower than the whole's, as it has fewer examples. RequestError where no model has
    sketches.
    """
    query = ResolvedQuery(
        model=data.name,
        dataset=None,
        kind=KIND,
        vector=data.fingerprint.vector,
        itself=None,
        sketches=None,
    )
    allowed = view.rows_where(filters) if filters else None
    rows = candidates_of(view, query, k, allowed)
    rows = rows if also is None else np.union1d(rows, also)
    labels = view.labels_at(rows.tolist())
    rows = np.array([row for row in rows.tolist() if row in labels], dtype=np.int64)
    compared = len(view) if allowed is None else len(allowed)
    groups, permuted = data.parts(GROUP), data.parts(PERMUTED)
    parts = [data.whole, *groups, *permuted]
    others = [other.whole for other in kept if _is_other(other, data)]
    scores = DataScores.of(view, [*parts, *others])
    models = scores.family.unwhitened(scores.family.stored(view, rows))
    places = np.arange(len(parts)), len(parts) + np.arange(len(others))
    (pairs,) = scores.compare(models, [(data.loss, *places)])
    of_groups, of_permuted = pairs.z[1 : 1 + len(groups)], pairs.z[1 + len(groups) :]
    calibration = DataCalibration.of(len(view), data.loss)
    order, judged = _rank(
        view, rows, pairs.z[0], [labels[row].dataset for row in rows.tolist()], calibration
    )
    errors: Sequence[float | None] = [None] * len(rows)
    if len(groups) > 2:
        errors = (of_groups.std(axis=0, ddof=1) / np.sqrt(len(groups)))[order].tolist()
    trained = []
    for at, (place, error) in enumerate(zip(order.tolist(), errors, strict=True)):
        row = int(rows[place])
        trained.append(
            TrainedModel.of(
                view.ids[row],
                labels[row],
                float(pairs.z[0, place]),
                float(pairs.cosines[0, place]),
                rank=at + 1,
                z_error=error,
                probability=judged.probability(at),
                fdr=float(judged.fdr[at]),
                verdict=judged.verdicts[at],
                base=view.base,
            )
        )
    return TrainedModels(
        recipe=view.recipe.name,
        recipe_id=view.recipe.id,
        models=tuple(trained),
        compared=compared,
        references=len(others) if len(others) >= FEWEST_REFERENCES else 0,
        control=float(np.median(of_permuted.max(axis=1))) if of_permuted.size else None,
        calibration=calibration,
    )


def _rank(
    view: FamilyView,
    rows: Codes,
    z: Numbers,
    labels: Sequence[str | None],
    calibration: Calibration,
) -> tuple[Codes, Judgement]:
    """The places of models by falling z with one data set, and what that proves."""
    order = rank_rows(view.ids, rows, z)
    ranked = [labels[place] for place in order.tolist()]
    return order, calibration.judge(z[order], ranked, n_candidates=len(view))


def _no_sketches(view: FamilyView) -> RequestError:
    return RequestError(
        f"no model of {view.base} has sketches under {view.recipe.id}, and a data set is compared "
        "with those; `deltadex index --recipe sketch` makes them"
    )


def _is_other(other: DataSet, data: DataSet) -> bool:
    """By name, and by the bytes of its files."""
    return data.name != other.name and data.sha256 != other.sha256


def find_trained_on(
    catalog: Catalog,
    data: DataSet,
    *,
    k: int,
    filters: Filters = EVERY_MODEL,
    control: DataSet | None = None,
    among: Sequence[str] = (),
) -> TrainedModels:
    """The `k` models of the data set's family nearest to its gradient, at one moment, each compared
    with `control` too: alike data that no model saw. The models `among` them, at most `k`, are
    there however near.

    Raises RequestError: the family keeps no sketches of the recipe, or the control cannot be
    compared with the data; an empty catalog and a bad filter raise its subclasses.
    """

    def answer() -> TrainedModels:
        view = catalog.family(data.base, data.fingerprint.recipe)
        kept = catalog.data_sets.all(data.base, view.recipe.id)
        named = view.rows(among)
        ranked = _rank_models(view, data, kept, k=k, filters=filters, also=named)
        wanted = {view.ids[row] for row in named.tolist()}
        others = [model.model for model in ranked.models if model.model not in wanted]
        wanted.update(others[: k - len(wanted)])
        nearest = tuple(model for model in ranked.models if model.model in wanted)
        comparison = None
        if control is not None and nearest:
            rows = view.rows([model.model for model in nearest])
            comparison = compare_data(view, data, control, rows)
        return replace(ranked, models=nearest, comparison=comparison)

    return catalog.look(answer)


def check_searchable(catalog: Catalog, base: str, *, recipe: str | None, filters: Filters) -> int:
    """The number of models that pass the filters, before a gradient is computed for them; raises
    what `find_trained_on` would raise."""

    def check() -> int:
        view = catalog.family(base, catalog.find_recipe(recipe, base))
        if not block_dims(view.recipe):
            raise _no_sketches(view)
        if view.recipe.share < 1:
            raise RequestError(
                f"{view.base} was indexed with a budget: recipe {view.recipe.id} reads some rows "
                "of each matrix, and a data set needs whole ones; run `deltadex index` without "
                "--budget, or name another recipe with --recipe"
            )
        return len(view.rows_where(filters)) if filters else len(view)

    return catalog.look(check)


def find_data(
    catalog: Catalog, model: str, *, base: str | None = None, recipe: str | None = None
) -> dict[str, Any]:
    """The document of the kept data sets of a stored model's family, nearest first.

    Raises RequestError where none is kept under the recipe, UnknownModel, and UnknownRecipe where
    the model has no such fingerprint.
    """

    def answer() -> dict[str, Any]:
        stored = catalog.stored(model, base)
        view = catalog.family(stored.base, catalog.find_recipe(recipe, stored.base))
        kept = catalog.data_sets.all(stored.base, view.recipe.id)
        if not kept:
            raise RequestError(
                f"no data set is kept for {stored.base}: `deltadex find-trained-on FILE --keep "
                "NAME` keeps one"
            )
        rows = view.rows([stored.id])
        if not len(rows):
            raise UnknownRecipe(f"{stored.id} has no fingerprint under {view.recipe.id}")
        found, calibrations = [], {}
        for data in kept:
            ranked = _rank_models(view, data, kept, also=rows)
            near = next(one for one in ranked.models if one.model == stored.id)
            found.append((data, near.z, near.cosine, near.z_error, near.probability, near.fdr))
            calibrations[data.name] = ranked.calibration
        nearest = _data_neighbours(found)
        return {
            "query": {"model": stored.id, "base": view.base},
            "recipe": view.recipe.name,
            "recipe_id": view.recipe.id,
            "verdict": nearest[0].verdict,
            "calibration": calibrations[nearest[0].data].to_json(),
            "data": [asdict(one) for one in nearest],
        }

    return catalog.look(answer)


def _data_neighbours(
    scored: Iterable[tuple[DataSet, float, float, float | None, float | None, float]],
) -> tuple[DataNeighbour, ...]:
    """Data sets by falling z with one model; each with its z, cosine, standard error, probability
    and rate among the models near it, which stands for a probability that is not known."""
    ranked = sorted(scored, key=lambda entry: (-entry[1], entry[0].name))
    rates = falling_rates((probability, rate) for *_, probability, rate in ranked)
    return tuple(
        DataNeighbour(
            rank=rank,
            data=data.name,
            examples=data.examples,
            loss=data.loss,
            cosine=min(1.0, max(-1.0, cosine)),
            z=z,
            z_error=error,
            probability=probability,
            fdr=down_to,
            verdict=verdict(False, probability, LONE_BOUND),
        )
        for rank, ((data, z, cosine, error, probability, _), down_to) in enumerate(
            zip(ranked, rates, strict=True), start=1
        )
    )


def kept_data_sets(catalog: Catalog, view: FamilyView) -> list[DataSet]:
    """The kept data sets of a view's family and recipe that can be compared with its models."""
    kept = catalog.data_sets.all(view.base, view.recipe.id)
    usable = [data for data in kept if WHOLE in data.sketches]
    return usable if usable and FamilyScores.of(view) is not None else []


def compare_kept(view: FamilyView, kept: Sequence[DataSet], rows: Rows) -> KeptEvidence | None:
    """Every data set with the models at some rows; None without any data set. Each is normalised by
    the others. Peak: the sketches of `BLOCK` models."""
    if not kept or FamilyScores.of(view) is None:
        return None
    scores, asked = DataScores.of(view, [data.whole for data in kept]), []
    for place, data in enumerate(kept):
        others = [at for at, other in enumerate(kept) if _is_other(other, data)]
        asked.append((data.loss, np.array([place]), np.array(others, dtype=np.int64)))
    z, cosines = np.empty((len(kept), len(rows))), np.empty((len(kept), len(rows)))
    for start in range(0, len(rows), BLOCK):
        block = slice(start, start + BLOCK)
        models = scores.family.unwhitened(scores.family.stored(view, rows[block]))
        for place, pairs in enumerate(scores.compare(models, asked)):
            z[place, block], cosines[place, block] = pairs.z[0], pairs.cosines[0]
    labels = view.labels_at(rows.tolist())
    datasets = [labels[row].dataset if row in labels else None for row in rows.tolist()]
    probabilities, rates = np.full(z.shape, np.nan), np.empty(z.shape)
    for place in range(len(kept)):
        known = DataCalibration.of(len(view), kept[place].loss)
        order, judged = _rank(view, rows, z[place], datasets, known)
        rates[place, order] = judged.fdr
        if judged.probabilities is not None:
            probabilities[place, order] = judged.probabilities
    return KeptEvidence(
        sets=tuple(kept), z=z, cosines=cosines, probabilities=probabilities, rates=rates
    )


def nearest_to_kept(
    view: FamilyView, kept: Sequence[DataSet], k: int
) -> list[tuple[DataSet, tuple[TrainedModel, ...]]]:
    """Each data set with the `k` models nearest to it, as `find-trained-on` ranks them."""
    return [(data, _rank_models(view, data, kept, k=k).models[:k]) for data in kept]


def judge_jointly(answers: Sequence[TrainedModels]) -> list[TrainedModels]:
    """The answers of several families to one data set, with the verdicts that so many together
    allow; families without a calibration have none, and do not count."""
    n = sum(answer.calibration.source != "the null alone" for answer in answers)
    judged = []
    for answer in answers:
        known = answer.calibration.among(n)
        models = (
            replace(model, verdict=verdict(False, model.probability, known.bound))
            for model in answer.models
        )
        judged.append(replace(answer, calibration=known, models=tuple(models)))
    return judged


def rank_jointly(answers: Sequence[TrainedModels]) -> tuple[TrainedModel, ...]:
    """The models of all families, those most likely trained on the data first; ties by z. Models of
    families that are too small for a probability come last, by z.

    z of two families have different scales; calibrated probabilities have one. A model stands where
    the lowest probability down to it in its own family puts it, so that every family keeps its
    order.

    The rate of a row is the mean of 1 − probability down to it, of one without a probability that
    of its own family; it never falls as one goes down.
    """
    placed: list[tuple[tuple[float, float, str, int], TrainedModel]] = []
    for answer in answers:
        lowest = 1.0
        for model in answer.models:
            lowest = min(lowest, -1.0 if model.probability is None else model.probability)
            key = round(-lowest, TIE_DECIMALS), round(-model.z, TIE_DECIMALS)
            placed.append(((*key, model.base, model.rank), model))
    placed.sort(key=lambda entry: entry[0])
    return tuple(with_rates([model for _, model in placed]))


MOST_SPLITS = 20_000
"""Splits that are enumerated; 8 and 8 values have 12,870. Of more, `DRAWN_SPLITS` are drawn."""

DRAWN_SPLITS = 9_999

ROUNDING = 1e-9
"""Of the largest value: sums that are equal but for rounding count as equal."""


def permutation_p(
    first: Float64[np.ndarray, "first columns"], second: Float64[np.ndarray, "second columns"]
) -> Float64[np.ndarray, " columns"]:
    """Two-sided p of the difference of means in each column, of all splits of the rows or of a
    sample in which the one that was found counts (Phipson, Smyth 2010)."""
    # scipy.stats.permutation_test draws other splits, and knows no tolerance for equal sums
    values = np.concatenate([first, second])
    chosen = _splits(len(values), len(first))
    scores = values - values.mean(axis=0)
    # sums of the first part alone order splits as differences of the means do
    sums = np.abs(chosen @ scores)
    found = np.abs(scores[: len(first)].sum(axis=0))
    tolerance = ROUNDING * np.abs(scores).max(axis=0) * len(values)
    extreme = (sums >= found - tolerance).sum(axis=0)
    is_drawn = comb(len(values), len(first)) > MOST_SPLITS
    return np.asarray((extreme + is_drawn) / (len(chosen) + is_drawn))


@lru_cache(maxsize=4)
def _splits(n: int, n_chosen: int) -> Float64[np.ndarray, "splits n"]:
    if comb(n, n_chosen) <= MOST_SPLITS:
        places = np.array(list(combinations(range(n), n_chosen)))
    else:
        rng = np.random.default_rng(0)
        places = rng.permuted(np.tile(np.arange(n), (DRAWN_SPLITS, 1)), axis=1)[:, :n_chosen]
    chosen = np.zeros((len(places), n))
    np.put_along_axis(chosen, places, 1.0, axis=1)
    chosen.flags.writeable = False
    return chosen


Nearer = Literal["nearer to the data", "nearer to the control", "cannot tell"]

WEIGHTS = {"update": 1.0, "output": 1.0, "input": 0.0}
"""Of the blocks; the input side says what kind of data it is, not which half."""

FEWEST_GROUPS = 4
"""Of each file; of 3 and 3 groups no permutation has a two-sided p below .1."""

FEWEST_OTHERS = 10
LEVEL = 0.05

SIGMA_SHARES = (NORMAL_LOWER, 1 - NORMAL_LOWER)
EQUAL_SETTINGS = ("loss", "max_tokens", "parts", "seed")
LEAST_NULL = 1e-9


def check_control(data: DataSet, control: DataSet) -> None:
    """Raise `RequestError` where the two cannot be compared: they are one file, too small, or
    differ in what decides the numbers."""
    if data.sha256 == control.sha256:
        raise RequestError(
            f"{control.name} is the same file as {data.name}: a control has other texts"
        )
    if data.loss != control.loss:
        raise RequestError(
            f"{data.name} has the loss {data.loss}, {control.name} {control.loss}: name one with "
            "--loss"
        )
    if data.counts.get("classes") != control.counts.get("classes"):
        raise RequestError(
            f"{data.name} has {data.counts.get('classes')} classes, {control.name} "
            f"{control.counts.get('classes')}: a control has the same classes"
        )
    head = data.settings.get("head")
    # with a head for each file groups of the two are not exchangeable
    if data.loss in LABELLED_LOSSES and (head is None or head != control.settings.get("head")):
        raise RequestError(
            f"{data.name} and {control.name} have a head each: name the files of both, so that one "
            "head is fitted on the two"
        )
    for setting in EQUAL_SETTINGS:
        one, other = data.settings.get(setting), control.settings.get(setting)
        if one != other:
            raise RequestError(
                f"{data.name} was made with {setting} {one}, {control.name} with {other}: make "
                "both with the same settings"
            )
    if data.examples != control.examples:
        raise RequestError(
            f"{data.name} has {count(data.examples, 'example')}, {control.name} "
            f"{control.examples}: make both with --max-examples "
            f"{min(data.examples, control.examples)}"
        )
    groups = len(data.parts(GROUP))
    if groups < FEWEST_GROUPS:
        raise RequestError(
            f"a comparison with a control needs {FEWEST_GROUPS} groups of 8: "
            f"{count(data.examples, 'example')} made {count(groups, 'group')}"
        )


def compare_data(view: FamilyView, data: DataSet, control: DataSet, rows: Rows) -> dict[str, Any]:
    """The document of how the models in some rows lie between a data set and its control, of as
    many examples, as `check_control` allows; the family has sketches. `others` models are the
    second null, 0 where there are too few; `models` as of `compare_with_control`."""
    check_control(data, control)
    family = FamilyScores.of(view)
    assert family is not None
    both = [SketchMatrix.of_rows(one.parts(GROUP), view.recipe) for one in (data, control)]
    models, ids = view.sketches(view.keys[rows]), [view.ids[row] for row in rows.tolist()]
    others = len(family.cohort) - int(np.isin(family.cohort, rows).any())
    return {
        "control": control.name,
        "examples": data.examples,
        "groups": len(both[0]),
        "others": others if others >= FEWEST_OTHERS else 0,
        "models": compare_groups(family, *both, models=models, ids=ids, rows=rows),
    }


def compare_groups(
    family: FamilyScores,
    data: SketchMatrix,
    control: SketchMatrix,
    *,
    models: SketchMatrix,
    ids: Sequence[str],
    rows: Rows,
) -> list[dict[str, Any]]:
    """The effect on the models in `rows`, from the gradients of groups of examples."""
    strangers = family.strangers.features
    among = [groups.cosines(strangers) for groups in (data, control)]
    spreads = block_spreads(np.concatenate(among, axis=1))
    # what cosines of each block are multiplied by before they are summed
    shares = np.array([WEIGHTS.get(block, 1.0) for block in strangers.dims])
    scale = shares / shares.sum() / spreads
    own, own_control, others, others_control = (
        np.tensordot(scale, cosines, axes=1)
        for cosines in (data.cosines(models), control.cosines(models), *among)
    )
    of_others = Differences.of(others, others_control)
    return compare_with_control(own, own_control, ids, of_others, rows[:, None] == family.cohort)


def block_spreads(
    cosines: Float64[np.ndarray, "blocks groups cohort"],
) -> Float64[np.ndarray, " blocks"]:
    """The strangers' spread in each block: one for the groups of both files, so that these stay
    exchangeable."""
    low, high = np.quantile(cosines, SIGMA_SHARES, axis=2)
    spreads: Float64[np.ndarray, " blocks"] = np.median((high - low) / 2, axis=1)
    np.maximum(spreads, LEAST_SPREAD, out=spreads)
    return spreads


@dataclass(frozen=True, slots=True, eq=False)
class Differences:
    """Mean scores with the data less those with the control, model by model, with Welch's standard
    errors."""

    means: Numbers
    errors: Numbers
    freedom: int

    @classmethod
    def of(
        cls,
        data: Float64[np.ndarray, "groups models"],
        control: Float64[np.ndarray, "others models"],
    ) -> Differences:
        variance = data.var(axis=0, ddof=1) / len(data)
        variance += control.var(axis=0, ddof=1) / len(control)
        errors = np.maximum(np.sqrt(variance), LEAST_SPREAD)
        freedom = len(data) + len(control) - 2
        return cls(data.mean(axis=0) - control.mean(axis=0), errors, freedom)


def compare_with_control(
    data: Float64[np.ndarray, "groups models"],
    control: Float64[np.ndarray, "control_groups models"],
    ids: Sequence[str],
    others: Differences,
    is_itself: Bool[np.ndarray, "models others"],
) -> list[dict[str, Any]]:
    """The effect on each model, from its scores with the groups: how much nearer it is to the data,
    in standard deviations of the family's strangers, with a 95 % interval, `low` to `high`, and the
    two-sided p of a model that saw neither. `others` are of the family's strangers."""
    from scipy import stats

    own = Differences.of(data, control)
    p_groups = permutation_p(data, control)
    effects = []
    for row, model in enumerate(ids):
        mean, error = float(own.means[row]), float(own.errors[row])
        half = float(stats.t.ppf(1 - LEVEL / 2, own.freedom)) * error
        low, high, effect, p = mean - half, mean + half, mean, float(p_groups[row])
        null = (others.means / others.errors)[~is_itself[row]]
        if len(null) >= FEWEST_OTHERS:
            effect, half, p_models = _among_others(mean, error, null)
            low, high = min(low, effect - half), max(high, effect + half)
            p = max(p, p_models) if effect * mean > 0 else 1.0
        told = {"model": model, "effect": effect, "low": low, "high": high, "p": p}
        effects.append(told | {"verdict": _verdict(low, high, p)})
    return effects


def _among_others(
    mean: float, error: float, null: Float64[np.ndarray, " others"]
) -> tuple[float, float, float]:
    """The effect less what all models have, half of its interval, and p: a prediction interval of
    one more value from `null`.

    Its spread is half of the middle 68 %, so that models that did see one of the files do not widen
    it; it is known as well as the standard deviation of half as many.
    """
    from scipy import stats

    low, centre, high = np.quantile(null, (SIGMA_SHARES[0], 0.5, SIGMA_SHARES[1]))
    n = len(null) / 2
    spread = max(float(high - low) / 2, LEAST_NULL) * np.sqrt(1 + 1 / n)
    effect = mean - float(centre) * error
    half = float(stats.t.ppf(1 - LEVEL / 2, n - 1)) * spread * error
    p = float(2 * stats.t.sf(abs(effect) / (error * spread), n - 1))
    return effect, half, p


def _verdict(low: float, high: float, p: float) -> Nearer:
    if p > LEVEL or low <= 0 <= high:
        return "cannot tell"
    return "nearer to the data" if low > 0 else "nearer to the control"
