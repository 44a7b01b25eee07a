"""`deltadex ablation`: what each subset of an embedding's terms can predict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import click

from .. import terminal
from ..terminal.options import Common, option, seed_option, takes
from .studying import Running, StudiedModel, StudiedTexts, run_study


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationOptions(StudiedTexts):
    """What is predicted."""

    senses: Path | None = option(
        "--senses",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Words in their senses: JSONL, CSV, TSV with text, lemma, sense, start and end, or "
        "word.  [default: pseudo-words made from the texts]",
    )
    tags: Path | None = option(
        "--tags",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Tagged words in CoNLL's columns.  [default: the shapes of words]",
    )
    tasks: str = option(
        "--tasks",
        default="masked,senses,tagging",
        show_default=True,
        help="What is predicted, with commas between.",
    )
    runs: int = option(
        "--runs",
        type=click.IntRange(min=1),
        default=3,
        show_default=True,
        help="Train each probe N times.",
        metavar="N",
    )
    most_items: int = option(
        "--most-items",
        type=click.IntRange(min=100),
        default=3000,
        show_default=True,
        help="Use at most N tokens or words for a task.",
        metavar="N",
    )
    seed: int = seed_option("Random seed of masks, splits and trainings.")
    again: bool = option("--again", help="Make a stored study again.")


@click.command()
@takes(StudiedModel, AblationOptions, Running)
def ablation(
    common: Common, studied: StudiedModel, options: AblationOptions, running: Running
) -> None:
    """Measure what each subset of the terms input, attention, feed-forward, bias predicts.

    Masked tokens, word senses and tags of words, from every subset of the terms. If it is
    interrupted, run the same command again to continue.

    \b
    Example:
      deltadex ablation ./my-run --texts imdb.txt --tags ner.conll -o ablation.png
    """
    tasks = [task.strip() for task in options.tasks.split(",") if task.strip()]
    run_study(
        common,
        studied,
        terminal.show_ablation,
        lambda db: db.ablation(
            studied.model,
            base=studied.base,
            **(asdict(options) | {"tasks": tasks}),
            **asdict(running),
        ),
    )
