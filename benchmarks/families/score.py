"""Every recipe scored on every question that a built family can answer, with intervals."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.metrics import silhouette_score

from deltadex.errors import RequestError
from deltadex.indexer import IndexOptions, index_family
from deltadex.records import Recipe
from deltadex.search import LabelledModels, evaluate, family_views, labelled_models
from deltadex.store import Catalog, FamilyView, block_dims

from .build import write_labels
from .evidence import families_of

RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Question:
    """Queries of some kinds among candidates of some kinds; `merged`: halves of a set are one."""

    name: str
    queries: tuple[str, ...]
    candidates: tuple[str, ...]
    merged: bool = False


QUESTIONS = (
    Question("full", ("full",), ("full",)),
    Question("few steps", ("few-steps",), ("few-steps",)),
    Question("partly frozen", ("frozen",), ("frozen", "full")),
    Question("saved in bfloat16 → full", ("bfloat16",), ("full",)),
    Question("halves of one set", ("halves",), ("halves",)),
    Question("halves, merged by set", ("halves",), ("halves",), merged=True),
    Question("one text, two label schemes", ("schemes",), ("schemes",)),
    Question("LoRA", ("lora",), ("lora",)),
    Question("LoRA → full", ("lora",), ("full",)),
    Question("full → LoRA", ("full",), ("lora",)),
    Question("LoRA continued in full → full", ("continued",), ("full",)),
    *(
        Question(f"{kind} → halves in full, by set", (kind,), ("halves",), merged=True)
        for kind in ("lora", "few-steps", "frozen", "continued", "halves")
    ),
    Question("LoRA and full together", ("full", "lora"), ("full", "lora")),
    Question(
        "everything trained",
        ("full", "lora", "continued", "frozen", "few-steps"),
        ("full", "lora", "continued", "frozen", "few-steps"),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Purity and its companions over one question's queries."""

    queries: int
    purity: float
    low: float
    high: float
    nn1: float
    chance: float
    silhouette: float | None


def kind_of(model: str) -> str:
    """The folder that a built model stands in."""
    return model.split("/", 1)[0]


def ask(family: LabelledModels, question: Question) -> Answer | None:
    """Purity of the question's queries; None where nothing can be asked."""
    names = np.array([_name(label, question) for label in family.labels])
    kinds = np.array([kind_of(id) for id in family.ids])
    pool = np.flatnonzero(np.isin(kinds, question.candidates))
    purities, firsts, chances, datasets = [], [], [], []
    for row in np.flatnonzero(np.isin(kinds, question.queries) & (names != "")):
        others = pool[pool != row]
        same = names[others] == names[row]
        siblings = int(same.sum())
        if siblings == 0:
            continue
        (scores,) = family.scores_between(np.array([row]), np.arange(len(family.ids)))
        order = np.argsort(-scores[others], kind="stable")
        purities.append(float(same[order[:siblings]].mean()))
        firsts.append(bool(same[order[0]]))
        chances.append(siblings / len(others))
        datasets.append(str(names[row]))
    if not purities:
        return None
    low, high = _interval(np.array(purities), np.array(datasets))
    return Answer(
        queries=len(purities),
        purity=float(np.mean(purities)),
        low=low,
        high=high,
        nn1=float(np.mean(firsts)),
        chance=float(np.mean(chances)),
        silhouette=_silhouette(family, question),
    )


def _name(label: str | None, question: Question) -> str:
    if label is None:
        return ""
    return label.split(" ")[0] if question.merged else label


def _silhouette(family: LabelledModels, question: Question) -> float | None:
    """Of the queries by cosine distance; None where they are not among the candidates."""
    rows = [
        row
        for row, label in enumerate(family.labels)
        if label is not None and kind_of(family.ids[row]) in question.queries
    ]
    if question.queries != question.candidates:
        return None
    scores = family.scores_between(np.array(rows), np.array(rows))
    distances = np.maximum(1.0 - scores, 0.0)
    np.fill_diagonal(distances, 0.0)
    labels = [_name(family.labels[row], question) for row in rows]
    if not 1 < len(set(labels)) < len(labels):
        return None
    return float(silhouette_score(distances, labels, metric="precomputed"))


