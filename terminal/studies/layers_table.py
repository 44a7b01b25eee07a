"""The table of a layers study."""

from __future__ import annotations

from ..tables import Document, console, print_rows, text
from ..text import share


def show_layers(document: Document) -> None:
    """Accuracy of the layer classifier and of every control."""
    screen = console()
    screen.print(
        f"layers of [bold]{text(document['model'])}[/] · chance {document['chance']:.3f} · "
        f"{document['n_tokens']} tokens of {document['n_texts']} texts"
    )
    rows = [
        (
            control["title"],
            share(control["accuracy"]),
            "" if control["standard_error"] is None else share(control["standard_error"]),
            "" if control["converged"] else "did not converge",
        )
        for control in document["controls"]
    ]
    print_rows(screen, ("", "accuracy", "±", ""), rows)
    growth = document["norms"]["growth"]
    if growth:
        kind = "exponential" if growth["exponential"] else "not exponential"
        screen.print(f"norms grow by ×{growth['rate']:.3f} a layer, R² {growth['r2']:.2f}: {kind}")
