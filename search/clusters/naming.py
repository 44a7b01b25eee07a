"""What a cluster is called: by its datasets, else by words that set it apart, else by authors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log

from ...records import ModelRecord

WORDS_SHOWN = 5

COMMON = 0.5
"""Share of a cluster's models that a word, or of its labelled ones a dataset, must cover."""

_WORD = re.compile(r"[a-z][a-z0-9+]{2,}")
_SAYS_NOTHING = frozenset(
    [
        "adapter",
        "base",
        "causal",
        "checkpoint",
        "cls",
        "data",
        "fine",
        "finetuned",
        "finetuning",
        "full",
        "lora",
        "model",
        "models",
        "output",
        "peft",
        "results",
        "saved",
        "seq",
        "tuned",
        "tuning",
    ]
)
"""Words of how models are made and kept, whatever they were trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """A cluster's name and what it was made of, most frequent first.

    Attributes:
        datasets: Of its labelled models, and how many have each.
        authors: Likewise.
        words: That most of its models' names have and few others do.
    """

    name: str
    datasets: tuple[tuple[str, int], ...]
    authors: tuple[tuple[str, int], ...]
    words: tuple[str, ...]


def words_of(record: ModelRecord) -> frozenset[str]:
    """Words of a model's id, task and label as it was found, without those of its base's name."""
    words = _words(record.id, record.task or "", record.dataset_raw or "") - _SAYS_NOTHING
    of_base = _words(record.base)
    return frozenset(w for w in words if not any(one.startswith(w) for one in of_base))


def _words(*texts: str) -> frozenset[str]:
    return frozenset(_WORD.findall(" ".join(texts).lower().replace("_", " ")))


def name_clusters(
    clusters: Sequence[Sequence[str]], records: Mapping[str, ModelRecord]
) -> list[Naming]:
    """A name for each cluster of models by their ids; no two are alike."""
    everyone = {id: words_of(record) for id, record in records.items()}
    frequency = Counter(word for words in everyone.values() for word in words)
    found = []
    for members in clusters:
        datasets = _count(records[id].dataset for id in members)
        authors = _count(records[id].author for id in members)
        inside = Counter(word for id in members for word in everyone[id])
        words = _distinct(inside, frequency, len(members), len(everyone))
        name = _name(datasets, words, authors, len(members))
        found.append(Naming(name=name, datasets=datasets, authors=authors, words=words))
    return _told_apart(found)


def _count(values: Iterable[str | None]) -> tuple[tuple[str, int], ...]:
    counts = Counter(value for value in values if value is not None)
    return tuple(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def _distinct(
    inside: Mapping[str, int], frequency: Mapping[str, int], size: int, n_models: int
) -> tuple[str, ...]:
    """Words of at least half the members by tf·idf: their share here × log(1 / their share)."""
    weights = {
        word: n / size * log(n_models / frequency[word])
        for word, n in inside.items()
        if n >= max(2, COMMON * size) and n / size > frequency[word] / n_models
    }
    ranked = sorted(weights, key=lambda word: (-weights[word], word))
    return tuple(ranked[:WORDS_SHOWN])


def _name(
    datasets: Sequence[tuple[str, int]],
    words: Sequence[str],
    authors: Sequence[tuple[str, int]],
    size: int,
) -> str:
    """The dataset of most labelled members, or the two that together are; and so on."""
    labelled = sum(n for _, n in datasets)
    for wanted in (1, 2):
        top = datasets[:wanted]
        if len(top) == wanted and sum(n for _, n in top) > COMMON * labelled:
            return " + ".join(name for name, _ in top)
    if words:
        return " ".join(words[:2])
    if authors and authors[0][1] > COMMON * size:
        return f"by {authors[0][0]}"
    return "mixed" if datasets else "unnamed"


def _told_apart(found: Sequence[Naming]) -> list[Naming]:
    """The same with names that differ: by a word of their own, else by a number."""
    counts = Counter(one.name for one in found)
    taken = {name for name, n in counts.items() if n == 1}
    named = []
    for one in found:
        name = one.name
        if counts[name] > 1:
            own = [word for word in one.words if word not in name.lower()]
            choices = [*(f"{name} · {word}" for word in own), name]
            choices += [f"{name} {number}" for number in range(2, len(found) + len(taken) + 2)]
            name = next(choice for choice in choices if choice not in taken)
            taken.add(name)
        named.append(Naming(name=name, datasets=one.datasets, authors=one.authors, words=one.words))
    return named
