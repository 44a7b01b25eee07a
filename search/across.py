"""Models of other bases that were trained on the same data, by a panel of data sets.

A model's column (`panels.py`), its cosines with the gradients of a panel, standardised over its
family, says where it lies among the data sets. How the columns of two bases correspond is learned
from the panel alone, whose gradients are known on both: kernel canonical correlations (Hardoon,
Szedmak, Shawe-Taylor 2004, Neural Computation 16) of the two kernels of gradients, regularised,
give each base directions that carry the same thing, and how well. Two models are compared by the
cosine of their canonical coordinates, weighted by these correlations.

That alone orders models of data that the panel has not, and proves little. What proves is a data
set of the panel that both models were likely trained on: the shared evidence is the largest product
of the two probabilities of `trained_on`. The score is the cosine + `EVIDENCE_WEIGHT` log(1 +
evidence / `EVIDENCE_SCALE`); a logistic regression takes it to the probability that two models were
trained on the same data. Its coefficients are of other families (`python -m benchmarks.families
across DB... --fit`). No label is asked.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ..arrays import Float64, Int64
from ..errors import RequestError, UnknownRecipe
from ..records import BUILTIN
from ..store import Catalog, Filters
from .evidence import FEWEST_MODELS, PERHAPS, Numbers, Verdict, sigmoid, verdict
from .family_scores import TIE_DECIMALS, Rows, bounded, lower_spread
from .neighbours import EVERY_MODEL, Query, ResolvedQuery, rank_rows, resolve
from .panels import Columns, PanelScores, panel_scores, shared_sets, standardised

FEWEST_SETS = 12
"""Data sets that two families share from which a probability is known."""

FEWEST_RANKED = 4
"""Shared data sets from which models can be ordered at all."""

KERNEL_RIDGE, CANONICAL_RIDGE = 0.3, 0.1
"""Added to the eigenvalues of a kernel and of the coordinates' covariance, in their means."""

EVIDENCE_WEIGHT, EVIDENCE_SCALE = 0.4, 0.3
"""Of shared evidence in a score. More weight finds more where the panel has the query's set, and
loses more where it has only sets like it."""

COEFFICIENTS = (-3.79, 3.57)
"""Of 1 and the score."""

LONE_BOUND = 0.47
"""Probability that about 5 % of models reach whose data no other base has; a verdict needs
`PERHAPS` too."""

Coordinates = Float64[np.ndarray, "canonical models"]


@dataclass(frozen=True, slots=True)
class Correspondence:
    """How the columns of two bases correspond, by the data sets that both have."""

    left: PanelScores
    right: PanelScores
    sets: tuple[list[int], list[int]]
    maps: tuple[Float64[np.ndarray, "canonical data"], Float64[np.ndarray, "canonical data"]]

    @classmethod
    def of(
        cls,
        left: PanelScores,
        right: PanelScores,
        sets: tuple[list[int], list[int]] | None = None,
    ) -> Correspondence:
        """By the shared data sets, or those at some places of each."""
        one, other = sets or shared_sets([left, right])
        roots, points = [], []
        for scores, places in ((left, one), (right, other)):
            root, coordinates = _kernel_coordinates(scores.kernel[np.ix_(places, places)])
            covariance = coordinates @ coordinates.T
            ridge = CANONICAL_RIDGE * np.trace(covariance) / len(covariance)
            whitening = _inverse_root(covariance, ridge)
            roots.append(whitening @ root)
            points.append(whitening @ coordinates)
        u, correlations, v = np.linalg.svd(points[0] @ points[1].T)
        maps = correlations[:, None] * (u.T @ roots[0]), correlations[:, None] * (v @ roots[1])
        return cls(left, right, (one, other), maps)

    def cosines(self, left: Columns, right: Columns) -> Float64[np.ndarray, "left right"]:
        """Of the canonical coordinates of models of the two bases."""
        mine, theirs = (
            _coordinates(scores, columns, places, map)
            for scores, columns, places, map in zip(
                (self.left, self.right), (left, right), self.sets, self.maps, strict=True
            )
        )
        return np.asarray(mine.T @ theirs)

    def shared_evidence(
        self, left: Columns, right: Columns
    ) -> tuple[Float64[np.ndarray, "left right"], Int64[np.ndarray, "left right"]]:
        """The largest product, over the shared data sets, of the probabilities that two models were
        trained on it; and the place of that data set."""
        mine = self.left.probabilities(left)[self.sets[0]]
        theirs = self.right.probabilities(right)[self.sets[1]]
        best = np.zeros((mine.shape[1], theirs.shape[1]))
        which = np.zeros(best.shape, dtype=np.int64)
        for place, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            product = np.outer(one, other)
            which[product > best] = place
            np.maximum(best, product, out=best)
        return best, which


