"""`deltadex geometry`: the shape of hidden states, by layer and language."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import click

from .. import terminal
from ..terminal.options import Common, option, seed_option, takes
from .studying import (
    Running,
    StudiedModel,
    StudiedTexts,
    check_picture,
    finish_study,
    open_for_study,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometryOptions:
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
        type=click.IntRange(min=20),
        default=2000,
        show_default=True,
        help="Tokens of each group that intrinsic dimension is estimated from.",
    )
    seed: int = seed_option("Random seed of the sampled tokens.")


@click.command()
@takes(StudiedModel, StudiedTexts, GeometryOptions, Running)
def geometry(
    common: Common,
    studied: StudiedModel,
    texts: StudiedTexts,
    options: GeometryOptions,
    running: Running,
) -> None:
    """Measure dimension, anisotropy and divergence of hidden states, by layer and language.

    \b
    Example:
      deltadex geometry ./my-run --texts flores/ --reference eng_Latn -o geometry.png
    """
    check_picture(studied.output)
    with open_for_study(common) as db:
        study = db.geometry(
            studied.model,
            texts=texts.texts,
            base=studied.base,
            **asdict(options),
            **asdict(running),
        )
        finish_study(study, studied.output, terminal.show_geometry, common)
