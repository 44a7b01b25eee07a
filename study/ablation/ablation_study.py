"""An ablation of a network: several measures of what every subset of its terms can predict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from ...arrays import Int64
from ...errors import StudyError
from ..network.language_head import LanguageHead, prediction_of
from ..network.model_loading import Network
from ..report_json import JsonRecord
from . import masked_tokens, sense_probes, tagging
from .annotated_words import AnnotatedWords, word_shapes
from .chosen_tokens import choose_tokens
from .masked_tokens import language_head, masked_accuracy, trained_masked_accuracy
from .pseudo_words import pseudo_words
from .rate_search import Training
from .sense_probes import word_sense_probe, word_sense_probes_of_lemmas
from .subset_results import Keep, Make, SubsetResult, keep_nothing
from .subset_scores import AblationReport, Score, ablation_report
from .tagging import tagging_probe
from .term_subsets import SubsetPredictions, term_subsets
from .token_terms import ItemTerms, Watch, collect_terms, encode_texts, items_of_words
from .word_senses import word_sense_knn

Task = Literal["masked", "senses", "tagging"]

TASKS: tuple[Task, ...] = ("masked", "senses", "tagging")

FEWEST_TEXTS = 10
"""A tenth of them is the test part."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped(JsonRecord):
    """A measure that was not made, and the reason."""

    measure: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationStudyReport(JsonRecord):
    """All measures of one network.

    Attributes:
        stack: The stream whose terms were measured, behind its last layer and norm.
        terms: Those that the network has; `absent` ones are zero for every token.
        error: Largest relative error of the sum of terms.
    """

    model: str
    stack: str
    layer: int
    terms: tuple[str, ...]
    absent: tuple[str, ...]
    texts: int
    error: float
    measures: tuple[AblationReport, ...]
    skipped: tuple[Skipped, ...]


Steps: TypeAlias = Callable[[Iterable[int], int], Iterator[int]]
"""Passes on the numbers of the subsets that are measured, of which there are so many."""


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
    collected: list[_Collected] = []
    skipped: list[Skipped] = []
    for task in options.tasks:
        try:
            collected.append(
                _collect(network, distinct, task, options, senses, tags, watch_batches)
            )
        except StudyError as err:
            skipped.append(Skipped(measure=task, reason=str(err)))
    if not collected:
        raise StudyError(skipped[0].reason)
    names = collected[0].terms.names
    absent = tuple(
        name
        for row, name in enumerate(names)
        if not any(part.terms.terms[row].any() for part in collected)
    )
    measures: list[_Measure] = []
    for part in collected:
        present = replace(part, terms=part.terms.without(absent))
        measures += _measures_of(present, options, head, network.device.type)
        if part.task == "masked" and not isinstance(head, LanguageHead):
            skipped.append(Skipped(measure="masked-own", reason=head or "no head was given"))
    present_names = tuple(name for name in names if name not in absent)
    n_steps = len(measures) * len(term_subsets(present_names))
    steps = watch_subsets(range(n_steps), n_steps)

    def kept(measure: str, subset: str, make: Make) -> SubsetResult:
        next(steps, None)
        return keep(measure, subset, make)

    reports: list[AblationReport] = []
    for measure in measures:
        try:
            reports.append(measure.report(kept))
        except StudyError as err:
            skipped.append(Skipped(measure=measure.key, reason=str(err)))
    for _ in steps:
        pass
    if not reports:
        raise StudyError(skipped[-1].reason)
    return AblationStudyReport(
        model=network.name,
        stack=network.stacks[0].name,
        layer=network.n_layers,
        terms=present_names,
        absent=absent,
        texts=len(distinct),
        error=max(part.terms.error for part in collected),
        measures=tuple(reports),
        skipped=tuple(skipped),
    )


@dataclass(frozen=True, slots=True)
class _Collected:
    """The terms of one task's items, and what is to be predicted from them."""

    task: Task
    terms: ItemTerms
    text: Int64[np.ndarray, " items"]
    targets: Int64[np.ndarray, " items"]
    labels: tuple[str, ...]
    lemmas: tuple[str, ...]
    settings: dict[str, object]

    @property
    def predicts(self) -> str:
        return str(self.settings.get("predicts", ""))


@dataclass(frozen=True, slots=True)
class _Measure:
    """A measure that is to be made."""

    key: str
    score: Score
    predict: Callable[[Keep], SubsetPredictions]
    details: dict[str, object]
    seed: int

    def report(self, keep: Keep) -> AblationReport:
        predictions = self.predict(keep)
        return ablation_report(
            predictions, score=self.score, seed=self.seed, key=self.key, details=self.details
        )


