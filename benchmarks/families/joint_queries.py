"""Data sets asked of several families together: what is first where one family has models of the
set, and whether all are silent where none has models of its file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deltadex.search import labelled_models
from deltadex.search.trained_on import DataCalibration
from deltadex.store import Catalog

from .base import base_folder, small_base
from .data_queries import COMPOSITIONS, Subfamily, Way, _files_of, _queries
from .plan import Plan
from .score import kind_of
from .text_sets import CUTS

Asked = tuple[str, str, int, bool]
"""Composition of the family, set, half of it, and whether the family has models of its file."""


@dataclass(frozen=True, slots=True)
class Nearest:
    """A family's model nearest to a data set: its probability, and whether it saw the set."""

    p: float
    right: bool


def score_jointly(texts: Path, families: Sequence[tuple[Path, Plan]]) -> str:
    """Markdown: the first of the families, the first two, and so on; from the databases and queries
    that `score-data` made."""
    tables = [dict(_nearest(texts, db, plan)) for db, plan in families]
    lines = [
        "| families | models | bound | silent | set seen by one family: first right | answered "
        "| wrong |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for n in range(1, len(tables) + 1):
        bound = DataCalibration.of(0, "causal").among(n).bound
        for composition in COMPOSITIONS:
            silent, first, answered, wrong, queries, asked = np.zeros(6, dtype=int).tolist()
            for key in tables[0]:
                if key[0] != composition or key[3]:
                    continue
                lone = [table[key] for table in tables[:n]]
                queries += 1
                silent += max(one.p for one in lone) < bound
                for place in range(n):
                    found = [*lone[:place], tables[place][(*key[:3], True)], *lone[place + 1 :]]
                    top = max(found, key=lambda one: one.p)
                    asked += 1
                    first += top.right
                    answered += top.right and top.p >= bound
                    wrong += not top.right and top.p >= bound
            lines.append(
                f"| {n} | {composition} | {bound:.2f} | {silent} of {queries} | {first} of {asked} "
                f"| {answered} | {wrong} |"
            )
    return "\n".join(lines)


def _nearest(texts: Path, db: Path, plan: Plan) -> Iterator[tuple[Asked, Nearest]]:
    labels = "none" if plan.causal else "own"
    base = small_base(db.with_suffix("")) if plan.base else base_folder()
    cache = db.with_suffix(".queries")
    queries = [
        (half, query)
        for half in (0, 1)
        for query in _queries(texts, base, cache, Way(512, labels, half), plan)
    ]
    with Catalog.open(db) as catalog:
        view = catalog.family(catalog.bases()[0], catalog.find_recipe(None, None))
        own = np.array(
            [re.sub(" [ab]$", "", label or "") for label in labelled_models(view).labels]
        )
        files = _files_of(own)
        for composition, wanted in COMPOSITIONS.items():
            members = np.array([
                bool(own[row]) and (not wanted or bool({kind_of(id), view.kinds[row]} & {*wanted}))
                for row, id in enumerate(view.ids)
            ])  # fmt: skip
            parts: dict[str, tuple[Subfamily, np.ndarray]] = {}
            for half, (name, sketches, loss, _) in queries:
                for removed in ("", CUTS[name].file):
                    if removed not in parts:
                        rows = np.flatnonzero(members & (files != removed))
                        parts[removed] = Subfamily(view, rows), own[rows]
                    family, seen = parts[removed]
                    z, known = family.ask(sketches, loss)
                    top = int(z.argmax())
                    p = known.probabilities(z[[top]], [None], np.zeros(1, np.bool_))
                    key = composition, name, half, not removed
                    yield key, Nearest(float(p[0]), bool(seen[top] == name))
