"""The table of a logit lens."""

from __future__ import annotations

from ..tables import Document, console, print_rows, text
from ..text import count, share


def show_logit_lens(document: Document) -> None:
    """Each layer's predictions, the layer that decides, and what another model does."""
    screen = console()
    characters = document["n_characters"]
    counted = "" if characters is None else f", {characters} characters"
    screen.print(
        f"logit lens of [bold]{text(document['model'])}[/] · {count(document['n_tokens'], 'token')}"
        f"{counted} of {count(document['n_texts'], 'text')}"
    )
    rows = [
        (
            layer["layer"],
            share(layer["agreement"]),
            share(layer["decided"]),
            with_error(layer["bits_per_token"], layer["bits_per_token_se"]),
            with_error(layer["bits_per_character"], layer["bits_per_character_se"]),
            with_error(layer["kl"], layer["kl_se"]),
        )
        for layer in document["layers"]
    ]
    heads = ("hidden state", "same top", "decided", "bits a token", "bits a character", "KL, bits")
    print_rows(screen, heads, rows)
    low, middle, high = document["decided_layers"]
    screen.print(
        f"  half of the tokens are decided by layer [bold]{middle}[/] of "
        f"{document['n_layers'] - 1} (a quarter by {low}, three quarters by {high})"
    )
    if document["against"] is not None:
        _show_beside(document["against"])


def _show_beside(beside: Document) -> None:
    screen = console()
    other = beside["other"]
    by_character = beside["bits_per_character"]
    measure, name = (
        (beside["bits_per_token"], "token") if by_character is None else (by_character, "character")
    )
    screen.print(
        f"  beside [bold]{text(other['model'])}[/], which is decided by layer "
        f"{other['decided_layers'][1]} of {other['n_layers'] - 1}:"
    )
    screen.print(
        f"  {with_error(measure['value'], measure['standard_error'], signed=True)} bits a {name}; "
        f"the same answer for {share(beside['same_answer']['value'])} of the tokens"
    )


def with_error(value: float | None, error: float | None, *, signed: bool = False) -> str:
    """`3.214 ± 0.020`; without an error where there is none."""
    if value is None:
        return share(value)
    shown = f"{value:+.3f}" if signed else f"{value:.3f}"
    return shown if error is None else f"{shown} ± {error:.3f}"
