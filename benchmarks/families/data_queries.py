"""Data sets as queries: the fine-tunes of the other half of a set, found by the base's gradient.

Queries are cached: computing them takes longer than all the rest.
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

from deltadex.indexer import IndexOptions, index_family
from deltadex.indexer.fingerprint import make_recipe
from deltadex.records import DataFingerprint
from deltadex.search import labelled_models
from deltadex.search.evidence import PERHAPS, calibrate
from deltadex.search.family_scores import Cohort, FamilyScores
from deltadex.store import Catalog, FamilyView, SketchMatrix
from deltadex.training_data.examples import Example

from .base import base_folder, causal_base
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


@dataclass(frozen=True, slots=True)
class Way:
    """How a set becomes a query.

    Attributes:
        examples: Of its second half, at most.
        labels: `own`, `none` or `shuffled`.
    """

    examples: int
    labels: str

    @property
    def name(self) -> str:
        """As the table has it."""
        return f"{self.examples} examples, labels: {self.labels}"


def score_data(
    out: Path, texts: Path, base: Path | None, db: Path, plan: Plan, sizes: Sequence[int]
) -> str:
    """Markdown: for each way and kind of candidate, whether the set's fine-tunes are nearest."""
    base = base or (causal_base(out) if plan.causal else base_folder())
    write_labels(out)
    ways = [Way(size, "none" if plan.causal else "own") for size in sizes]
    if not plan.causal:
        ways += [Way(max(sizes), labels) for labels in ("none", "shuffled")]
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
        lines += ["", *_unseen(view, datasets, queries)]
        cpu = [seconds for answers in queries.values() for *_, seconds in answers if seconds]
    if cpu:
        lines += ["", f"{median(cpu):.1f} s of processor time a query (median of {len(cpu)})"]
    return "\n".join(lines)


Query = tuple[str, SketchMatrix, float]
"""A set, its sketches, and the seconds that they took; 0 from the cache."""


def _queries(texts: Path, base: Path, cache: Path, way: Way, plan: Plan) -> Iterator[Query]:
    from deltadex.study.network import load_task_model
    from deltadex.training_data.gradients import DataQueryOptions, fingerprint_data

    recipe, options = make_recipe("sketch", None, ()), DataQueryOptions(max_tokens=MAX_TOKENS)
    model = None
    for name in plan.sets:
        path = cache / f"{name}-{way.examples}-{way.labels}.pkl"
        seconds = 0.0
        if not path.exists():
            if model is None:
                labelled = way.labels != "none"
                model = load_task_model(str(base), labelled=labelled)
            start = time.process_time()
            found = fingerprint_data(model, _examples(texts, name, way, plan), recipe, (), options)
            seconds = time.process_time() - start
            path.write_bytes(pickle.dumps(found))
        found: DataFingerprint = pickle.loads(path.read_bytes())
        yield name, SketchMatrix.of_model(found.sketches, recipe), seconds


def _examples(texts: Path, name: str, way: Way, plan: Plan) -> list[Example]:
    rows = read_set(texts, name)
    rng = np.random.default_rng(5)
    chosen = rng.permutation(rows_of_half(len(rows), QUERY_HALF, causal=plan.causal))
    examples = [Example(text=rows[i][0], label=rows[i][1]) for i in chosen[: way.examples]]
    if way.labels == "none":
        return [replace(example, label=None) for example in examples]
    if way.labels == "shuffled":
        labels = rng.permutation([str(example.label) for example in examples]).tolist()
        return [replace(e, label=label) for e, label in zip(examples, labels, strict=True)]
    return examples


def _few_step_queries(view: FamilyView) -> Iterator[Query]:
    """The rival: a short fine-tune on the whole set, as it stands in the catalog."""
    for row, id in enumerate(view.ids):
        name = id.partition("/")[2].rpartition("-")[0]
        if kind_of(id) == "few-steps" and name in CUTS:
            yield name, view.sketches(view.keys[np.array([row])]), 0.0


def _rows(
    view: FamilyView, datasets: dict[str, str], way: str, queries: Sequence[Query]
) -> Iterator[str]:
    """A line for each kind of candidate."""
    scores = FamilyScores.of(view)
    assert scores is not None
    everything = scores.stored(view, np.arange(len(view)))
    own = np.array([datasets.get(id, "") for id in view.ids])
    z = {
        name: scores.compare(scores.prepare(sketches, ["full"], [-1]), everything).z[0]
        for name, sketches, _ in queries
    }
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


def _unseen(
    view: FamilyView, datasets: dict[str, str], queries: dict[Way, Sequence[Query]]
) -> Iterator[str]:
    """Whether a set is reported whose fine-tunes, and those of its file, are in no family."""
    yield from (
        "| query | no model trained on it | no model stands out |",
        "| --- | ---: | ---: |",
    )
    own = np.array([datasets.get(id, "") for id in view.ids])
    for way, answers in queries.items():
        silent = []
        for name, sketches, _ in answers:
            alike = [other for other in CUTS if CUTS[other].file == CUTS[name].file]
            rows = np.flatnonzero(~np.isin(own, alike))
            silent.append(_is_silent(view, rows, own, sketches))
        yield f"| {way.name} | {len(silent)} | {np.mean(silent):.1%} |"


def _is_silent(view: FamilyView, rows: np.ndarray, own: np.ndarray, sketches: SketchMatrix) -> bool:
    ids, kinds = [view.ids[row] for row in rows], [view.kinds[row] for row in rows]
    matrix = view.sketches(view.keys[rows])
    scores = FamilyScores(Cohort.sample(ids, kinds), view.recipe, matrix.take)
    everything = scores.prepare(matrix, kinds, list(range(len(rows))))
    z = scores.compare(scores.prepare(sketches, ["full"], [-1]), everything).z[0]
    labels = [own[rows[place]] or None for place in scores.cohort.tolist()]
    calibration = calibrate(scores.evidence.z, labels, scores.evidence.are_strangers, len(ids))
    return bool(calibration.fdr(np.sort(z)[::-1], len(ids))[0] > PERHAPS)
