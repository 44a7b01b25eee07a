"""`deltadex eval`: do nearest neighbours share their training data?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import click

from ..terminal.options import Common, base_option, option, takes
from .catalog import open_catalog
from .output import print_document


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What is evaluated."""

    recipes: tuple[str, ...] = option(
        "--recipe", multiple=True, help="Name or id; several are shown side by side."
    )
    base: str | None = base_option()
    exclude: Literal["author", "run"] | None = option(
        "--exclude",
        type=click.Choice(["author", "run"]),
        help="Leave out candidates of the same author or run.",
    )


@click.command("eval")
@takes(Evaluation)
def evaluate_command(common: Common, evaluation: Evaluation) -> None:
    """Same-dataset retrieval precision of the labelled models, against chance.

    \b
    Example:
      deltadex eval --exclude author
      deltadex eval --recipe sketch --recipe activation-shift
    """
    from ..search import evaluate
    from ..terminal import show_evaluation, show_evaluations

    with open_catalog(common.db) as catalog:
        base = catalog.find_base(evaluation.base)
        documents = [
            evaluate(catalog, recipe=recipe, base=base, exclude=evaluation.exclude).to_json()
            for recipe in evaluation.recipes or (None,)
        ]
    if len(documents) > 1:
        print_document({"recipes": documents}, show_evaluations, common)
    else:
        print_document(documents[0], show_evaluation, common)
