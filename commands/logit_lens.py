"""`deltadex logit-lens`: which layer of a causal model decides what it predicts."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import click

from .. import terminal
from ..terminal.options import Common, option, takes
from .studying import Running, StudiedModel, StudiedTexts, run_study


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitLensOptions(StudiedTexts):
    """What is compared."""

    against: str | None = option(
        "--against", help="Compare with another causal model, such as the base."
    )


@click.command()
@takes(StudiedModel, LogitLensOptions, Running)
def logit_lens(
    common: Common, studied: StudiedModel, options: LogitLensOptions, running: Running
) -> None:
    """Read each layer of a causal model with its own head: which layer decides?

    Prints bits per token and per character of each layer; those of the last layer are the
    model's own.

    \b
    Example:
      deltadex logit-lens ./my-gpt2 --texts reviews.csv -o lens.png
      deltadex logit-lens ./my-gpt2 --texts reviews.csv --against gpt2
    """
    run_study(
        common,
        studied,
        terminal.show_logit_lens,
        lambda db: db.logit_lens(
            studied.model, base=studied.base, **asdict(options), **asdict(running)
        ),
    )
