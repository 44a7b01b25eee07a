"""What tables of several studies share."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from ..tables import Document, console, text


def spread(n_layers: int, most: int = 12) -> list[int]:
    """At most `most` layers from the first to the last, evenly."""
    if n_layers <= most:
        return list(range(n_layers))
    return sorted({round(i * (n_layers - 1) / (most - 1)) for i in range(most)})


def show_base_notes(document: Document) -> None:
    """Which adapters name another base than the one that the user chose."""
    for note in document["base_notes"]:
        console().print(f"[yellow]{text(note)}[/]")


def print_left_out(
    screen: Console, names: Sequence[object], shown: Sequence[int], noun: str = "layers"
) -> None:
    """Name the layers, or what else the noun says, that the tables above have no room for."""
    left = [text(name) for place, name in enumerate(names) if place not in shown]
    if left:
        screen.print(f"  not shown: {noun} {', '.join(left)} (--json has them)", style="dim")


def print_failed(screen: Console, document: Document) -> None:
    for model in document["failed"]:
        screen.print(f"[yellow]{text(model['model'])}[/]: {text(model['reason'])}")
