"""`deltadex cka`: how alike the layers of two models represent the same tokens."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import click

from .. import terminal
from ..terminal.options import Common, option, seed_option, takes
from .studying import Running, StudiedModel, StudiedTexts, run_study


@dataclass(frozen=True, slots=True, kw_only=True)
class CkaOptions(StudiedTexts):
    """What is compared."""

    against: str | None = option(
        "--against", help="Compare with this model.  [default: the base of MODEL]"
    )
    keep_tokens: int = option(
        "--keep-tokens",
        type=click.IntRange(min=100),
        default=4000,
        show_default=True,
        help="Tokens sampled from the texts.",
    )
    seed: int = seed_option("Random seed of the sampled tokens and of the blocks of texts.")


@click.command()
@takes(StudiedModel, CkaOptions, Running)
def cka(common: Common, studied: StudiedModel, options: CkaOptions, running: Running) -> None:
    """Compare the layers of two models over the same tokens, by linear CKA.

    Width and depth may differ; the tokenizer must be the same.

    \b
    Example:
      deltadex cka ./my-run --texts reviews.csv -o cka.png
      deltadex cka ./my-run --texts reviews.csv --against ./other-run
    """
    run_study(
        common,
        studied,
        terminal.show_cka,
        lambda db: db.cka(studied.model, base=studied.base, **asdict(options), **asdict(running)),
    )