def _interval(purities: np.ndarray, datasets: np.ndarray) -> tuple[float, float]:
    """95 % interval of the mean, by bootstrap over datasets."""
    rng = np.random.default_rng(0)
    groups = [purities[datasets == name] for name in sorted(set(datasets))]
    means = []
    for _ in range(RESAMPLES):
        drawn = [groups[i] for i in rng.integers(len(groups), size=len(groups))]
        means.append(float(np.concatenate(drawn).mean()))
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def score_families(out: Path, base: Path, db: Path, budgets: Sequence[str]) -> str:
    """Markdown: a row a question and recipe, over what was built from `base` under `out`."""
    write_labels(out)
    common = {"base": str(base), "source": out, "labels": out / "labels.csv"}
    with Catalog.open(db) as catalog:
        recipes = [
            index_family(catalog, IndexOptions(**common, recipes=(name,), budget=budget)).recipes[0]
            for name, budget in [("sketch", None), *(("sketch", b) for b in budgets),
                                 ("mean-factors", None)]
        ]  # fmt: skip
        loaded = []
        for recipe in recipes:
            (view,) = family_views(catalog, recipe.id, None)
            ways = ("normalised", "raw") if block_dims(recipe) else ("normalised",)
            loaded += [(_shown(recipe, way), labelled_models(view, way)) for way in ways]
        selected = [
            score_selections(family_views(catalog, recipe.id, None)[0], _shown(recipe, ""))
            for recipe in recipes
            if block_dims(recipe)
        ]
    lines = [
        "| question | recipe | queries | purity | 95 % | nn1 | silhouette | chance |",
        "| --- | --- | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    for question in QUESTIONS:
        for recipe, family in loaded:
            answer = ask(family, question)
            if answer is not None:
                lines.append(_line(question.name, recipe, answer))
    for recipe, family in loaded:
        found, of = parents_found(family, out / "labels.csv")
        if of:
            lines.append(f"| merges of two: both parents' sets first | {recipe} | {of} "
                         f"| {found / of:.3f} | | | | |")  # fmt: skip
    return "\n\n".join(["\n".join(lines), *selected])


def score_selections(view: FamilyView, recipe: str) -> str:
    """Markdown: purity in families cut out of what was built."""
    make, chosen, datasets, _ = families_of(view)
    purities: dict[str, list[list[float]]] = {}
    for selection in chosen:
        family, own = make(selection.rows), [datasets[row] for row in selection.rows]
        purities.setdefault(selection.name, []).append(
            [*purity(family.z, own), *purity(family.cosines, own)[:2]]
        )
    lines = [
        f"| family ({recipe}) | draws | micro | nn1 | chance | micro of the plain cosine | nn1 |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, draws in purities.items():
        numbers = " | ".join(f"{value:.3f}" for value in np.mean(draws, axis=0))
        lines.append(f"| {name} | {len(draws)} | {numbers} |")
    return "\n".join(lines)


def purity(scores: np.ndarray, datasets: Sequence[str]) -> tuple[float, float, float]:
    """Micro purity, nn1 and chance of one matrix of scores."""
    names, results = np.array(datasets), []
    for row in np.flatnonzero(names != ""):
        others = np.delete(
            np.flatnonzero(names != ""), np.searchsorted(np.flatnonzero(names != ""), row)
        )
        same = names[others] == names[row]
        if same.any():
            order = np.argsort(-scores[row, others], kind="stable")
            results.append((same[order[: same.sum()]].mean(), same[order[0]], same.mean()))
    micro, nn1, chance = np.mean(results, axis=0)
    return float(micro), float(nn1), float(chance)


def score_adapters(folder: Path, db: Path) -> str:
    """Markdown: strangers' adapters, the query's own author left out."""
    lines = [
        "| adapters of | recipe | queries | purity | 95 % | nn1 | chance |",
        "| --- | --- | ---: | ---: | --- | ---: | ---: |",
    ]
    with Catalog.open(db) as catalog:
        for family in sorted(path for path in folder.iterdir() if path.is_dir()):
            for name in ("sketch", "mean-factors"):
                options = IndexOptions(
                    base=family.name, source=family, labels=folder / "labels.csv", recipes=(name,)
                )
                index_family(catalog, options)
                for exclude in ("author", None):
                    try:
                        found = evaluate(catalog, recipe=name, base=family.name, exclude=exclude)
                    except RequestError:
                        continue
                    who = "" if exclude else ", author left in"
                    interval = (
                        "too few"
                        if found["ci95"] is None
                        else "{:.2f}–{:.2f}".format(*found["ci95"])
                    )
                    lines.append(
                        f"| {family.name}{who} | {name} | {found['queries']} "
                        f"| {found['micro']:.3f} | {interval} | {found['nn1']:.2f} "
                        f"| {found['chance']:.2f} |"
                    )
    return "\n".join(lines)


def parents_found(family: LabelledModels, labels: Path) -> tuple[int, int]:
    """Merges whose first two datasets of full fine-tunes are their parents'; and how many."""
    with labels.open(encoding="utf-8", newline="") as file:
        parents = {row["model"]: row["parents"].split() for row in csv.DictReader(file)}
    full = [row for row, id in enumerate(family.ids) if kind_of(id) == "full"]
    merges = [row for row, id in enumerate(family.ids) if kind_of(id) == "merged"]
    found = 0
    for row in merges:
        (scores,) = family.scores_between(np.array([row]), np.arange(len(family.ids)))
        ranked = sorted(full, key=lambda other: -scores[other])
        nearest = list(dict.fromkeys(family.labels[other] for other in ranked))[:2]
        found += set(nearest) == set(parents[family.ids[row]])
    return found, len(merges)


def _shown(recipe: Recipe, way: str) -> str:
    rows = dict(recipe.params).get("rows")
    return " ".join(part for part in (recipe.name, rows, way if way == "raw" else "") if part)


def _line(question: str, recipe: str, answer: Answer) -> str:
    interval = f"{answer.low:.2f}–{answer.high:.2f}"
    shape = "" if answer.silhouette is None else f"{answer.silhouette:.2f}"
    return (
        f"| {question} | {recipe} | {answer.queries} | {answer.purity:.3f} | {interval} "
        f"| {answer.nn1:.2f} | {shape} | {answer.chance:.2f} |"
    )
