"""`deltadex rank`: how many directions an update has."""

from __future__ import annotations

from dataclasses import dataclass

import click

from .. import terminal
from ..terminal.options import Common, argument, option, takes
from .studying import Drawing, run_study, studied_base


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOptions(Drawing):
    """Whose rank, of what."""

    model: str | None = argument(required=False)
    family: str | None = option(
        "--family", help="Measure every indexed model of this base, and their mean."
    )
    thetas: tuple[float, ...] = option(
        "--theta",
        type=click.FloatRange(0, 1, min_open=True),
        multiple=True,
        default=(0.5, 0.9, 0.99),
        show_default=True,
        help="Shares of |ΔW|² to be explained.",
    )
    weights: bool = option(
        "--weights", is_flag=True, help="Measure the weights W themselves, not ΔW."
    )
    base: str | None = studied_base()
    device: str = option(
        "--device",
        default="cpu",
        show_default=True,
        help="Compute singular values on this device.",
    )


@click.command()
@takes(RankOptions)
def rank(common: Common, options: RankOptions) -> None:
    """Count the directions of an update, by role and depth, and fit a law to them.

    \b
    Example:
      deltadex rank someone/bert-imdb -o ranks.png
      deltadex rank --family bert-base-uncased --theta 0.9
    """
    run_study(
        common,
        options,
        terminal.show_ranks,
        lambda db: db.rank(
            options.model,
            family=options.family,
            thetas=options.thetas,
            weights=options.weights,
            base=options.base,
            device=options.device,
        ),
    )
