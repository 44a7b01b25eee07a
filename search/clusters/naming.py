"""Names of clusters: by their datasets, else by their distinctive terms, else by authors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log

from ...records import ModelRecord

TERMS_SHOWN = 5

COMMON = 0.5
"""Share of a cluster's models that a term, or of its labelled models a dataset, must cover."""

_TERM = re.compile(r"[a-z][a-z0-9+]{2,}")


def _terms(*texts: str) -> frozenset[str]:
    return frozenset(_TERM.findall(" ".join(texts).lower().replace("_", " ")))


_UNINFORMATIVE = _terms(
    "adapter base causal checkpoint cls data fine finetuned finetuning full lora",
    "model models output peft results saved seq tuned tuning",
)
"""Terms of how models are made and stored, whatever they were trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """A cluster's name and its sources, most frequent first.

    Attributes:
        datasets: Of its labelled models, and how many have each.
        authors: Likewise.
        words: Terms of most of its models' names and of few other models'.
    """

    name: str
    datasets: tuple[tuple[str, int], ...]
    authors: tuple[tuple[str, int], ...]
    words: tuple[str, ...]


def terms_of(record: ModelRecord) -> frozenset[str]:
    """Terms of a model's id, task and raw label, without those of its base's name."""
    terms = _terms(record.id, record.task or "", record.dataset_raw or "") - _UNINFORMATIVE
    of_base = _terms(record.base)
    return frozenset(t for t in terms if not any(other.startswith(t) for other in of_base))


def name_clusters(
    clusters: Sequence[Sequence[str]], records: Mapping[str, ModelRecord]
) -> list[Naming]:
    """A name for each cluster of models by their ids; no two are alike."""
    terms_by_model = {id: terms_of(record) for id, record in records.items()}
    frequency = Counter(term for terms in terms_by_model.values() for term in terms)
    namings = []
    for members in clusters:
        datasets = _count(records[id].dataset for id in members)
        authors = _count(records[id].author for id in members)
        inside = Counter(term for id in members for term in terms_by_model[id])
        terms = _distinctive(inside, frequency, len(members), len(records))
        name = _name(datasets, terms, authors, len(members))
        namings.append(Naming(name=name, datasets=datasets, authors=authors, words=terms))
    return _with_unique_names(namings)


def _count(values: Iterable[str | None]) -> tuple[tuple[str, int], ...]:
    counts = Counter(value for value in values if value is not None)
    return tuple(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def _distinctive(
    inside: Mapping[str, int], frequency: Mapping[str, int], size: int, n_models: int
) -> tuple[str, ...]:
    """Terms of at least half the members by tf·idf: their share here × log(1 / their share)."""
    weights = {
        term: n / size * log(n_models / frequency[term])
        for term, n in inside.items()
        if n >= max(2, COMMON * size) and n / size > frequency[term] / n_models
    }
    ranked = sorted(weights, key=lambda term: (-weights[term], term))
    return tuple(ranked[:TERMS_SHOWN])


def _name(
    datasets: Sequence[tuple[str, int]],
    terms: Sequence[str],
    authors: Sequence[tuple[str, int]],
    size: int,
) -> str:
    """The dataset of most labelled members, or the two that together are; and so on."""
    labelled = sum(n for _, n in datasets)
    for wanted in (1, 2):
        top = datasets[:wanted]
        if len(top) == wanted and sum(n for _, n in top) > COMMON * labelled:
            return " + ".join(name for name, _ in top)
    if terms:
        return " ".join(terms[:2])
    if authors and authors[0][1] > COMMON * size:
        return f"by {authors[0][0]}"
    return "mixed" if datasets else "unnamed"


def _with_unique_names(namings: Sequence[Naming]) -> list[Naming]:
    """The same with names that differ: by a term of their own, else by a number."""
    counts = Counter(naming.name for naming in namings)
    taken = {name for name, n in counts.items() if n == 1}
    unique = []
    for naming in namings:
        name = naming.name
        if counts[name] > 1:
            own = [term for term in naming.words if term not in name.lower()]
            choices = [*(f"{name} · {term}" for term in own), name]
            choices += [f"{name} {number}" for number in range(2, len(namings) + len(taken) + 2)]
            name = next(choice for choice in choices if choice not in taken)
            taken.add(name)
        unique.append(replace(naming, name=name))
    return unique
