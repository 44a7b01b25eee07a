"""The comparison of two models."""

from __future__ import annotations

from ..tables import Document, console, print_rows, text
from ..text import share


def show_diff(document: Document) -> None:
    """A sentence, then roles, layers and the slots that differ most."""
    screen = console()
    first, second = map(text, document["models"])
    screen.print(f"[bold]{text(document['sentence'])}[/]")
    for title, sums in (("|ΔW| by role", "by_role"), ("|ΔW| by layer", "by_layer")):
        rows = [(name, f"{a:.3g}", f"{b:.3g}") for name, (a, b) in document[sums].items()]
        print_rows(screen, (title, first, second), rows[:12])
    unit = "|ΔW|/|W|" if document["unit"] == "relative" else "|ΔW|"
    rows = [
        (
            slot["slot"],
            *(f"{value:.3g}" for value in slot["change"]),
            " / ".join(f"{value:.1f}" for value in slot["stable_rank"]),
            share(slot["update_cosine"]),
        )
        for slot in document["most_different"]
    ]
    heads = (f"most different, {unit}", first, second, "stable rank", "update cosine")
    print_rows(screen, heads, rows)
    for name, profile in document["profiles"].items():
        edited = [
            f"{where['term']} of {stack} layer {where['layer']}"
            for stack, where in profile["most_edited"].items()
            if where
        ]
        screen.print(f"  {text(name)} edited most: {', '.join(edited) or 'nothing'}")