def _kernel_coordinates(
    kernel: Float64[np.ndarray, "data data"],
) -> tuple[Float64[np.ndarray, "data data"], Float64[np.ndarray, "data data"]]:
    """What takes centred columns to coordinates, and the coordinates of the data sets, (data,
    data)."""
    length = np.sqrt(np.diag(kernel))
    kernel = kernel / np.outer(length, length)
    centred = kernel - kernel.mean(axis=0) - kernel.mean(axis=1)[:, None] + kernel.mean()
    root = _inverse_root(centred, KERNEL_RIDGE * np.trace(centred) / len(centred))
    return root, root @ centred


def _inverse_root(matrix: Float64[np.ndarray, "n n"], ridge: float) -> Float64[np.ndarray, "n n"]:
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    scales = (np.maximum(values, 0.0) + max(ridge, np.finfo(float).tiny)) ** -0.5
    return np.asarray((vectors * scales) @ vectors.T)


def _coordinates(
    scores: PanelScores,
    columns: Columns,
    places: list[int],
    map: Float64[np.ndarray, "canonical data"],
) -> Coordinates:
    """Canonical coordinates of unit length; columns are standardised as their family's are."""
    own, family = (side.cosines[:, places] for side in (columns, scores.columns))
    own = standardised(own, family).sum(axis=0)
    found = map @ (own - own.mean(axis=0))
    return np.asarray(found / np.maximum(np.linalg.norm(found, axis=0), np.finfo(float).tiny))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAcross:
    """A model of another base near the query. cosine: of canonical coordinates, −1…1. z: of the
    score, in deviations among the models of its base. data: the panel's data set that both were
    likeliest trained on, and `data_probability` the product of the two probabilities; None where
    words were compared."""

    rank: int
    model: str
    base: str
    probability: float | None
    verdict: Verdict
    z: float
    fdr: float | None
    cosine: float
    score: float
    data: str | None
    data_probability: float | None
    dataset: str | None
    author: str | None
    run: str | None


def find_across(
    catalog: Catalog,
    query: Query,
    panel: str,
    *,
    k: int,
    filters: Filters = EVERY_MODEL,
    recipe: str | None = None,
) -> dict[str, Any]:
    """The document of the `k` models of other bases that were likeliest trained on the query's
    data, by the panel of that name; "" is that of the data sets that were kept by themselves.

    Raises RequestError: k < 1, the query's family has none of the panel, or no other family can be
    compared with it.
    """
    if k < 1:
        raise RequestError(f"k must be at least 1, got {k}")

    def answer() -> dict[str, Any]:
        view, resolved = resolve(catalog, query, recipe, None)
        mine = panel_scores(catalog, view, panel)
        n_own = 0 if mine is None else len(mine.sets)
        if mine is None or n_own < FEWEST_RANKED:
            raise RequestError(f"{view.base} {_too_few(panel, n_own)}")
        column = _column(mine, resolved)
        left_out, families, found = [], [], []
        for base in catalog.bases():
            if base == view.base:
                continue
            try:
                other = catalog.family(base, catalog.find_recipe(recipe, base))
            except UnknownRecipe as err:
                left_out.append({"base": base, "reason": str(err)})
                continue
            theirs = panel_scores(catalog, other, panel)
            n_shared = 0 if theirs is None else len(shared_sets([mine, theirs])[0])
            if theirs is None or n_shared < FEWEST_RANKED:
                left_out.append({"base": base, "reason": _too_few(panel, n_shared)})
                continue
            some, about = _of_family(mine, theirs, column, k, filters)
            found += some
            families.append(about)
        if not families:
            reasons = "; ".join(f"{row['base']} {row['reason']}" for row in left_out)
            raise RequestError(f"no other family to compare {view.base} with: {reasons or 'none'}")
        ranked = ranked_across(found, k)
        return {
            "query": {
                "model": resolved.model,
                "base": view.base,
                "dataset": resolved.dataset,
                "data": _likeliest(mine, column),
            },
            "panel": {"name": panel, "sets": len(mine.sets)},
            "recipe": view.recipe.name,
            "verdict": ranked[0].verdict if ranked else "no model stands out",
            "verdict_from": max(PERHAPS, LONE_BOUND),
            "neighbours": [asdict(model) for model in ranked],
            "families": families,
            "left_out": left_out,
        }

    return catalog.look(answer)


