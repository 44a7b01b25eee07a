"""The ablation study of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import RequestError, StudyError
from ...study.study import Subject, find_subject
from ..opened import Place
from .calls import Running, StudyCalls, load_texts, running_settings
from .tables import AblationStudy

if TYPE_CHECKING:
    from typing import Unpack

    from ...study.ablation import AblationStudyReport
    from ...study.network import LanguageHead, Network
    from ...study.texts import Texts

TASKS = ("masked", "senses", "tagging")


class AblationCall(StudyCalls):
    """`ablation`."""

    def ablation(
        self,
        model: str,
        *,
        texts: Place,
        senses: Place | None = None,
        tags: Place | None = None,
        tasks: Sequence[str] = TASKS,
        runs: int = 3,
        most_items: int = 3000,
        seed: int = 0,
        again: bool = False,
        base: str | None = None,
        **running: Unpack[Running],
    ) -> AblationStudy:
        """What each subset of the terms i, h, f, c can predict: tokens, word senses, tags.

        An interrupted study continues where it stopped when it is called again.

        Args:
            texts: A file or folder of texts.
            senses: Words in their senses (JSON lines, CSV, TSV: `text`, `lemma`, `sense`, and
                `start` and `end` or `word`); pseudo-words made from the texts by default.
            tags: Tagged words in CoNLL's columns; the shapes of the texts' words by default.
            tasks: Some of `masked`, `senses`, `tagging`.
            runs: Trainings of each probe.
            most_items: Tokens or words of a task that are used.
            seed: Of everything random.
            again: Whether a stored study is made again.
            running: See `Running`.

        Returns:
            A row for each measure and subset: `measure`, `subset`, `value` (0…1), `sd` over runs,
            `low` and `high` (95 % interval over texts).

        Raises:
            RequestError: a task that there is none of.
            StudyError: nothing can be measured; models need a tokenizer.

        >>> db.ablation("imdb-0", texts="texts.txt")
        Traceback (most recent call last):
        deltadex.errors.StudyError: ...tokenizer...
        """
        from ...study import pictures
        from ...study.ablation import AblationStudyReport, read_senses, read_tags
        from .settings import AblationSettings

        unknown = [task for task in tasks if task not in TASKS]
        if unknown or not tasks:
            raise RequestError(
                f"no task {', '.join(unknown) or 'given'}; there are {', '.join(TASKS)}"
            )
        run = running_settings(running)
        read = load_texts(Path(texts))
        words = {
            "senses": read_senses(Path(senses)) if senses is not None else None,
            "tags": read_tags(Path(tags)) if tags is not None else None,
        }
        subject = find_subject(self._catalog, model, base)
        settings = AblationSettings(
            texts=read.digest,
            senses=words["senses"].digest if words["senses"] else None,
            tags=words["tags"].digest if words["tags"] else None,
            tasks=[task for task in TASKS if task in tasks],
            runs=runs,
            most_items=most_items,
            seed=seed,
            max_tokens=run["max_tokens"],
        )
        stored = None if again else self._load(subject, "ablation", asdict(settings))
        if stored is not None:
            report, document = AblationStudyReport.from_json(stored), stored
        else:
            report, text_notes = self._ablate(subject, read, words, settings, run)
            broken = [*read.broken, *(row for w in words.values() if w for row in w.broken)]
            document = report.to_json() | text_notes | {"broken_rows": broken}
            self._save(subject, "ablation", asdict(settings), document)
        title = f"Ablation of {report.model}"
        return AblationStudy(
            document | subject.base_notes, title, partial(pictures.draw_ablation, report)
        )

    def _ablate(
        self,
        subject: Subject,
        read: Texts,
        words: Mapping[str, Any],
        settings: Any,
        run: Running,
    ) -> tuple[AblationStudyReport, dict[str, Any]]:
        """The study, and what is said of its texts; a journal has its progress until the end."""
        from platformdirs import user_cache_dir

        from ...study.ablation import AblationOptions, Journal, ablation_study

        network = subject.load(run["device"])
        text_notes = self._text_notes(network, run, read)
        journal = Journal.open(
            Path(user_cache_dir("deltadex", appauthor=False)) / "studies",
            asdict(settings)
            | {"weights": network.digest(), "transformers": version("transformers")},
        )
        report = ablation_study(
            network,
            [text.text for text in read.entries],
            options=AblationOptions(
                tasks=tuple(settings.tasks),
                runs=settings.runs,
                most_items=settings.most_items,
                seed=settings.seed,
                batch_size=run["batch_size"],
                max_tokens=run["max_tokens"],
            ),
            head=_head_of(subject, network) if "masked" in settings.tasks else None,
            senses=words["senses"],
            tags=words["tags"],
            keep=journal,
            watch_batches=lambda batches, total: self._track(batches, "batches", total=total),
            watch_subsets=self._watch_subsets,
        )
        journal.remove()
        return report, text_notes

    def _watch_subsets(self, steps: Iterable[int], total: int) -> Iterator[int]:
        return self._track(steps, "subsets", total=total)


def _head_of(subject: Subject, network: Network) -> LanguageHead | str:
    """The model's own head, or why there is none."""
    try:
        return subject.load_head(network)
    except StudyError as err:
        return str(err)
