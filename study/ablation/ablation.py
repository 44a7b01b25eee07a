"""The ablation study of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from ...errors import RequestError, StudyError
from ...options import Place, option, record
from ...results import Document, Row, Section, agree, count
from ..study import (
    OpenCatalog,
    StudyTable,
    Subject,
    TextStudy,
    find_subject,
    load_texts,
    seed_option,
    study,
)

if TYPE_CHECKING:
    from torch import nn

    from ..texts import Texts
    from . import AblationStudyReport

Task = Literal["masked", "senses", "tagging"]
TASKS: tuple[Task, ...] = get_args(Task)

HEADS = {
    "masked-own": "{predicts} tokens, own head",
    "masked-trained": "{predicts} tokens, trained",
    "senses-knn": "senses, kNN",
    "senses-mlp": "senses, MLP",
    "tagging": "tags, macro-F1",
}

FEWEST_ITEMS = 30
"""With fewer a 95 % interval is wider than ± 0.17 at one half."""
TIED = 1e-9


@record
class Ablation(TextStudy):
    """Measure what each subset of the terms input, attention, feed-forward, bias predicts.

    Masked tokens, word senses and tags of words, from every subset of the terms.

    Returns:
        A row for each measure and subset: `measure`, `subset`, `value` (0…1), `sd` over runs,
        `low` and `high` (95 % interval over texts).

    Raises:
        RequestError: a task that there is none of.
        StudyError: nothing can be measured; models need a tokenizer.

    >>> db.studies.ablation("imdb-0", texts="texts.txt")
    Traceback (most recent call last):
    deltadex.errors.StudyError: ...tokenizer...
    """

    name = "ablation"
    version = 2
    examples = ("ablation ./my-run --texts imdb.txt --tags ner.conll -o ablation.png",)

    _: KW_ONLY
    senses: Place | None = option(
        default=None,
        file="existing file",
        shown_default="pseudo-words made from the texts",
        help="Words in their senses: JSONL, CSV, TSV with text, lemma, sense, start and end, or "
        "word.",
    )
    tags: Place | None = option(
        default=None,
        file="existing file",
        shown_default="the shapes of words",
        help="Tagged words in CoNLL's columns.",
    )
    tasks: Sequence[str] = option(
        default=TASKS, separated=True, help="What is predicted, with commas between."
    )
    runs: int = option(default=3, least=1, metavar="N", help="Train each probe N times.")
    most_items: int = option(
        default=3000, least=100, metavar="N", help="Use at most N tokens or words for a task."
    )
    seed: int = seed_option("masks, splits and trainings")
    again: bool = option(default=False, stored=False, help="Make a stored study again.")

    def answer(self, db: OpenCatalog) -> AblationTable:
        from . import AblationStudyReport, read_senses, read_tags

        tasks = [task for task in self.tasks if task]
        unknown = ", ".join(task for task in tasks if task not in TASKS)
        if unknown or not tasks:
            raise RequestError(f"no task {unknown or 'given'}; there are {', '.join(TASKS)}")
        device = self.usable_device()
        texts = load_texts(self.texts)
        words = {
            "senses": read_senses(Path(self.senses)) if self.senses is not None else None,
            "tags": read_tags(Path(self.tags)) if self.tags is not None else None,
        }
        subject = find_subject(db.catalog, self.model, self.base)
        settings = self.settings(
            texts=texts.digest,
            tasks=[task for task in TASKS if task in tasks],
            **{name: own.digest if own else None for name, own in words.items()},
        )
        stored = None if self.again else db.load(subject, self.name, settings)
        if stored is not None:
            report, document = AblationStudyReport.from_json(stored), stored
        else:
            report, text_notes = self._ablate(db, subject, texts, words, device)
            broken = [*texts.broken, *(row for own in words.values() if own for row in own.broken)]
            document = report.to_json() | text_notes | {"broken_rows": broken}
            db.save(subject, self.name, settings, document)
        title = f"Ablation of {report.model}"
        return AblationTable(document | subject.base_notes, report, title)

    def _ablate(
        self, db: OpenCatalog, subject: Subject, texts: Texts, words: Mapping[str, Any], device: str
    ) -> tuple[AblationStudyReport, dict[str, Any]]:
        """The study, and what is said of its texts."""
        from . import ablation_study

        network = subject.load(device)
        text_notes = self.text_notes(network, texts)
        head: nn.Module | str | None = None
        if "masked" in self.tasks:
            try:
                head = subject.load_head(network)
            except StudyError as err:
                head = str(err)
        report = ablation_study(
            network,
            [text.text for text in texts.entries],
            asked=self,
            head=head,
            senses=words["senses"],
            tags=words["tags"],
            track=db.track,
        )
        return report, text_notes


class AblationTable(StudyTable):
    """What subsets of terms predict: a row for each measure and subset."""

    columns = ("measure", "subset", "value", "sd", "low", "high", "difference", "items")
    _picture = "draw_ablation"

    def _rows(self) -> Sequence[Row]:
        return [
            {"measure": measure["key"], "score": measure["score"], "items": measure["n_items"]}
            | {key: value for key, value in score.items() if key != "terms"}
            for measure in self._document["measures"]
            for score in measure["subsets"]
        ]

    def sections(self, *, everything: bool = False) -> Iterator[Section]:
        document = self._document
        measures = document["measures"]
        heads = [
            HEADS[m["key"]].format(predicts=m["settings"].get("predicts", "masked"))
            for m in measures
        ]
        rows = [
            (subset["subset"], *(_cell(measure, row) for measure in measures))
            for row, subset in enumerate(measures[0]["subsets"])
        ]
        yield Section(
            title=f"ablation of {document['model']} · behind layer {document['layer']} of the "
            f"{document['stack']} · {count(document['texts'], 'text')}",
            columns=("terms", *heads),
            rows=[*rows, ("test items", *(m["n_items"] for m in measures))],
            notes=list(_meaning(document)),
        )
        if everything:
            yield Section.of(self.columns, self._rows())


def _meaning(document: Document) -> Iterator[str]:
    measures = document["measures"]
    letters = [s["subset"] for s in measures[0]["subsets"] if len(s["terms"]) == 1]
    names = [
        f"{letter} {term.replace('_', '-')}"
        for letter, term in zip(letters, document["terms"], strict=True)
    ]
    yield f"terms: {', '.join(names)}; none: the baseline, without any term"
    spreads = [s["sd"] for m in measures for s in m["subsets"] if s["sd"] is not None]
    n_runs = max(m["n_runs"] for m in measures)
    over_runs = f"; sd over {n_runs} runs up to {max(spreads):.3f}" if spreads else ""
    yield f"share of right answers, ± half a 95 % interval over texts{over_runs}; * best"
    for measure in measures:
        if measure["n_items"] < FEWEST_ITEMS:
            yield (
                f"{measure['key']}: {count(measure['n_items'], 'test item')} "
                f"{agree(measure['n_items'], 'is')} too few to tell subsets "
                "apart; give more texts"
            )
    if document["absent"]:
        yield f"absent: {', '.join(document['absent'])}"
    yield from (f"{skipped['measure']}: {skipped['reason']}" for skipped in document["skipped"])


def _cell(measure: Document, row: int) -> str:
    """The score of a subset; the best are marked where they are above the baseline."""
    baseline, *_ = measure["subsets"]
    score = measure["subsets"][row]
    best = max(subset["value"] for subset in measure["subsets"])
    half = (score["high"] - score["low"]) / 2
    is_best = score["value"] > best - TIED and best > baseline["value"] + TIED
    return f"{score['value']:.3f} ±{half:.3f}{' *' if is_best else ''}"


ablation = study(Ablation)
