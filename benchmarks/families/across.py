"""Models of one base found by models of another, by panels of several sizes.

Every model of a family asks another family, by panels that have the query's set and by panels that
have neither it nor a set with its rows; then again where no model of its set is left. `fit` gives
the coefficients of `deltadex.search.across`.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np

import deltadex as dx
from deltadex.arrays import Bool, Float64
from deltadex.search.across import EVIDENCE_FLOOR, LONE_BOUND, Correspondence, probabilities
from deltadex.search.family_scores import FamilyScores
from deltadex.search.panels import PanelScores
from deltadex.store import Catalog

from .text_sets import CUTS, OTHER_CUTS, Cut, read_set, rows_of_half

SIZES = (6, 12, 24, 48)
DRAWS = 3
PANELS = ("cuts", "builtin")
EXAMPLES = 128
RANKED = 5
"""Rows of a ranking that are fitted; the further ones are far below."""


@dataclass(frozen=True, slots=True)
class Family:
    """A family's columns over all data sets of both panels, and the set of each model."""

    name: str
    scores: PanelScores
    sets: list[str]


@dataclass(frozen=True, slots=True)
class Case:
    """A query, and the models of another base that it was compared with."""

    pair: str
    size: int
    has_set: bool
    wanted: str
    cosines: Float64[np.ndarray, " models"]
    evidence: Float64[np.ndarray, " models"]
    is_right: Bool[np.ndarray, " models"]

    def rows(
        self, *, lone: bool
    ) -> tuple[Float64[np.ndarray, "rows 2"], Bool[np.ndarray, " rows"]]:
        """Cosine and evidence of the models that may be ranked, and whether each is right."""
        kept = ~self.is_right if lone else np.ones(len(self.is_right), np.bool_)
        return np.column_stack([self.cosines, self.evidence])[kept], self.is_right[kept]


