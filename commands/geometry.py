"""`deltadex geometry`: the shape of hidden states, by layer and language."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

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
from .output import check_picture, finish_study
from .studies import hidden_states, load_texts, save_study
from .subject import find_subject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..study.network import Network

TEXTS_HELP = "One text per line; or CSV, TSV, JSONL with text, group, id; or FLORES files."

Method = Literal["gram", "lanczos", "power"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometryChoices:
    """Whose geometry, over which texts, and how it is measured."""

    model: str = argument()
    texts: Path = texts_option(TEXTS_HELP, required=True)
    reference: str | None = option(
        "--reference", help="The group that the others are compared with: eng_Latn."
    )
    method: Method = option(
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
    output: Path | None = picture_option()
    base: str | None = base_option()


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometrySettings:
    """What decides the study's numbers; stored with them."""

    texts: str
    reference: str | None
    method: Method
    keep_tokens: int
    seed: int
    max_tokens: int
    version: int = 1


@click.command()
@takes(GeometryChoices, Running)
def geometry(common: Common, choices: GeometryChoices, running: Running) -> None:
    """Intrinsic dimension, anisotropy and divergence of hidden states, by layer and language.

    \b
    Example:
      deltadex geometry ./my-run --texts flores/ --reference eng_Latn -o geometry.png
    """
    from ..study.geometry import GeometryOptions, geometry_study
    from ..terminal import show_geometry

    check_picture(choices.output)
    texts = load_texts(choices.texts)
    subject = find_subject(common.db, choices.model, choices.base)
    network = subject.load(running.device)
    report = geometry_study(
        hidden_states(network, texts, running, quiet=common.quiet),
        texts.entries,
        reference=choices.reference,
        options=GeometryOptions(method=choices.method, keep=choices.keep_tokens, seed=choices.seed),
        tokenize=_tokenize(network),
        unknown=getattr(network.tokenizer, "unk_token_id", None),
    )
    settings = GeometrySettings(
        texts=texts.digest,
        reference=choices.reference,
        method=choices.method,
        keep_tokens=choices.keep_tokens,
        seed=choices.seed,
        max_tokens=running.max_tokens,
    )
    document = {"model": network.name} | report.to_json() | {"broken_rows": list(texts.broken)}
    save_study(common.db, subject, "geometry", asdict(settings), document)

    def draw() -> Figure:
        from ..study.pictures.geometry import draw_geometry

        return draw_geometry(report)

    title = f"Geometry of {network.name}"
    finish_study(document, draw, choices.output, title, show_geometry, common)


def _tokenize(network: Network) -> Callable[[str], list[int]] | None:
    if network.tokenizer is None:
        return None
    return lambda text: list(network.tokenizer(text, add_special_tokens=False).input_ids)
