"""`deltadex components`: what hidden states are made of."""

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
    takes,
    texts_option,
)
from .output import check_picture, finish_study
from .studies import load_texts, save_study, tracked_batches
from .subject import find_subject

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentsOptions:
    """Whose components, over which texts."""

    model: str = argument()
    against: str | None = option(
        "--against", help="Its base, or a relative: what moved, and where it was edited."
    )
    texts: Path | None = texts_option(
        "As of `geometry`.  [default: 64 built-in texts in 8 languages]"
    )
    special: bool = option(
        "--special", is_flag=True, help="Count special tokens and first positions too."
    )
    output: Path | None = picture_option()
    base: str | None = base_option()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentsSettings:
    """What decides the study's numbers; stored with them."""

    texts: str
    against: str | None
    special_tokens: bool
    max_tokens: int
    version: int = 1


@click.command()
@takes(ComponentsOptions, Running)
def components(common: Common, options: ComponentsOptions, running: Running) -> None:
    """What every hidden state is made of: input, attention, feed-forward, bias.

    With --against also which layer and which component a fine-tune edited.

    \b
    Example:
      deltadex components ./my-run --against ./base -o components.html
    """
    from ..study.components import components_study
    from ..study.profile import probe_texts
    from ..terminal import show_components

    check_picture(options.output)
    texts = load_texts(options.texts) if options.texts else probe_texts()
    against = options.against
    subject = find_subject(common.db, options.model, options.base, hint=against)
    network = subject.load(running.device)
    other = find_subject(common.db, against, None).load(running.device) if against else None
    report = components_study(
        network,
        texts.entries,
        against=other,
        keep_special=options.special,
        keep_first=options.special,
        watched=lambda batches: tracked_batches(batches, texts, running, quiet=common.quiet),
        batch_size=running.batch_size,
        max_tokens=running.max_tokens,
    )
    settings = ComponentsSettings(
        texts=texts.digest,
        against=against,
        special_tokens=options.special,
        max_tokens=running.max_tokens,
    )
    document = report.to_json() | {"broken_rows": list(texts.broken)}
    save_study(common.db, subject, "components", asdict(settings), document)

    def draw() -> Figure:
        from ..study.pictures.components import draw_components

        return draw_components(report)

    title = f"Components of {network.name}"
    finish_study(document, draw, options.output, title, show_components, common)
