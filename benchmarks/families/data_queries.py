"""Data sets as queries: the fine-tunes of the other half of a set, found by the base's gradient.

Queries are cached: computing them takes longer than all the rest. `fit_evidence` gives the
coefficients of `deltadex.search.trained_on`: every set is asked of families that lack another file,
and of families that lack its own.
"""

from __future__ import annotations

import pickle
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from deltadex.data.examples import Example
from deltadex.indexer import IndexOptions, index_family
from deltadex.indexer.fingerprint import make_recipe
from deltadex.records import DataSet, LossName
from deltadex.search import labelled_models
from deltadex.search.family_scores import Cohort, FamilyScores, Scored
from deltadex.search.trained_on import LONE_BOUND, DataCalibration, DataScores
from deltadex.store import Catalog, FamilyView, SketchMatrix

from .base import base_folder, small_base
from .build import write_labels
from .plan import Plan
from .score import kind_of
from .text_sets import CUTS, read_set, rows_of_half

CANDIDATES = {
    "full, other half": ("halves", "a"),
    "full, same half": ("halves", "b"),
    "LoRA": ("lora", ""),
    "few steps": ("few-steps", ""),
    "half frozen": ("frozen", ""),
    "everything": ("", ""),
}
"""By name the folder of the candidates, and the half that they were trained on."""

QUERY_HALF = 1
MAX_TOKENS = 48

COMPOSITIONS = {"all": (), "full": ("full",), "halves": ("halves",)}
"""Of the families that coefficients are fitted on: everything, full fine-tunes, halves alone."""

STRENGTH = 10.0
"""Of the regression's coefficients against its penalty: scikit-learn's C."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a set becomes a query.

    Attributes:
        examples: Of its second half, at most; of the first where `half` is 0.
        labels: `own`, `none`, `shuffled` or `noisy`: a quarter of them drawn anew.
    """

    examples: int
    labels: str
    half: int = QUERY_HALF

    @property
    def name(self) -> str:
        """As the table has it."""
        return f"{self.examples} examples, labels: {self.labels}"


def score_data(
    out: Path, texts: Path, base: Path | None, db: Path, plan: Plan, sizes: Sequence[int]
) -> str:
    """Markdown: for each way and kind of candidate, whether the set's fine-tunes are nearest."""
    base = base or (small_base(out) if plan.causal else base_folder())
    write_labels(out)
    ways = [Way(size, "none" if plan.causal else "own") for size in sizes]
    if not plan.causal:
        ways += [Way(512, labels) for labels in ("none", "noisy", "shuffled")]
    cache = db.with_suffix(".queries")
    cache.mkdir(parents=True, exist_ok=True)
    queries = {way: list(_queries(texts, base, cache, way, plan)) for way in ways}
    with Catalog.open(db) as catalog:
        index_family(catalog, IndexOptions(base=str(base), source=out, labels=out / "labels.csv"))
        models = labelled_models(
            catalog.family(catalog.bases()[0], catalog.find_recipe(None, None))
        )
        view = catalog.family(catalog.bases()[0], catalog.find_recipe(None, None))
        datasets = dict(
            zip(
                models.ids,
                (re.sub(" [ab]$", "", label or "") for label in models.labels),
                strict=True,
            )
        )
        lines = [
            "| query | candidates | queries | nn1 | purity | chance |",
            "| --- | --- | ---: | ---: | ---: | ---: |",
        ]
        for way, answers in queries.items():
            lines += _rows(view, datasets, way.name, answers)
        lines += _rows(view, datasets, "a 25-step fine-tune", list(_few_step_queries(view)))
        lines += ["", *_evidence(view, datasets, queries)]
        cpu = [seconds for answers in queries.values() for *_, seconds in answers if seconds]
    if cpu:
        lines += ["", f"{median(cpu):.1f} s of processor time a query (median of {len(cpu)})"]
    return "\n".join(lines)


Query = tuple[str, SketchMatrix, LossName, float]
"""A set, its sketches, its loss, and the seconds that they took; 0 from the cache."""


def _queries(texts: Path, base: Path, cache: Path, way: Way, plan: Plan) -> Iterator[Query]:
    from deltadex.data.gradients import DataQueryOptions, fingerprint_data
    from deltadex.study.network.language_head import load_task_model

    recipe, options = make_recipe("sketch", None, ()), DataQueryOptions(max_tokens=MAX_TOKENS)
    model = None
    for name in plan.sets:
        half = "-first" if way.half == 0 else ""
        path = cache / f"{name}-{way.examples}-{way.labels}{half}.pkl"
        seconds = 0.0
        if not path.exists():
            if model is None:
                labelled = way.labels != "none"
                model = load_task_model(str(base), labelled=labelled)
            start = time.process_time()
            found = fingerprint_data(model, _examples(texts, name, way, plan), recipe, options)
            seconds = time.process_time() - start
            path.write_bytes(pickle.dumps(found))
        found: DataSet = pickle.loads(path.read_bytes())
        yield name, SketchMatrix.of_rows([found.whole], recipe), found.loss, seconds


