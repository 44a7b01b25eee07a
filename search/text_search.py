"""Models of all families whose training data is about a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..store import Catalog, FamilyView, Filters
from .text_match import Rows, TextIndex, TextMatch

SURE, PERHAPS = 0.01, 0.05
"""Share of random texts with as good a best match, up to which a model matches, or perhaps."""

MOST_SHOWN = 5
"""Words shown of a model."""

NOTHING, NOT_ASKED = "matches nothing", "no family can be asked by words"
NONE_PASSES = "no model passes the filters"

NO_WORDS = (
    "its models have no words: they were indexed without (`--no-footprints`), or without the "
    "base's tokenizer; what adapters answer to needs its folder, '.[studies]', and a base to "
    "which words mean something"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelByText:
    rank: int
    model: str
    base: str
    words: list[str]
    verdict: str
    by_chance: float
    score: float
    probability: None
    dataset: str | None
    author: str | None
    run: str | None


@dataclass(frozen=True, slots=True)
class FamilyAsked:
    base: str
    compared: int
    asked: list[str]


@dataclass(frozen=True, slots=True)
class LeftOut:
    base: str
    reason: str


@dataclass(frozen=True, slots=True)
class FoundByText:
    verdict: str
    asked: list[str]
    unknown: list[str]
    compared: int
    neighbours: list[ModelByText]
    families: list[FamilyAsked]
    left_out: list[LeftOut]


def search_text(
    catalog: Catalog, words: Sequence[str], bases: Sequence[str], k: int, filters: Filters
) -> FoundByText:
    """The `k` models that match a text's words best, beside what random words find."""

    def answer() -> FoundByText:
        models: list[ModelByText] = []
        families: list[FamilyAsked] = []
        left_out: list[LeftOut] = []
        for base in bases:
            view = catalog.family(base, catalog.find_recipe(None, base))
            index = TextIndex.of(catalog, view)
            if not len(index.rows):
                left_out.append(LeftOut(base, NO_WORDS))
                continue
            known, rows = index.known(words), index.rows
            if filters:
                rows = np.intersect1d(rows, view.rows_where(filters))
            families.append(FamilyAsked(base, len(rows), list(known)))
            if known:
                models += _matched(view, index.ask(list(known.values())), rows, k)
        models.sort(key=lambda model: (model.by_chance, -model.score, model.base, model.model))
        ranked = [replace(model, rank=rank) for rank, model in enumerate(models[:k], start=1)]
        asked = sorted({word for family in families for word in family.asked})
        compared = sum(family.compared for family in families)
        nothing = (NOTHING if compared else NONE_PASSES) if families else NOT_ASKED
        return FoundByText(
            verdict=ranked[0].verdict if ranked else nothing,
            asked=asked,
            unknown=sorted(set(words) - set(asked)),
            compared=compared,
            neighbours=ranked,
            families=families,
            left_out=left_out,
        )

    return catalog.look(answer)


def _matched(view: FamilyView, match: TextMatch, rows: Rows, k: int) -> list[ModelByText]:
    rows = rows[np.argsort(-match.scores[rows], kind="stable")[:k]]
    labels = view.labels_at(rows.tolist())
    chances = match.chances(match.scores[rows])
    return [
        ModelByText(
            rank=0,
            model=view.ids[row],
            base=view.base,
            words=match.words(row)[:MOST_SHOWN],
            verdict=_verdict(float(chance)),
            by_chance=round(float(chance), 4),
            score=round(float(match.scores[row]), 3),
            probability=None,
            dataset=labels[row].dataset,
            author=labels[row].author,
            run=labels[row].run,
        )
        for row, chance in zip(rows.tolist(), chances, strict=True)
    ]


def _verdict(chance: float) -> str:
    if chance <= SURE:
        return "matches"
    return "perhaps" if chance <= PERHAPS else NOTHING
