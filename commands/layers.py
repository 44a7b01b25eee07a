"""`deltadex layers`: what tells the layers of a network apart."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import click

from .. import terminal
from ..terminal.options import Common, option, seed_option, takes
from .studying import Running, StudiedModel, StudiedTexts, run_study


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersOptions(StudiedTexts):
    """Which layers, with which controls."""

    transfer: Path | None = option(
        "--transfer",
        type=click.Path(exists=True, path_type=Path),
        help="Test the classifier on a second set of texts.",
    )
    no_untrained: bool = option(
        "--no-untrained", is_flag=True, help="Leave out the untrained twin."
    )
    without_embedding: bool = option("--without-embedding", is_flag=True, help="Leave out layer 0.")
    keep_tokens: int = option(
        "--keep-tokens",
        type=click.IntRange(min=20),
        default=1000,
        show_default=True,
        help="Tokens sampled from each set of texts.",
    )
    most_texts: int = option(
        "--most-texts",
        type=click.IntRange(min=5),
        default=300,
        show_default=True,
        help="Texts drawn from each set; the rest is not read.",
    )
    seed: int = seed_option("Random seed of everything that is sampled.")


@click.command()
@takes(StudiedModel, LayersOptions, Running)
def layers(common: Common, studied: StudiedModel, options: LayersOptions, running: Running) -> None:
    """Measure what tells layers apart: norms, PCA, a classifier and its controls.

    \b
    Example:
      deltadex layers ./my-run --texts imdb.txt --transfer agnews.csv -o layers.png
    """
    run_study(
        common,
        studied,
        terminal.show_layers,
        lambda db: db.layers(
            studied.model,
            texts=options.texts,
            transfer=options.transfer,
            untrained=not options.no_untrained,
            embedding=not options.without_embedding,
            keep_tokens=options.keep_tokens,
            most_texts=options.most_texts,
            seed=options.seed,
            base=studied.base,
            **asdict(running),
        ),
    )
