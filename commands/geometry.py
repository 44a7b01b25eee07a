"""`deltadex geometry`: the shape of hidden states, by layer and language."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal

import click

from .. import terminal
from ..terminal.options import Common, option, seed_option, takes
from .studying import Running, StudiedModel, StudiedTexts, run_study


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometryOptions(StudiedTexts):
    """How geometry is measured."""

    reference: str | None = option(
        "--reference", help="The group that the others are compared with: eng_Latn."
    )
    untrained: bool = option(
        "--untrained", help="Measure a network of the same shape with fresh weights beside it."
    )
    scrambled: bool = option(
        "--scrambled", help="Measure each text with its words in random order too."
    )
    method: Literal["gram", "lanczos", "power"] = option(
        "--method",
        type=click.Choice(["gram", "lanczos", "power"]),
        default="gram",
        show_default=True,
        help="How anisotropy is computed.",
    )
    keep_tokens: int = option(
        "--keep-tokens",
        type=click.IntRange(min=100),
        default=2000,
        show_default=True,
        help="Tokens of each group that intrinsic dimension is estimated from.",
    )
    seed: int = seed_option("Random seed of tokens, fresh weights and scrambled words.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Printing:
    """What is printed."""

    all_measures: bool = option("--all", help="Print every measure that the report has.")


@click.command()
@takes(StudiedModel, GeometryOptions, Running, Printing)
def geometry(
    common: Common,
    studied: StudiedModel,
    options: GeometryOptions,
    running: Running,
    printing: Printing,
) -> None:
    """Measure dimension, anisotropy, linearity and divergence of hidden states, by layer.

    \b
    Example:
      deltadex geometry ./my-run --texts flores/ --reference eng_Latn -o geometry.png
      deltadex geometry ./my-run --texts mr.csv --untrained --scrambled --all
    """
    run_study(
        common,
        studied,
        partial(terminal.show_geometry, all_measures=printing.all_measures),
        lambda db: db.geometry(
            studied.model, base=studied.base, **asdict(options), **asdict(running)
        ),
    )