def _examples(texts: Path, name: str, way: Way, plan: Plan) -> list[Example]:
    rows = read_set(texts, name)
    rng = np.random.default_rng(5)
    chosen = rng.permutation(rows_of_half(len(rows), way.half, causal=plan.causal))
    examples = [Example(text=rows[i][0], label=rows[i][1]) for i in chosen[: way.examples]]
    if way.labels == "none":
        return [replace(example, label=None) for example in examples]
    if way.labels in ("shuffled", "noisy"):
        labels = np.array([str(example.label) for example in examples])
        drawn = rng.random(len(labels)) < (1.0 if way.labels == "shuffled" else 0.25)
        labels[drawn] = rng.permutation(labels[drawn])
        return [replace(e, label=label) for e, label in zip(examples, labels, strict=True)]
    return examples


def _few_step_queries(view: FamilyView) -> Iterator[Query]:
    """The rival: a short fine-tune on the whole set, as it stands in the catalog."""
    for row, id in enumerate(view.ids):
        name = id.partition("/")[2].rpartition("-")[0]
        if kind_of(id) == "few-steps" and name in CUTS:
            yield name, view.sketches(view.keys[np.array([row])]), "classification", 0.0


def _rows(
    view: FamilyView, datasets: dict[str, str], way: str, queries: Sequence[Query]
) -> Iterator[str]:
    """A line for each kind of candidate."""
    scores = FamilyScores.of(view)
    assert scores is not None
    everything = scores.unwhitened(scores.stored(view, np.arange(len(view))))
    own = np.array([datasets.get(id, "") for id in view.ids])
    z = {name: _z(scores, sketches, loss, everything) for name, sketches, loss, _ in queries}
    for candidates, (folder, half) in CANDIDATES.items():
        is_few = "25-step" in way and folder in ("few-steps", "")
        rows = np.array([
            row for row, id in enumerate(view.ids)
            if own[row] and (not folder or kind_of(id) == folder)
            and (not half or f"-{half}-" in id)
        ], dtype=np.int64)  # fmt: skip
        results = []
        for name, values in z.items():
            same = own[rows] == name
            if same.any() and not same.all() and not is_few:
                order = np.argsort(-values[rows], kind="stable")
                results.append((same[order[0]], same[order[: same.sum()]].mean(), same.mean()))
        if results:
            nn1, purity, chance = np.mean(results, axis=0)
            yield (
                f"| {way} | {candidates} | {len(results)} | {nn1:.2f} | {purity:.2f} "
                f"| {chance:.2f} |"
            )


class Subfamily:
    """Some models of a family, scored as if there were no others."""

    def __init__(self, view: FamilyView, rows: np.ndarray) -> None:
        self.n = len(rows)
        ids, kinds = [view.ids[row] for row in rows], [view.kinds[row] for row in rows]
        matrix = view.sketches(view.keys[rows])
        self._family = FamilyScores(Cohort.sample(ids, kinds), view.recipe, matrix.take)
        models = self._family.prepare(matrix, kinds, list(range(len(rows))))
        self._models: Scored = self._family.unwhitened(models)

    def ask(self, sketches: SketchMatrix, loss: LossName) -> tuple[np.ndarray, DataCalibration]:
        """z of a data set with every model, and what it proves."""
        return _z(self._family, sketches, loss, self._models), DataCalibration.of(self.n, loss)


def _z(family: FamilyScores, sketches: SketchMatrix, loss: LossName, models: Scored) -> np.ndarray:
    asked = [(loss, np.arange(1), np.arange(0))]
    return next(DataScores(family, sketches).compare(models, asked)).z[0]


