"""A family with a place for each model, drawn as a page or a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import RequestError
from .family_map import Colour, Neighbourhoods, write_page

ENDINGS = (".html", ".png", ".svg")


def check_ending(target: Path) -> None:
    """Refuse a file name before any work is done for it.

    Raises:
        RequestError: not a map's ending.
    """
    if target.suffix.lower() not in ENDINGS:
        raise RequestError(f"{target}: a map's name ends in one of {', '.join(ENDINGS)}")


def write_map(
    document: Mapping[str, Any],
    path: Path,
    *,
    landmarks: int | None,
    neighbours: Neighbourhoods | None,
    colour: Colour,
    dark: bool,
) -> None:
    """Draw a placed family into a .html page, or a .png or .svg picture.

    Args:
        document: As GET map answers.
        landmarks: Models that were placed first, the others among them; None = all alike.
        neighbours: Of every model, for a page.
        colour: What marks of a picture are coloured by; a page is by dataset.
        dark: Light on dark, for a picture; a page follows its reader's setting.

    Raises:
        RequestError: there are no models, or `path` cannot be written.
    """
    title = f"Fine-tunes of {document['base']}"
    subtitle = describe_layout(document, landmarks)
    if path.suffix.lower() == ".html":
        write_page(document, path, title=title, subtitle=subtitle, neighbours=neighbours)
    else:
        from .map_picture import write_picture

        write_picture(document, path, title=title, subtitle=subtitle, colour=colour, dark=dark)


def encode_names(column: Sequence[str | None]) -> tuple[list[int | None], list[str]]:
    """Each entry as its place in the list of names, the most frequent first; None stays None."""
    counts = Counter(name for name in column if name is not None)
    names = sorted(counts, key=lambda name: (-counts[name], name))
    place = {name: i for i, name in enumerate(names)}
    return [None if name is None else place[name] for name in column], names


def describe_layout(document: Mapping[str, Any], landmarks: int | None) -> str:
    """One line: which fingerprints, how many models, how they were placed, how to read it."""
    n_models = len(document["models"])
    models = "1 model" if n_models == 1 else f"{n_models:,} models"
    if document["explained"] is not None:
        reading = f"PCA: two axes with {sum(document['explained']):.0%} of the variance"
    else:
        name = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP"}[document["layout"]]
        if landmarks is not None:
            name += f" of {landmarks:,}, the others placed among them"
        reading = f"{name}: near means alike, far apart means little"
    return f"{document['recipe']} fingerprints of {models} · {reading}"