def _too_few(panel: str, n: int) -> str:
    what = f"panel {panel}" if panel else "kept data"
    if n:
        return f"has {n} of the data sets of {what} to compare; {FEWEST_RANKED} are needed"
    ways = {"": "find-trained-on FILE --keep NAME", BUILTIN: "panel build"}
    how = ways.get(panel, f"panel build FOLDER --name {panel}")
    return f"has no data set of {what}: `deltadex {how}` computes them"


def _column(scores: PanelScores, query: ResolvedQuery) -> Columns:
    rows = scores.view.rows([] if query.itself is None else [query.itself])
    if len(rows):
        return scores.columns.take(rows)
    if query.sketches is None:
        raise RequestError(f"{query.model} has no sketches, and is compared by those")
    return scores.of_model(query.sketches, query.kind)


def _likeliest(scores: PanelScores, column: Columns, n: int = 3) -> list[dict[str, Any]]:
    """The panel's data sets nearest to a model."""
    known = scores.probabilities(column)[:, 0]
    order = np.argsort(-column.z[:, 0], kind="stable")[:n]
    return [
        {"data": scores.names[place], "z": float(column.z[place, 0]), "probability": known[place]}
        for place in order.tolist()
    ]


def scores_of(cosines: Numbers, evidence: Numbers) -> Numbers:
    """What models of one base are ranked by, of their cosines with the query and the evidence that
    they share with it."""
    return np.asarray(cosines + EVIDENCE_WEIGHT * np.log1p(evidence / EVIDENCE_SCALE))


def probabilities(scores: Numbers) -> Numbers:
    """That models of two bases were trained on the same data, 0…1."""
    constant, of_score = COEFFICIENTS
    return sigmoid(constant + of_score * scores)


def _of_family(
    mine: PanelScores, theirs: PanelScores, column: Columns, k: int, filters: Filters
) -> tuple[list[ModelAcross], dict[str, Any]]:
    """The `k` likeliest models of another base, not yet ranked among others, and what they are
    chosen from."""
    view = theirs.view
    pairs = Correspondence.of(mine, theirs)
    n_sets, n_models = len(pairs.sets[0]), len(view)
    (cosines,) = pairs.cosines(column, theirs.columns)
    (evidence,), (which,) = pairs.shared_evidence(column, theirs.columns)
    scores = scores_of(cosines, evidence)
    centre, spread = lower_spread(scores)
    z, likely = (scores - centre) / spread, probabilities(scores)
    is_known = n_sets >= FEWEST_SETS and min(n_models, len(mine.view)) >= FEWEST_MODELS
    rows: Rows = view.rows_where(filters) if filters else np.arange(n_models)
    rows = rows[rank_rows(view.ids, rows, scores[rows])][:k]
    labels = view.labels_at(rows.tolist())
    models = []
    for row in rows.tolist():
        p = float(likely[row]) if is_known else None
        shared = mine.names[pairs.sets[0][int(which[row])]] if evidence[row] > 0 else None
        models.append(
            ModelAcross(
                rank=0,
                model=view.ids[row],
                base=view.base,
                probability=p,
                verdict=verdict(False, p, LONE_BOUND),
                z=float(z[row]),
                fdr=None,
                cosine=float(np.clip(cosines[row], -1.0, 1.0)),
                score=float(bounded(np.array([z[row]]))[0]),
                data=shared,
                data_probability=float(evidence[row]),
                dataset=labels[row].dataset,
                author=labels[row].author,
                run=labels[row].run,
            )
        )
    about = {
        "base": view.base,
        "models": n_models,
        "sets": n_sets,
        "losses": sorted({data.loss for data in theirs.sets}),
        "is_calibrated": is_known,
    }
    return models, about


def ranked_across(found: list[ModelAcross], k: int) -> list[ModelAcross]:
    """The likeliest of all bases, those of unknown probability last, with rates of false
    discoveries down to each."""

    def key(model: ModelAcross) -> tuple[bool, float, str, str]:
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
