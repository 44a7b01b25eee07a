"""Whether evidence holds: answers at a false discovery rate, and queries that nothing answers.

Data sets are held out: a query's own labels are hidden before its answers are calibrated. Every
query is asked a second time after the other models of its data set were taken out of the family.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from deltadex.records import Recipe
from deltadex.search.evidence import PERHAPS, calibrate
from deltadex.search.family_scores import Cohort, FamilyScores
from deltadex.store import FamilyView, SketchMatrix


class Subfamily:
    """Some models of a family, scored as if there were no others."""

    def __init__(
        self,
        matrix: SketchMatrix,
        rows: np.ndarray,
        ids: Sequence[str],
        kinds: Sequence[str],
        recipe: Recipe,
    ) -> None:
        """Of some rows of the whole family's sketches."""
        self.ids, own = [ids[row] for row in rows], [kinds[row] for row in rows]
        cohort = Cohort.sample(self.ids, own)
        self.scores = FamilyScores(cohort, recipe, lambda part: matrix.take(rows[part]))
        models = self.scores.prepare(matrix.take(rows), own, list(range(len(rows))))
        pairs = self.scores.compare(models, models)
        self.z, self.cosines = pairs.z, pairs.cosines

    def rates(self, query: int, candidates: np.ndarray, labels: Sequence[str | None]) -> np.ndarray:
        """False discovery rates of a query's candidates, nearest first, from these labels."""
        named = [labels[row] for row in self.scores.cohort.tolist()]
        cohort = self.scores.evidence
        calibration = calibrate(cohort.z, named, cohort.are_strangers, len(self.ids))
        z = np.sort(self.z[query, candidates])[::-1]
        return calibration.fdr(z, len(candidates))


class KnownCosines(SketchMatrix):
    """Sketches whose cosines were computed once for all subfamilies."""

    def __init__(self, whole: SketchMatrix, cosines: np.ndarray, rows: np.ndarray) -> None:
        super().__init__(whole.dims, whole.slots, whole.weights[rows], whole.codes[:0])
        self._whole, self._cosines, self._rows = whole, cosines, rows

    def take(self, rows: np.ndarray) -> KnownCosines:
        return KnownCosines(self._whole, self._cosines, self._rows[rows])

    def cosines(self, other: SketchMatrix) -> np.ndarray:
        assert isinstance(other, KnownCosines)
        return self._cosines[:, self._rows][:, :, other._rows]


def subfamilies(view: FamilyView, rows: np.ndarray) -> Callable[[np.ndarray], Subfamily]:
    """Makes a family of some of these models."""
    whole = view.sketches(view.keys[rows])
    known = KnownCosines(whole, whole.cosines(whole), np.arange(len(rows)))
    ids, kinds = [view.ids[row] for row in rows], [view.kinds[row] for row in rows]
    return lambda chosen: Subfamily(known, chosen, ids, kinds, view.recipe)


@dataclass(slots=True)
class Tally:
    """What was answered in a kind of family."""

    right: list[bool] = field(default_factory=list)
    reached: list[float] = field(default_factory=list)
    silent: list[bool] = field(default_factory=list)

    def line(self, name: str) -> str:
        """A row of the table."""
        wrong = f"{1 - np.mean(self.right):.1%}" if self.right else ""
        recall = f"{np.mean(self.reached):.2f}" if self.reached else ""
        silent = f"{np.mean(self.silent):.1%}" if self.silent else ""
        return (
            f"| {name} | {len(self.right)} | {wrong} | {recall} | {len(self.silent)} | {silent} |"
        )


HEADER = (
    "| family | reported | wrong | siblings reported | lone queries | no model stands out |",
    "| --- | ---: | ---: | ---: | ---: | ---: |",
)


def tally_family(
    tally: Tally,
    make: Callable[[np.ndarray], Subfamily],
    rows: np.ndarray,
    datasets: Sequence[str],
    authors: Sequence[str],
    *,
    hide_labels: bool,
) -> Subfamily:
    """Ask every labelled model of a family, among its siblings and without them."""
    family = make(rows)
    own = [datasets[row] for row in rows]
    for query, dataset in enumerate(own):
        if not dataset:
            continue
        others = np.array([
            place for place, row in enumerate(rows)
            if place != query and authors[row] != authors[rows[query]]
        ], dtype=np.int64)  # fmt: skip
        labels = [None if hide_labels or name == dataset else name or None for name in own]
        order = others[np.argsort(-family.z[query, others], kind="stable")]
        rates = family.rates(query, others, labels)
        is_sibling = np.array([own[place] == dataset for place in order], dtype=bool)
        if is_sibling.any():
            tally.right += is_sibling[(rates <= PERHAPS) & [own[p] != "" for p in order]].tolist()
            tally.reached.append(float((rates[is_sibling] <= PERHAPS).mean()))
        alone = np.array([p for p, name in enumerate(own) if p == query or name != dataset])
        if len(alone) > 3:
            tally.silent.append(
                _is_silent(make(rows[alone]), int(np.flatnonzero(alone == query)[0]),
                           [labels[place] for place in alone],
                           [place for place, p in enumerate(alone) if p in others])
            )  # fmt: skip
    return family


def _is_silent(
    family: Subfamily, query: int, labels: Sequence[str | None], others: Sequence[int]
) -> bool:
    rates = family.rates(query, np.array(others, dtype=np.int64), labels)
    return bool(rates.size == 0 or rates[0] > PERHAPS)