def _collect(
    network: Network,
    texts: Sequence[str],
    task: Task,
    options: AblationOptions,
    senses: AnnotatedWords | None,
    tags: AnnotatedWords | None,
    watch: Watch,
) -> _Collected:
    if task == "masked":
        return _collect_tokens(network, texts, options, watch)
    if task == "senses":
        source = "file" if senses else "pseudo-words"
        words = senses or pseudo_words(texts, most_items=options.most_items, seed=options.seed)
    else:
        source = "file" if tags else "word shapes"
        words = tags or word_shapes(texts)
    words = words.drawn(options.most_items, options.seed)
    encoded = encode_texts(network, words.texts, options.max_tokens)
    terms = collect_terms(
        network,
        encoded,
        items_of_words(encoded, words.text, words.spans),
        len(words.labels),
        batch_size=options.batch_size,
        watch=watch,
    )
    seen = np.flatnonzero(terms.seen)
    settings: dict[str, object] = {"labels": source, "words_cut_off": len(terms.seen) - len(seen)}
    return _Collected(
        task,
        replace(terms, terms=terms.terms[:, seen], seen=terms.seen[seen]),
        words.origin[seen],
        np.zeros(len(seen), dtype=np.int64),
        tuple(words.labels[item] for item in seen),
        tuple(words.lemmas[item] for item in seen) if words.lemmas else (),
        settings,
    )


def _collect_tokens(
    network: Network, texts: Sequence[str], options: AblationOptions, watch: Watch
) -> _Collected:
    encoded = encode_texts(network, texts, options.max_tokens)
    predicts = prediction_of(network)
    if predicts is None:
        raise StudyError(f"{network.name}: predicts neither masked tokens nor the next one")
    chosen = choose_tokens(network, encoded, predicts, most=options.most_items, seed=options.seed)
    terms = collect_terms(
        network,
        chosen.texts,
        chosen.items,
        len(chosen.targets),
        batch_size=options.batch_size,
        watch=watch,
    )
    settings = {"predicts": predicts, **chosen.settings}
    return _Collected("masked", terms, chosen.text, chosen.targets, (), (), settings)


def _measures_of(
    part: _Collected, options: AblationOptions, head: LanguageHead | str | None, device: str
) -> list[_Measure]:
    def trained(training: Training) -> Training:
        return replace(training, runs=options.runs, seed=options.seed, device=device)

    def measure(
        key: str, predict: Callable[[Keep], SubsetPredictions], score: Score = "accuracy"
    ) -> _Measure:
        return _Measure(key, score, predict, part.settings, options.seed)

    terms, names, text, seed = part.terms.terms, part.terms.names, part.text, options.seed
    if part.task == "masked":
        what = f"{part.predicts} tokens"
        made = []
        if isinstance(head, LanguageHead):
            own = language_head(head)
            made.append(
                measure(
                    "masked-own",
                    lambda keep: masked_accuracy(
                        own,
                        terms,
                        part.targets,
                        names,
                        text=text,
                        measure=f"{what}, the model's head",
                        keep=keep,
                    ),
                )
            )
        made.append(
            measure(
                "masked-trained",
                lambda keep: trained_masked_accuracy(
                    terms,
                    part.targets,
                    names,
                    text=text,
                    split_seed=seed,
                    training=trained(masked_tokens.TRAINING),
                    measure=f"{what}, linear layer trained",
                    keep=keep,
                ),
            )
        )
        return made
    if part.task == "tagging":
        return [
            measure(
                "tagging",
                lambda keep: tagging_probe(
                    terms,
                    part.labels,
                    names,
                    text=text,
                    split_seed=seed,
                    training=trained(tagging.TRAINING),
                    keep=keep,
                ),
                "macro-F1",
            )
        ]
    return [
        measure(
            "senses-knn",
            lambda keep: word_sense_knn(
                terms, part.lemmas, part.labels, names, text=text, split_seed=seed, keep=keep
            ),
        ),
        measure(
            "senses-mlp",
            lambda keep: word_sense_probe(
                terms,
                part.lemmas,
                part.labels,
                names,
                text=text,
                split_seed=seed,
                training=trained(sense_probes.TRAINING),
                keep=keep,
            ),
        ),
        measure(
            "senses-mlp-lemma",
            lambda keep: word_sense_probes_of_lemmas(
                terms,
                part.lemmas,
                part.labels,
                names,
                text=text,
                split_seed=seed,
                training=trained(sense_probes.LEMMA_TRAINING),
                keep=keep,
            ),
        ),
    ]
