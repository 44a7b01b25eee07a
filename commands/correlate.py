"""`deltadex correlate`: whether a measure of stored studies goes with a column of a file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import click

from .. import terminal
from ..terminal.options import Common, argument, base_option, option, seed_option, takes
from .output import print_table
from .studying import open_for_study


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlating:
    """Which measure, and which columns."""

    measure: str = argument()
    file: Path = argument(type=click.Path(exists=True, dir_okay=False, path_type=Path))
    columns: tuple[str, ...] = option(
        "--column", multiple=True, help="A column of FILE.  [default: every column of numbers]"
    )
    over: Literal["models", "groups"] = option(
        "--over", default="models", help="Whether a row of FILE is a model or a group of texts."
    )
    model: str | None = option("--model", help="With `--over groups`: the model.")
    layer: int | None = option(
        "--layer", type=click.IntRange(min=0), help="Measure this layer.  [default: mean of all]"
    )
    last: bool = option("--last", help="Measure the last layer.")
    group: str | None = option(
        "--group", help="With `--over models`: the group of texts.  [default: mean of all]"
    )
    base: str | None = base_option()
    seed: int = seed_option("Random seed of the permutations.")


@click.command()
@takes(Correlating)
def correlate(common: Common, correlating: Correlating) -> None:
    """Correlate MEASURE of stored studies with columns of FILE, by Spearman's rank correlation.

    FILE is a CSV file with a column `model` (or `group`) and columns of numbers, such as accuracy.
    MEASURE is a number that a study stored, or of whole updates, such as `slots.relative_norm`;
    where there is no such measure, the command lists those that there are.

    \b
    Example:
      deltadex correlate geometry.anisotropy.centred scores.csv --column accuracy --last
      deltadex correlate geometry.fertility.tokens_per_word sizes.csv --over groups
    """
    with open_for_study(common) as db:
        table = db.correlate(**asdict(correlating))
    print_table(table, terminal.show_correlations, common)
