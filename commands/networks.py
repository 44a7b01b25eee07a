"""Studies that run a model over texts: components, geometry, layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..terminal.options import base_option, common, picture_option, running_options
from .output import check_picture, finish
from .subject import find_subject, keep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..study.network import Network, TokenStates
    from ..study.texts import Texts

Batched = TypeVar("Batched")

texts_option = click.option(
    "--texts",
    type=click.Path(exists=True, path_type=Path),
    required=True,
    help="One text a line; or CSV, TSV, JSONL with text, group, id; or FLORES files.",
)


@click.command()
@click.argument("model")
@click.option("--against", help="Its base, or a relative: what moved, and where it was edited.")
@click.option(
    "--texts",
    type=click.Path(exists=True, path_type=Path),
    help="As of `geometry`.  [default: 64 built-in texts in 8 languages]",
)
@click.option("--special", is_flag=True, help="Count special tokens and first positions too.")
@running_options
@picture_option
@base_option
@common
def components(
    db: Path,
    as_json: bool,
    quiet: bool,
    model: str,
    against: str | None,
    texts: Path | None,
    special: bool,
    picture: Path | None,
    base: str | None,
    device: str,
    **batches: int,
) -> None:
    """What every hidden state is made of: input, attention, feed-forward, bias.

    With --against also which layer and which component a fine-tune edited.

    \b
    Example:
      deltadex components ./my-run --against ./base -o components.html
    """
    from ..study.components import components_study
    from ..study.profile import probe_texts
    from ..terminal import show_components

    check_picture(picture)
    read = _read_texts(texts) if texts else probe_texts()
    subject = find_subject(db, model, base or against)
    network = subject.load(device)
    other = find_subject(db, against, None).load(device) if against else None
    report = components_study(
        network,
        read.entries,
        against=other,
        keep_special=special,
        keep_first=special,
        watched=lambda made: _watched(made, read, batches["batch_size"], quiet=quiet),
        **batches,
    )
    settings = {
        "texts": read.digest,
        "against": against,
        "special_tokens": special,
        "max_tokens": batches["max_tokens"],
        "version": 1,
    }
    document = report.to_json() | {"broken_rows": list(read.broken)}
    keep(db, subject, "components", settings, document)

    def draw() -> Figure:
        from ..study.pictures.components import draw_components

        return draw_components(report)

    finish(document, draw, picture, f"Components of {network.name}", as_json, show_components)


@click.command()
@click.argument("model")
@texts_option
@click.option("--reference", help="The group that the others are compared with: eng_Latn.")
@click.option(
    "--method",
    type=click.Choice(["gram", "lanczos", "power"]),
    default="gram",
    show_default=True,
    help="How anisotropy is found.",
)
@click.option(
    "--keep-tokens",
    type=click.IntRange(min=20),
    default=2000,
    show_default=True,
    help="Tokens of each group that intrinsic dimension is estimated from.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of what is sampled.")
@running_options
@picture_option
@base_option
@common
def geometry(
    db: Path,
    as_json: bool,
    quiet: bool,
    model: str,
    texts: Path,
    reference: str | None,
    method: Any,
    keep_tokens: int,
    seed: int,
    picture: Path | None,
    base: str | None,
    device: str,
    **batches: int,
) -> None:
    """Intrinsic dimension, anisotropy and divergence of hidden states, by layer and language.

    \b
    Example:
      deltadex geometry ./my-run --texts flores/ --reference eng_Latn -o geometry.png
    """
    from ..study.geometry import GeometryOptions, geometry_study
    from ..terminal import show_geometry

    check_picture(picture)
    read = _read_texts(texts)
    subject = find_subject(db, model, base)
    network = subject.load(device)
    options = GeometryOptions(method=method, keep=keep_tokens, seed=seed)
    report = geometry_study(
        _states(network, read, quiet=quiet, **batches),
        read.entries,
        reference=reference,
        options=options,
        tokenize=_tokenize(network),
        unknown=getattr(network.tokenizer, "unk_token_id", None),
    )
    settings = {
        "texts": read.digest,
        "reference": reference,
        "method": method,
        "keep_tokens": keep_tokens,
        "seed": seed,
        "max_tokens": batches["max_tokens"],
        "version": 1,
    }
    document = {"model": network.name} | report.to_json() | {"broken_rows": list(read.broken)}
    keep(db, subject, "geometry", settings, document)

    def draw() -> Figure:
        from ..study.pictures.geometry import draw_geometry

        return draw_geometry(report)

    finish(document, draw, picture, f"Geometry of {network.name}", as_json, show_geometry)


@click.command()
@click.argument("model")
@texts_option
@click.option(
    "--transfer",
    type=click.Path(exists=True, path_type=Path),
    help="A second set of texts: does the classifier hold there?",
)
@click.option("--no-untrained", is_flag=True, help="Without the untrained twin.")
@click.option("--without-embedding", is_flag=True, help="Without layer 0.")
@click.option(
    "--keep-tokens",
    type=click.IntRange(min=20),
    default=1000,
    show_default=True,
    help="Tokens sampled from each set of texts.",
)
@click.option(
    "--most-texts",
    type=click.IntRange(min=5),
    default=300,
    show_default=True,
    help="Texts drawn from each set; the rest is not read.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of what is sampled.")
@running_options
@picture_option
@base_option
@common
def layers(
    db: Path,
    as_json: bool,
    quiet: bool,
    model: str,
    texts: Path,
    transfer: Path | None,
    no_untrained: bool,
    without_embedding: bool,
    keep_tokens: int,
    most_texts: int,
    seed: int,
    picture: Path | None,
    base: str | None,
    device: str,
    **batches: int,
) -> None:
    """What tells the layers apart: norms, PCA, a classifier and every control of it.

    \b
    Example:
      deltadex layers ./my-run --texts imdb.txt --transfer agnews.csv -o layers.png
    """
    from ..study.layers import layers_study
    from ..study.network import untrained_twin
    from ..terminal import show_layers

    check_picture(picture)
    read = _read_texts(texts).drawn(most_texts, seed)
    second = _read_texts(transfer).drawn(most_texts, seed) if transfer else None
    subject = find_subject(db, model, base)
    network = subject.load(device)
    twin = None if no_untrained else untrained_twin(network, seed=seed)
    report = layers_study(
        _states(network, read, quiet=quiet, **batches),
        other=_states(network, second, quiet=quiet, **batches) if second else None,
        untrained=_states(twin, read, quiet=quiet, **batches) if twin else None,
        include_embedding=not without_embedding,
        max_tokens=keep_tokens,
        seed=seed,
    )
    settings = {
        "texts": read.digest,
        "transfer": second.digest if second else None,
        "untrained": not no_untrained,
        "embedding": not without_embedding,
        "keep_tokens": keep_tokens,
        "seed": seed,
        "max_tokens": batches["max_tokens"],
        "version": 1,
    }
    broken = [*read.broken, *(second.broken if second else ())]
    document = {"model": network.name} | report.to_json() | {"broken_rows": broken}
    keep(db, subject, "layers", settings, document)

    def draw() -> Figure:
        from ..study.pictures.layers import draw_layers

        return draw_layers(report)

    finish(document, draw, picture, f"Layers of {network.name}", as_json, show_layers)


def _read_texts(path: Path) -> Texts:
    """The texts; broken rows are named on stderr."""
    from ..study.texts import read_texts
    from ..terminal import note

    texts = read_texts(path)
    for line in texts.broken[:5]:
        note(line)
    if len(texts.broken) > 5:
        note(f"{len(texts.broken) - 5} more rows could not be used")
    return texts


def _states(
    network: Network, texts: Texts, *, quiet: bool, batch_size: int, max_tokens: int
) -> Iterator[TokenStates]:
    """The network's hidden states, with a bar on stderr."""
    from ..study.network import token_states

    states = token_states(network, texts.entries, batch_size=batch_size, max_tokens=max_tokens)
    return _watched(states, texts, batch_size, quiet=quiet)


def _watched(
    batches: Iterable[Batched], texts: Texts, batch_size: int, *, quiet: bool
) -> Iterator[Batched]:
    """The same batches of these texts, with a bar on stderr."""
    from ..terminal import tracked

    n_batches = -(-len(texts.entries) // batch_size)
    return tracked(batches, "batches", total=n_batches, quiet=quiet)


def _tokenize(network: Network) -> Callable[[str], list[int]] | None:
    if network.tokenizer is None:
        return None
    return lambda text: list(network.tokenizer(text, add_special_tokens=False).input_ids)
