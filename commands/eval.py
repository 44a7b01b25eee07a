"""`deltadex eval`: do nearest neighbours share their training data?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from .. import terminal
from ..terminal.options import Common, base_option, option, takes
from .opening import open_database
from .output import print_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What is evaluated, and the file of its table."""

    recipes: tuple[str, ...] = option(
        "--recipe", multiple=True, help="Name or id; several are shown side by side."
    )
    base: str | None = base_option()
    exclude: Literal["author", "run"] | None = option(
        "--exclude", help="Leave out candidates of the same author or run."
    )
    with_unlabelled: bool = option(
        "--with-unlabelled", help="Let queries retrieve models without a dataset label too."
    )
    compare: str | None = option(
        "--compare", metavar="WAYS", help="Ways of scoring side by side, such as raw,normalised."
    )
    output: Path | None = option(
        "-o",
        "--output",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Write a table by family and dataset: .csv, .tex or .md.",
    )

    @property
    def ways(self) -> tuple[str, ...]:
        """The ways of scoring that are compared."""
        return () if self.compare is None else tuple(map(str.strip, self.compare.split(",")))


@click.command("eval")
@takes(Evaluation)
def eval(common: Common, evaluation: Evaluation) -> None:
    """Measure how often nearest neighbours share their dataset, against chance.

    \b
    Example:
      deltadex eval --exclude author
      deltadex eval --recipe sketch --recipe activation-shift
      deltadex eval --compare raw,normalised -o purity.tex
    """
    if evaluation.output:
        from ..database import check_table_ending

        check_table_ending(evaluation.output)
    with open_database(common) as db:
        table = db.evaluate(
            *evaluation.recipes,
            base=evaluation.base,
            exclude=evaluation.exclude,
            with_unlabelled=evaluation.with_unlabelled,
            compare=evaluation.ways,
        )
    if evaluation.output:
        table.save(evaluation.output)
    print_table(table, _show, common)


def _show(document: Mapping[str, Any]) -> None:
    if "recipes" in document or "ways" in document:
        terminal.show_evaluations(document)
    else:
        terminal.show_evaluation(document)
