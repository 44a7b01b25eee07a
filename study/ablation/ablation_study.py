"""An ablation of a network: several measures of what every subset of its terms can predict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias

import numpy as np

from ...errors import StudyError
from ..network.language_head import LanguageHead, prediction_of
from ..network.model_loading import Network
from ..report_json import JsonRecord
from .annotated_words import AnnotatedWords, pseudo_words, word_shapes
from .item_terms import Watch, choose_tokens, collect_terms, encode_texts, items_of_words
from .measures import (
    TRAININGS,
    masked_accuracy,
    tagging_probe,
    trained_masked_accuracy,
    word_sense_knn,
    word_sense_probe,
)
from .subset_predictions import (
    Items,
    Keep,
    Make,
    SubsetPredictions,
    SubsetResult,
    keep_nothing,
    term_subsets,
)
from .subset_scores import AblationReport, AblationStudyReport, Skipped, ablation_report

Task = Literal["masked", "senses", "tagging"]

TASKS: tuple[Task, ...] = ("masked", "senses", "tagging")

FEWEST_TEXTS = 10
"""A tenth of them is the test part."""

Measures: TypeAlias = Mapping[str, Callable[[Keep], SubsetPredictions]]
"""By key, what makes the predictions of a measure."""

Steps: TypeAlias = Callable[[Iterable[int], int], Iterator[int]]
"""Passes on the numbers of the subsets that are measured, of which there are so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationOptions(JsonRecord):
    """What is measured.

    Attributes:
        runs: Trainings of each probe.
        most_items: Tokens or words of a task that are used, drawn at random.
        seed: Of everything random.
    """

    tasks: tuple[Task, ...] = TASKS
    runs: int = 3
    most_items: int = 3000
    seed: int = 0
    batch_size: int = 16
    max_tokens: int = 128


def ablation_study(
    network: Network,
    texts: Sequence[str],
    *,
    options: AblationOptions,
    head: LanguageHead | str | None = None,
    senses: AnnotatedWords | None = None,
    tags: AnnotatedWords | None = None,
    keep: Keep = keep_nothing,
    watch_batches: Watch = lambda batches, _: iter(batches),
    watch_subsets: Steps = lambda steps, _: iter(steps),
) -> AblationStudyReport:
    """Every measure on all subsets of the network's terms.

    The network runs once over each input: the texts, the texts with masks, and the texts with
    pseudo-words. What it computes serves all subsets.

    Args:
        head: The model's own head, or why it has none.
        senses: Words in their senses; pseudo-words from the texts by default.
        tags: Tagged words; the shapes of the texts' words by default.

    Raises:
        StudyError: nothing can be measured.
    """
    distinct = list(dict.fromkeys(texts))
    if len(distinct) < FEWEST_TEXTS:
        raise StudyError(f"ablation: {len(distinct)} different texts; give {FEWEST_TEXTS} or more")
    collect = {
        "masked": partial(_tokens, network, distinct),
        "senses": partial(_words, network, distinct, "senses", senses),
        "tagging": partial(_words, network, distinct, "tagging", tags),
    }
    collected: dict[Task, Items] = {}
    skipped: list[Skipped] = []
    error = 0.0
    for task in options.tasks:
        try:
            collected[task], task_error = collect[task](options, watch_batches)
            error = max(error, task_error)
        except StudyError as err:
            skipped.append(Skipped(measure=task, reason=str(err)))
    if not collected:
        raise StudyError(skipped[0].reason)
    names = network.stacks[0].terms
    present = [
        row for row in range(len(names)) if any(i.terms[row].any() for i in collected.values())
    ]
    present_names = tuple(names[row] for row in present)
    measures: dict[str, Callable[[Keep], SubsetPredictions]] = {}
    for task, items in collected.items():
        items = replace(items, terms=items.terms[present], names=present_names)
        measures |= _measures(task, items, options, head)
        if task == "masked" and not isinstance(head, LanguageHead):
            skipped.append(Skipped(measure="masked-own", reason=head or "no head was given"))
    n_steps = len(measures) * len(term_subsets(present_names))
    steps = watch_subsets(range(n_steps), n_steps)

    def kept(measure: str, subset: str, make: Make) -> SubsetResult:
        next(steps, None)
        return keep(measure, subset, make)

    reports: list[AblationReport] = []
    for key, predict in measures.items():
        try:
            predictions = predict(kept)
        except StudyError as err:
            skipped.append(Skipped(measure=key, reason=str(err)))
            continue
        score: Literal["accuracy", "macro-F1"] = "macro-F1" if key == "tagging" else "accuracy"
        reports.append(ablation_report(predictions, score=score, seed=options.seed))
    for _ in steps:
        pass
    if not reports:
        raise StudyError(skipped[-1].reason)
    return AblationStudyReport(
        model=network.name,
        stack=network.stacks[0].name,
        layer=network.n_layers,
        terms=present_names,
        absent=tuple(name for name in names if name not in present_names),
        texts=len(distinct),
        error=error,
        measures=tuple(reports),
        skipped=tuple(skipped),
    )


