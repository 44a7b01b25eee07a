"""`deltadex components`: what hidden states are made of."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import click

from .. import terminal
from ..terminal.options import Common, option, takes
from .studying import Running, StudiedModel, run_study


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentsOptions:
    """What is decomposed."""

    against: str | None = option(
        "--against",
        help="Compare with its base or another model: what moved, which layer was edited.",
    )
    texts: Path | None = option(
        "--texts",
        type=click.Path(exists=True, path_type=Path),
        help="As of `geometry`.  [default: 64 built-in texts in 8 languages]",
    )
    special_tokens: bool = option(
        "--special", is_flag=True, help="Count special tokens and first positions too."
    )
    heads: bool = option(
        "--heads", is_flag=True, help="Split attention by head; with --against, what moved in each."
    )
    linear: bool = option(
        "--linear",
        is_flag=True,
        help="Fit the feed-forward term by a linear map; R² by layer on held-out texts.",
    )


@click.command()
@takes(StudiedModel, ComponentsOptions, Running)
def components(
    common: Common, studied: StudiedModel, options: ComponentsOptions, running: Running
) -> None:
    """Decompose hidden states into input, attention, feed-forward and bias.

    With --against also which layer and which component a fine-tune edited.

    \b
    Example:
      deltadex components ./my-run --against ./base -o components.html
    """
    run_study(
        common,
        studied,
        terminal.show_components,
        lambda db: db.components(
            studied.model, base=studied.base, **asdict(options), **asdict(running)
        ),
    )
