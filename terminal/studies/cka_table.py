"""The table of a CKA study."""

from __future__ import annotations

from ..tables import Document, console, print_rows, text
from ..text import count, share


def show_cka(document: Document) -> None:
    """Each layer beside the other model's layer of the same relative depth."""
    screen = console()
    screen.print(
        f"linear CKA of [bold]{text(document['model'])}[/] and {text(document['against'])} · "
        f"{document['n_tokens']} of {count(document['n_tokens_seen'], 'token')} of "
        f"{count(document['n_texts'], 'text')}"
    )
    rows = [
        (
            layer["layer"],
            layer["against_layer"],
            share(layer["debiased"]),
            share(layer["standard_error"]),
            share(layer["cka"]),
        )
        for layer in document["layers"]
    ]
    print_rows(screen, ("hidden state", "beside", "debiased", "±", "biased"), rows)
    if not document["n_blocks"]:
        screen.print("  no standard error: fewer than 5 texts", style="dim")
