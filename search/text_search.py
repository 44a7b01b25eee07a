"""Models of all families whose training data is about a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..store import Catalog, FamilyView, Filters
from .responses import FamilyResponses, TextMatch

SURE, PERHAPS = 0.01, 0.05
"""Share of random texts with as good a best match, up to which a model matches, or perhaps."""

LEAST_ANSWER = 0.5
"""Standard deviations from which a model answers to a word."""

MOST_SHOWN = 5
"""Words shown of a model."""

NOTHING, NOT_ASKED = "matches nothing", "no family can be asked by words"

NO_RESPONSES = (
    "its models were indexed without what they answer to: that needs the base's folder with its "
    "tokenizer, '.[studies]', and a base whose words have a meaning"
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
    """The `k` models that answer to a text's words most, beside what random words find."""

    def answer() -> FoundByText:
        models: list[ModelByText] = []
        families: list[FamilyAsked] = []
        left_out: list[LeftOut] = []
        for base in bases:
            view = catalog.family(base, catalog.find_recipe(None, base))
            responses = FamilyResponses.of(catalog, view)
            if responses is None or not len(responses.keys):
                left_out.append(LeftOut(base, NO_RESPONSES))
                continue
            known = responses.known(words)
            families.append(FamilyAsked(base, len(responses.keys), list(known)))
            if known:
                match = responses.ask(list(known.values()))
                models += _matched(view, responses, match, k, filters)
        models.sort(key=lambda model: (model.by_chance, -model.score, model.base, model.model))
        ranked = [replace(model, rank=rank) for rank, model in enumerate(models[:k], start=1)]
        asked = sorted({word for family in families for word in family.asked})
        return FoundByText(
            verdict=ranked[0].verdict if ranked else NOTHING if families else NOT_ASKED,
            asked=asked,
            unknown=sorted(set(words) - set(asked)),
            compared=sum(family.compared for family in families),
            neighbours=ranked,
            families=families,
            left_out=left_out,
        )

    return catalog.look(answer)


def _matched(
    view: FamilyView, responses: FamilyResponses, match: TextMatch, k: int, filters: Filters
) -> list[ModelByText]:
    rows = np.searchsorted(view.keys, responses.keys)
    allowed = np.isin(rows, view.rows_where(filters)) if filters else np.ones(len(rows), bool)
    order = [p for p in np.argsort(-match.scores, kind="stable").tolist() if allowed[p]][:k]
    known = view.labels_at(rows[order].tolist())
    labels = [known[row] for row in rows[order].tolist()]
    chances = match.chances(match.scores[order])
    return [
        ModelByText(
            rank=0,
            model=view.ids[int(rows[place])],
            base=view.base,
            words=_answered(responses, match, place),
            verdict=_verdict(float(chance)),
            by_chance=round(float(chance), 4),
            score=round(float(match.scores[place]), 3),
            probability=None,
            dataset=label.dataset,
            author=label.author,
            run=label.run,
        )
        for place, label, chance in zip(order, labels, chances, strict=True)
    ]


def _verdict(chance: float) -> str:
    if chance <= SURE:
        return "answers to it"
    return "perhaps" if chance <= PERHAPS else NOTHING


def _answered(responses: FamilyResponses, match: TextMatch, place: int) -> list[str]:
    """The text's words, or those near them, that a model answers to, the strongest first."""
    places = np.unique(match.places)
    answers = responses.answers(place)[places]
    order = np.argsort(-answers, kind="stable")
    told = [int(places[i]) for i in order.tolist() if answers[i] >= LEAST_ANSWER]
    return [str(responses.lexicon.words[i]) for i in told[:MOST_SHOWN]]