def _words(
    network: Network,
    texts: Sequence[str],
    task: Task,
    given: AnnotatedWords | None,
    options: AblationOptions,
    watch: Watch,
) -> tuple[Items, float]:
    """Words in their senses, or with tags, and the error of the sum of their terms."""
    if task == "senses":
        source = "pseudo-words"
        words = given or pseudo_words(texts, most_items=options.most_items, seed=options.seed)
    else:
        source = "word shapes"
        words = given or word_shapes(texts)
    words = words.drawn(options.most_items, options.seed)
    encoded = encode_texts(network, words.texts, options.max_tokens)
    found = collect_terms(
        network,
        encoded,
        items_of_words(encoded, words.text, words.spans),
        len(words.labels),
        batch_size=options.batch_size,
        watch=watch,
    )
    seen = np.flatnonzero(found.seen)
    items = Items(
        terms=found.terms[:, seen],
        names=found.names,
        labels=[words.labels[item] for item in seen],
        lemmas=[words.lemmas[item] for item in seen] if words.lemmas else (),
        text=words.origin[seen],
        seed=options.seed,
        settings={
            "labels": "file" if given else source,
            "words_cut_off": len(found.seen) - len(seen),
        },
    )
    return items, found.error


def _tokens(
    network: Network, texts: Sequence[str], options: AblationOptions, watch: Watch
) -> tuple[Items, float]:
    """Tokens that are to be predicted, and the error of the sum of their terms."""
    encoded = encode_texts(network, texts, options.max_tokens)
    predicts = prediction_of(network)
    if predicts is None:
        raise StudyError(f"{network.name}: predicts neither masked tokens nor the next one")
    chosen = choose_tokens(network, encoded, predicts, most=options.most_items, seed=options.seed)
    found = collect_terms(
        network,
        chosen.texts,
        chosen.items,
        len(chosen.targets),
        batch_size=options.batch_size,
        watch=watch,
    )
    items = Items(
        terms=found.terms,
        names=found.names,
        labels=chosen.targets,
        text=chosen.text,
        seed=options.seed,
        settings=chosen.settings,
    )
    return items, found.error


def _measures(
    task: Task, items: Items, options: AblationOptions, head: LanguageHead | str | None
) -> dict[str, Callable[..., SubsetPredictions]]:
    """The measures of a task, by key."""
    trainings = {
        key: replace(training, runs=options.runs, seed=options.seed)
        for key, training in TRAININGS.items()
    }
    if task == "tagging":
        return {"tagging": lambda keep: tagging_probe(items, trainings["tagging"], keep=keep)}
    if task == "senses":
        return {
            "senses-knn": lambda keep: word_sense_knn(items, keep=keep),
            "senses-mlp": lambda keep: word_sense_probe(items, trainings["senses-mlp"], keep=keep),
            "senses-mlp-lemma": lambda keep: word_sense_probe(
                items, trainings["senses-mlp-lemma"], of_lemmas=True, keep=keep
            ),
        }
    training = trainings["masked-trained"]
    trained = {
        "masked-trained": lambda keep: trained_masked_accuracy(items, training, keep=keep),
    }
    if not isinstance(head, LanguageHead):
        return trained
    return {"masked-own": lambda keep: masked_accuracy(items, head, keep=keep)} | trained
