"""This half, or data like it: which half of a set its fine-tunes lie nearer to.

Data are examples of one half, the control those of the other: only models of these are to be found.
"""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deltadex.data.examples import Example
from deltadex.indexer import IndexOptions, index_family
from deltadex.indexer.fingerprint import make_recipe
from deltadex.records import GROUP
from deltadex.search.family_scores import FamilyScores
from deltadex.search.trained_on import compare_groups
from deltadex.store import Catalog, FamilyView, SketchMatrix

from .base import base_folder, small_base
from .build import write_labels
from .plan import SETTINGS, Plan
from .score import kind_of
from .text_sets import read_set, rows_of_half

MAX_TOKENS = 48
SEEN, BOTH, NEITHER = "one half", "both halves", "another set"

Parts = tuple[SketchMatrix, SketchMatrix]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a test says of one model.

    Attributes:
        truth: 1 for a model of the data, −1 of the control, 0 for neither or both.
        said: 1, −1, or 0 where it cannot tell.
    """

    kind: str
    seen: str
    truth: int
    said: int


def score_control(
    out: Path, texts: Path, base: Path | None, db: Path, plan: Plan, sizes: Sequence[int]
) -> str:
    """Markdown: how many models each test assigns to their half, and how many others to one."""
    base = base or (small_base(out) if plan.causal else base_folder())
    write_labels(out)
    cache = db.with_suffix(".control")
    cache.mkdir(parents=True, exist_ok=True)
    lines = [
        "| test | examples | models | trained on | found | wrong half | said of neither |",
        "| --- | ---: | --- | --- | ---: | ---: | ---: |",
    ]
    with Catalog.open(db) as catalog:
        index_family(catalog, IndexOptions(base=str(base), source=out, labels=out / "labels.csv"))
        view = catalog.family(catalog.bases()[0], catalog.find_recipe(None, None))
        for size in sizes:
            answers = list(_by_gradient(view, out, texts, base, cache, plan, size))
            lines += _rows(f"gradient | {size}", answers)
    return "\n".join(lines)


def _rows(test: str, answers: Sequence[Answer]) -> Iterator[str]:
    groups = defaultdict(list)
    for answer in answers:
        groups[answer.kind, answer.seen].append(answer)
    for (kind, seen), found in sorted(groups.items()):
        n = len(found)
        if seen == SEEN:
            right = sum(answer.said == answer.truth for answer in found)
            wrong = sum(answer.said == -answer.truth for answer in found)
            yield f"| {test} | {kind} | {seen} | {right} of {n} | {wrong} of {n} | |"
        else:
            said = sum(answer.said != 0 for answer in found)
            yield f"| {test} | {kind} | {seen} | | | {said} of {n} |"


def _by_gradient(
    view: FamilyView, out: Path, texts: Path, base: Path, cache: Path, plan: Plan, size: int
) -> Iterator[Answer]:
    family = FamilyScores.of(view)
    assert family is not None
    rows, models = np.arange(len(view)), view.sketches(view.keys)
    verdicts = {"nearer to the data": 1, "nearer to the control": -1, "cannot tell": 0}
    for name, (data, control) in _groups(texts, base, cache, plan, size):
        effects = compare_groups(
            family, data, control, models=models, ids=list(view.ids), rows=rows
        )
        for effect in effects:
            said = verdicts[effect.verdict]
            yield Answer(kind_of(effect.model), *_truth(out / effect.model, name), said)


def _truth(model: Path, name: str) -> tuple[str, int]:
    """What a model saw of a set, and which of its halves."""
    settings = json.loads((model / SETTINGS).read_text("utf-8"))
    if settings["texts"] != name:
        return NEITHER, 0
    half = settings["half"]
    return (BOTH, 0) if half is None else (SEEN, 1 if half == 0 else -1)


def _groups(
    texts: Path, base: Path, cache: Path, plan: Plan, size: int
) -> Iterator[tuple[str, Parts]]:
    """For each set the sketches of the groups of both halves."""
    from deltadex.data.gradients import DataQueryOptions, fingerprint_data
    from deltadex.study.network.language_head import load_task_model

    recipe, options = make_recipe("sketch", None, ()), DataQueryOptions(max_tokens=MAX_TOKENS)
    model = None
    for name in plan.sets:
        path = cache / f"{name}-{size}.pkl"
        if not path.exists():
            model = model or load_task_model(str(base), labelled=not plan.causal)
            halves = _examples(texts, name, plan, size)
            parts = [
                fingerprint_data(model, own, recipe, options, beside=other).parts(GROUP)
                for own, other in (halves, halves[::-1])
            ]
            path.write_bytes(pickle.dumps(parts))
        data, control = pickle.loads(path.read_bytes())
        yield (name, (SketchMatrix.of_rows(data, recipe), SketchMatrix.of_rows(control, recipe)))


def _examples(texts: Path, name: str, plan: Plan, size: int) -> list[list[Example]]:
    """As many examples of each half."""
    rows = read_set(texts, name)
    halves = [
        np.random.default_rng(5).permutation(rows_of_half(len(rows), half, causal=plan.causal))
        for half in (0, 1)
    ]
    n = min(size, *(len(half) for half in halves))
    return [
        [Example(text=rows[i][0], label=None if plan.causal else rows[i][1]) for i in half[:n]]
        for half in halves
    ]