def _evidence(
    view: FamilyView, datasets: dict[str, str], queries: dict[Way, Sequence[Query]]
) -> Iterator[str]:
    """What is reported, with the models' labels and without, and whether a set is whose fine-tunes,
    and those of its file, are in no family."""
    yield from (
        "| query | models | reported | of the set | of its file | of other data | answered "
        "| silent where no model saw it |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    )
    own = np.array([datasets.get(id, "") for id in view.ids])
    files = _files_of(own)
    named = np.flatnonzero(own != "")
    whole = Subfamily(view, named)
    for way, answers in queries.items():
        for labelled in (True, False):
            reported, answered, silent = np.zeros(3, dtype=int), 0, 0
            for name, sketches, loss, _ in answers:
                for rows in (named, named[files[named] != CUTS[name].file]):
                    family = whole if rows is named else Subfamily(view, rows)
                    z, calibration = family.ask(sketches, loss)
                    order = np.argsort(-z, kind="stable")
                    labels = [own[row] if labelled else None for row in rows[order]]
                    verdicts = calibration.judge(z[order], labels).verdicts
                    shown = [
                        rows[place]
                        for place, verdict in zip(order, verdicts, strict=True)
                        if verdict != "no model stands out"
                    ]
                    if rows is not named:
                        silent += not shown
                        continue
                    answered += bool(shown) and own[rows[order[0]]] == name
                    same = sum(own[row] == name for row in shown)
                    alike = sum(files[row] == CUTS[name].file for row in shown) - same
                    reported += (same, alike, len(shown) - same - alike)
            n = len(answers)
            yield (
                f"| {way.name} | {'labelled' if labelled else 'no labels'} | {reported.sum()} | "
                f"{reported[0]} | {reported[1]} | {reported[2]} | {answered} of {n} | "
                f"{silent} of {n} |"
            )


def _files_of(own: np.ndarray) -> np.ndarray:
    cuts = {name: cut.file for name, cut in CUTS.items()}
    return np.array([cuts.get(name.removesuffix(" by length"), "") for name in own])


@dataclass(frozen=True, slots=True)
class Case:
    """A set asked of a family: features of the nearest model, and whether it saw the set."""

    family: str
    composition: str
    kind: str
    file: str
    features: tuple[float, float]
    right: bool
    seen: bool


def fit_evidence(texts: Path, families: Sequence[tuple[Path, Plan]]) -> str:
    """Markdown: the coefficients of every kind of loss, and how they do on files held out; from the
    databases and queries that `score-data` made."""
    cases = [case for db, plan in families for case in _cases(texts, db, plan)]
    lines = ["| loss | 1 | log z | log models |", "| --- | --- | --- | --- |"]
    for kind in sorted({case.kind for case in cases}):
        known = _fitted([case for case in cases if case.kind == kind])
        lines.append(f"| {kind} | {' | '.join(f'{value:.2f}' for value in known)} |")
    lines += [
        "",
        "| family | models | answered | wrong | silent |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    held_out: dict[tuple[str, str], list[tuple[Case, bool]]] = {}
    for kind, file in sorted({(case.kind, case.file) for case in cases}):
        others = [case for case in cases if case.kind == kind and case.file != file]
        known = _fitted(others)
        for case in cases:
            if (case.kind, case.file) == (kind, file):
                logit = float(known @ np.array([1.0, *case.features]))
                answered = 1.0 / (1.0 + np.exp(-logit)) >= LONE_BOUND
                held_out.setdefault((case.family, case.composition), []).append((case, answered))
    for (family, composition), asked in held_out.items():
        seen = [(case.right, answered) for case, answered in asked if case.seen]
        lone = [answered for case, answered in asked if not case.seen]
        right = sum(answered and is_right for is_right, answered in seen)
        wrong = sum(answered and not is_right for is_right, answered in seen)
        lines.append(
            f"| {family} | {composition} | {right} of {len(seen)} | {wrong} | "
            f"{len(lone) - sum(lone)} of {len(lone)} |"
        )
    return "\n".join(lines)


def _fitted(cases: Sequence[Case]) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=STRENGTH)
    model.fit([case.features for case in cases], [case.right for case in cases])
    return np.append(model.intercept_, model.coef_[0])


def _cases(texts: Path, db: Path, plan: Plan) -> Iterator[Case]:
    """A set with models in the family, once without another file's and once without its own."""
    labels = "none" if plan.causal else "own"
    base = small_base(db.with_suffix("")) if plan.causal else base_folder()
    cache = db.with_suffix(".queries")
    queries = [
        query
        for half in (0, 1)
        for query in _queries(texts, base, cache, Way(512, labels, half), plan)
    ]
    files = sorted({cut.file for cut in CUTS.values()})
    with Catalog.open(db) as catalog:
        view = catalog.family(catalog.bases()[0], catalog.find_recipe(None, None))
        names = [re.sub(" [ab]$", "", label or "") for label in labelled_models(view).labels]
        own = np.array(names)
        without = _files_of(own)
        for composition, wanted in COMPOSITIONS.items():
            members = [
                own[row] != "" and (not wanted or bool({kind_of(id), view.kinds[row]} & {*wanted}))
                for row, id in enumerate(view.ids)
            ]
            families: dict[str, tuple[Subfamily, np.ndarray]] = {}
            for number, (name, sketches, loss, _) in enumerate(queries):
                file = CUTS[name].file
                others = [other for other in files if other != file]
                for removed in (others[number % len(others)], file):
                    if removed not in families:
                        rows = np.flatnonzero(np.array(members) & (without != removed))
                        families[removed] = Subfamily(view, rows), own[rows]
                    family, labelled = families[removed]
                    z, known = family.ask(sketches, loss)
                    yield Case(
                        db.stem,
                        composition,
                        known.kind,
                        file,
                        (float(known.features(z.max(keepdims=True))[0][0]), known.features(z)[1]),
                        bool(labelled[z.argmax()] == name),
                        removed != file,
                    )
