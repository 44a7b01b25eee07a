"""`deltadex layers`: what tells the layers of a network apart."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from .. import terminal
from ..terminal.options import Common, option, seed_option, takes
from .studying import Running, StudiedModel, StudiedTexts, run_study


class Numbers(click.ParamType[tuple[int, ...]]):
    """Whole numbers with commas between."""

    name = "numbers"

    def __init__(self, least: int) -> None:
        self.least = least

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(int(number) for number in value.split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers such as 10,25,40", param, ctx)
        if min(numbers) < self.least:
            self.fail(f"{min(numbers)} is less than {self.least}", param, ctx)
        return numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersOptions(StudiedTexts):
    """Which layers, with which controls."""

    transfer: Path | None = option(
        "--transfer",
        type=click.Path(exists=True, path_type=Path),
        help="Test the classifier on a second set of texts.",
    )
    sweep_context: tuple[int, ...] = option(
        "--sweep-context",
        type=Numbers(least=2),
        default=(),
        show_default=False,
        metavar="N,N,…",
        help="Measure accuracy on texts of at least N tokens, cut to N, for each N.",
    )
    sweep_texts: tuple[int, ...] = option(
        "--sweep-texts",
        type=Numbers(least=1),
        default=(),
        show_default=False,
        metavar="N,N,…",
        help="Measure accuracy after training on N texts, for each N.",
    )
    also: tuple[str, ...] = option(
        "--also",
        multiple=True,
        metavar="MODEL",
        help="Compare a model of another size; repeat for more.",
    )
    no_punctuation: bool = option(
        "--no-punctuation", help="Leave out tokens without a letter or digit."
    )
    no_untrained: bool = option("--no-untrained", help="Leave out the untrained twin.")
    without_embedding: bool = option("--without-embedding", help="Leave out layer 0.")
    keep_tokens: int = option(
        "--keep-tokens",
        type=click.IntRange(min=20),
        default=1000,
        help="Tokens sampled from each set of texts.",
    )
    most_texts: int = option(
        "--most-texts",
        type=click.IntRange(min=5),
        default=300,
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
      deltadex layers gpt2 --also gpt2-medium --texts imdb.txt --sweep-context 10,25,40
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
            punctuation=not options.no_punctuation,
            sweep_context=options.sweep_context,
            sweep_texts=options.sweep_texts,
            also=options.also,
            keep_tokens=options.keep_tokens,
            most_texts=options.most_texts,
            seed=options.seed,
            base=studied.base,
            **asdict(running),
        ),
    )
