"""`deltadex eval`: do nearest neighbours share their training data?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import click

from .. import terminal
from ..terminal.options import Common, base_option, option, takes
from .opening import open_database
from .output import print_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What is evaluated."""

    recipes: tuple[str, ...] = option(
        "--recipe", multiple=True, help="Name or id; several are shown side by side."
    )
    base: str | None = base_option()
    exclude: Literal["author", "run"] | None = option(
        "--exclude", help="Leave out candidates of the same author or run."
    )


@click.command("eval")
@takes(Evaluation)
def eval(common: Common, evaluation: Evaluation) -> None:
    """Measure how often nearest neighbours share their dataset, against chance.

    \b
    Example:
      deltadex eval --exclude author
      deltadex eval --recipe sketch --recipe activation-shift
    """
    with open_database(common) as db:
        table = db.evaluate(*evaluation.recipes, base=evaluation.base, exclude=evaluation.exclude)
    print_table(table, _show, common)


def _show(document: Mapping[str, Any]) -> None:
    if "recipes" in document:
        terminal.show_evaluations(document)
    else:
        terminal.show_evaluation(document)