def build_panels(db: Path, texts: Path) -> None:
    """Compute what is missing: the second half of every cut, and the panel of the package."""
    with tempfile.TemporaryDirectory() as temporary, dx.open(db) as opened:
        for name in (*CUTS, *OTHER_CUTS):
            rows = read_set(texts, name)
            half = rows_of_half(len(rows), 1, causal=True)
            with (Path(temporary) / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([("text", "label"), *(rows[i] for i in half)])
        opened.panels.build(temporary, name=PANELS[0], max_examples=EXAMPLES)
        opened.panels.build()


def read_family(db: Path) -> Family:
    catalog = Catalog.open(db, read_only=True)
    (base,) = catalog.bases()

    def read() -> Family:
        view = catalog.family(base, catalog.find_recipe("sketch", base))
        kept = [
            data for panel in PANELS for data in catalog.data_sets.all(base, view.recipe.id, panel)
        ]
        scores = FamilyScores.of(view)
        assert scores is not None
        labels = view.labels_at(range(len(view)))
        sets = [
            (labels[row].dataset or "").removesuffix(" a").removesuffix(" b")
            for row in range(len(view))
        ]
        return Family(db.stem, PanelScores(view, kept, scores), sets)

    return catalog.look(read)


def cases_of(left: Family, right: Family, sizes: Sequence[int] = SIZES) -> Iterator[Case]:
    """Every model of `left` asks `right`."""
    names, places = left.scores.names, {n: i for i, n in enumerate(right.scores.names)}
    pool = [name for name in names if name in places]
    rng = np.random.default_rng(0)
    right_sets = np.array(right.sets)
    for has_set in (True, False):
        for size in sizes:
            for wanted in CUTS:
                queries = [row for row, name in enumerate(left.sets) if name == wanted]
                others = [name for name in pool if not _overlaps(name, wanted)]
                for _ in range(DRAWS):
                    drawn = rng.permutation(others).tolist()[: size - has_set]
                    chosen = [*([wanted] if has_set else []), *drawn]
                    here = [names.index(name) for name in chosen], [places[name] for name in chosen]
                    pairs = Correspondence.of(left.scores, right.scores, here)
                    mine = left.scores.columns.take(queries)
                    cosines = pairs.cosines(mine, right.scores.columns)
                    evidence, _ = pairs.shared_evidence(mine, right.scores.columns)
                    for row, shared in zip(cosines, evidence, strict=True):
                        yield Case(
                            pair=f"{left.name} → {right.name}",
                            size=size,
                            has_set=has_set,
                            wanted=wanted,
                            cosines=row,
                            evidence=shared,
                            is_right=right_sets == wanted,
                        )


def _overlaps(name: str, wanted: str) -> bool:
    """Whether a data set of the panel has rows of the wanted one."""
    other: Cut | None = OTHER_CUTS.get(name)
    return name == wanted or (other is not None and other.file == CUTS[wanted].file)


def score_across(dbs: Sequence[Path], texts: Path, *, fit: bool) -> str:
    """The table of every ordered pair of families, or the coefficients that fit them."""
    for db in dbs:
        build_panels(db, texts)
    families = [read_family(db) for db in dbs]
    cases = [case for pair in permutations(families, 2) for case in cases_of(*pair)]
    return _fitted(cases) if fit else _table(cases)


def _table(cases: Sequence[Case]) -> str:
    lines = [
        "| bases | sets | with the set: nn1, purity | answered, wrong | without: nn1, purity | "
        "answered, wrong | lone, silent |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    keys = dict.fromkeys((case.pair, case.size) for case in cases)
    for pair, size in keys:
        cells = [pair, str(size)]
        of_both = [case for case in cases if (case.pair, case.size) == (pair, size)]
        for has_set in (True, False):
            own = [case for case in of_both if case.has_set == has_set]
            found = [_asked(case, lone=False) for case in own]
            nn1, purity, answered, wrong = (np.array(column) for column in zip(*found, strict=True))
            cells.append(f"{nn1.mean():.2f}, {purity.mean():.2f}")
            cells.append(f"{answered.mean():.2f}, {wrong.sum()} of {answered.sum()}")
        silent = [not _asked(case, lone=True)[2] for case in of_both]
        cells.append(f"{np.mean(silent):.3f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _asked(case: Case, *, lone: bool) -> tuple[bool, float, bool, bool]:
    """Whether the first is right, purity, whether there is a verdict, and whether it is wrong."""
    features, right = case.rows(lone=lone)
    known = probabilities(features[:, 0], features[:, 1])
    order = np.argsort(-known, kind="stable")
    n = max(1, int(right.sum()))
    answered = bool(known[order[0]] >= LONE_BOUND)
    first = bool(right[order[0]])
    return first, float(right[order[:n]].mean()), answered, answered and not first


def _fitted(cases: Sequence[Case]) -> str:
    """Coefficients of a logistic regression on the first rows of each ranking, asked with the
    models of the set and again without; and the bound of lone queries, pairs held out."""
    from sklearn.linear_model import LogisticRegression

    rows, truth, pair, best, lone = [], [], [], [], []
    for case in cases:
        for is_lone in (False, True):
            features, right = case.rows(lone=is_lone)
            order = np.argsort(-probabilities(features[:, 0], features[:, 1]), kind="stable")[
                :RANKED
            ]
            rows.append(features[order])
            truth.append(right[order])
            pair += [case.pair] * len(order)
            best += [place == 0 for place in range(len(order))]
            lone += [is_lone] * len(order)
    columns, y = np.concatenate(rows), np.concatenate(truth)
    columns[:, 1] = np.log(columns[:, 1] + EVIDENCE_FLOOR)
    pairs, first, without = np.array(pair), np.array(best), np.array(lone)
    held_out = np.zeros(len(y))
    for name in dict.fromkeys(pair):
        # neither family of the pair that is asked
        used = np.array([not set(name.split(" → ")) & set(one.split(" → ")) for one in pair])
        if not used.any():
            used = pairs != name
        fitted = LogisticRegression(C=100.0).fit(columns[used], y[used])
        held_out[pairs == name] = fitted.predict_proba(columns[pairs == name])[:, 1]
    whole = LogisticRegression(C=100.0).fit(columns, y)
    coefficients = (*whole.intercept_, *whole.coef_[0])
    bound = np.quantile(held_out[first & without], 0.95)
    error = np.mean(
        [
            abs(held_out[first & (bins == place)].mean() - y[first & (bins == place)].mean())
            for bins in [np.digitize(held_out, np.linspace(0.1, 0.9, 9))]
            for place in range(10)
            if (first & (bins == place)).any()
        ]
    )
    return (
        f"COEFFICIENTS = {tuple(round(float(x), 2) for x in coefficients)}\n"
        f"LONE_BOUND = {bound:.2f}, mean calibration error of bins {error:.3f}"
    )
