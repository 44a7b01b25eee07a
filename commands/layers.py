"""`deltadex layers`: what tells the layers of a network apart."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..terminal.options import (
    Common,
    Running,
    argument,
    base_option,
    option,
    picture_option,
    seed_option,
    takes,
    texts_option,
)
from .geometry import TEXTS_HELP
from .output import check_picture, finish_study
from .studies import hidden_states, load_texts, save_study
from .subject import find_subject

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersOptions:
    """Whose layers, over which texts, with which controls."""

    model: str = argument()
    texts: Path = texts_option(TEXTS_HELP, required=True)
    transfer: Path | None = option(
        "--transfer",
        type=click.Path(exists=True, path_type=Path),
        help="A second set of texts: does the classifier hold there?",
    )
    no_untrained: bool = option("--no-untrained", is_flag=True, help="Without the untrained twin.")
    without_embedding: bool = option("--without-embedding", is_flag=True, help="Without layer 0.")
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
    output: Path | None = picture_option()
    base: str | None = base_option()


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersSettings:
    """What decides the study's numbers; stored with them."""

    texts: str
    transfer: str | None
    untrained: bool
    embedding: bool
    keep_tokens: int
    seed: int
    max_tokens: int
    version: int = 1


@click.command()
@takes(LayersOptions, Running)
def layers(common: Common, options: LayersOptions, running: Running) -> None:
    """What tells the layers apart: norms, PCA, a classifier and every control of it.

    \b
    Example:
      deltadex layers ./my-run --texts imdb.txt --transfer agnews.csv -o layers.png
    """
    from ..study.layers import layers_study
    from ..study.network import untrained_twin
    from ..terminal import show_layers

    check_picture(options.output)
    texts = load_texts(options.texts).drawn(options.most_texts, options.seed)
    transfer = None
    if options.transfer is not None:
        transfer = load_texts(options.transfer).drawn(options.most_texts, options.seed)
    subject = find_subject(common.db, options.model, options.base)
    network = subject.load(running.device)
    twin = None if options.no_untrained else untrained_twin(network, seed=options.seed)
    quiet = common.quiet
    report = layers_study(
        hidden_states(network, texts, running, quiet=quiet),
        other=hidden_states(network, transfer, running, quiet=quiet) if transfer else None,
        untrained=hidden_states(twin, texts, running, quiet=quiet) if twin else None,
        include_embedding=not options.without_embedding,
        max_tokens=options.keep_tokens,
        seed=options.seed,
    )
    settings = LayersSettings(
        texts=texts.digest,
        transfer=transfer.digest if transfer else None,
        untrained=not options.no_untrained,
        embedding=not options.without_embedding,
        keep_tokens=options.keep_tokens,
        seed=options.seed,
        max_tokens=running.max_tokens,
    )
    broken = [*texts.broken, *(transfer.broken if transfer else ())]
    document = {"model": network.name} | report.to_json() | {"broken_rows": broken}
    save_study(common.db, subject, "layers", asdict(settings), document)

    def draw() -> Figure:
        from ..study.pictures.layers import draw_layers

        return draw_layers(report)

    title = f"Layers of {network.name}"
    finish_study(document, draw, options.output, title, show_layers, common)
