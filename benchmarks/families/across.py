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
from deltadex.search.across import LONE_BOUND, Correspondence, probabilities, scores_of
from deltadex.search.evidence import verdict
from deltadex.search.family_scores import FamilyScores
from deltadex.search.panels import PanelScores
from deltadex.store import Catalog

from .text_sets import CUTS, OTHER_CUTS, Cut, read_set, rows_of_half

SIZES = (6, 12, 24, 48)
DRAWS = 3
PANELS = ("cuts", "builtin")
EXAMPLES = 128
SILENT = "no model stands out"
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
    scores: Float64[np.ndarray, " models"]
    is_right: Bool[np.ndarray, " models"]

    def ranking(
        self, *, lone: bool
    ) -> tuple[Float64[np.ndarray, " rows"], Bool[np.ndarray, " rows"]]:
        """Scores of the models that may be found, falling, and whether each is right."""
        kept = ~self.is_right if lone else np.ones(len(self.is_right), np.bool_)
        order = np.argsort(-self.scores[kept], kind="stable")
        return self.scores[kept][order], self.is_right[kept][order]


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
                            scores=scores_of(row, shared),
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
    scores, right = case.ranking(lone=lone)
    answered = verdict(False, float(probabilities(scores[:1])[0]), LONE_BOUND) != SILENT
    first, n = bool(right[0]), max(1, int(right.sum()))
    return first, float(right[:n].mean()), answered, answered and not first


def _fitted(cases: Sequence[Case]) -> str:
    """Coefficients of a logistic regression on the first rows of each ranking, asked with the
    models of the set and again without; and the bound of lone queries, pairs of bases held out."""
    from sklearn.linear_model import LogisticRegression

    rows = []
    for case in cases:
        pair = " ".join(sorted(case.pair.split(" → ")))
        for lone in (False, True):
            found = zip(*case.ranking(lone=lone), range(RANKED), strict=False)
            rows += [(pair, lone, *row) for row in found]
    pairs, without, scores, truth, places = map(np.array, zip(*rows, strict=True))
    first = places == 0
    columns, held_out = scores[:, None], np.zeros(len(rows))
    for pair in np.unique(pairs):
        own = pairs == pair
        fitted = LogisticRegression(C=100.0).fit(columns[~own], truth[~own])
        held_out[own] = fitted.predict_proba(columns[own])[:, 1]
    whole = LogisticRegression(C=100.0).fit(columns, truth)
    bins = np.digitize(held_out, np.linspace(0.1, 0.9, 9))
    error = 0.0
    for place in np.unique(bins[first]):
        inside = first & (bins == place)
        error += inside.sum() / first.sum() * abs(held_out[inside].mean() - truth[inside].mean())
    coefficients = whole.intercept_[0], whole.coef_[0, 0]
    return (
        f"COEFFICIENTS = {tuple(round(float(x), 2) for x in coefficients)}\n"
        f"LONE_BOUND = {np.quantile(held_out[first & without], 0.95):.2f}; ECE {error:.3f}"
    )
