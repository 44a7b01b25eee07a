"""`deltadex geometry`: the shape of hidden states, by layer and language."""

from __future__ import annotations

from dataclasses import asdict, dataclass
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
    seed: int = seed_option("Random seed of the sampled tokens.")


@click.command()
@takes(StudiedModel, GeometryOptions, Running)
def geometry(
    common: Common, studied: StudiedModel, options: GeometryOptions, running: Running
) -> None:
    """Measure dimension, anisotropy and divergence of hidden states, by layer and language.

    \b
    Example:
      deltadex geometry ./my-run --texts flores/ --reference eng_Latn -o geometry.png
    """
    run_study(
        common,
        studied,
        terminal.show_geometry,
        lambda db: db.geometry(
            studied.model, base=studied.base, **asdict(options), **asdict(running)
        ),
    )
