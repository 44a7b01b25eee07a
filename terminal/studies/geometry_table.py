"""The table of a geometry study."""

from __future__ import annotations

from collections.abc import Callable

from ..tables import Document, console, print_rows, text
from ..text import share
from .shared import spread


def show_geometry(document: Document) -> None:
    """Each group's dimension and anisotropy at a few depths."""
    screen = console()
    screen.print(f"geometry of [bold]{text(document['model'])}[/]")
    shown = spread(document["n_layers"])
    estimator = document["options"]["estimators"][0]
    columns: tuple[tuple[str, Callable[[Document], str]], ...] = (
        (f"intrinsic dimension ({estimator})", lambda layer: _dimension(layer, estimator)),
        ("anisotropy, centred", lambda layer: share(layer["anisotropy"]["centred"])),
        ("mean cosine", lambda layer: share(layer["anisotropy"]["mean_cosine"])),
    )
    for title, value in columns:
        rows = [
            (
                group["group"] or "all",
                group["tokens"],
                *(value(group["layers"][layer]) for layer in shown),
            )
            for group in document["groups"]
        ]
        print_rows(screen, (title, "tokens", *map(str, shown)), rows)
    cut = [g for g in document["groups"] if g["fertility"]]
    if len(cut) > 1:
        keys = ("tokens_per_word", "tokens_per_character", "unknown_share")
        rows = [(g["group"], *(share(g["fertility"][key]) for key in keys)) for g in cut]
        heads = ("tokens per word, unknown", "per word", "per character", "unknown")
        print_rows(screen, heads, rows)


def _dimension(layer: Document, estimator: str) -> str:
    estimate = next(d for d in layer["intrinsic_dimension"] if d["estimator"] == estimator)
    if estimate["dimension"] is None:
        return "–"
    spread = f"±{estimate['sd']:.1f}" if estimate["sd"] is not None else ""
    return f"{estimate['dimension']:.1f}{spread}"
