"""The table of a components study."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tables import Document, console, print_rows, text
from ..text import count, share

if TYPE_CHECKING:
    from rich.console import Console

SHOWN_HEADS = 8
"""Heads of a stack that the screen shows; the document has all."""


def show_components(document: Document) -> None:
    """Importance by layer and term; beside a base, what moved and what was edited."""
    screen = console()
    beside = f" against {text(document['against'])}" if document["against"] else ""
    screen.print(
        f"components of [bold]{text(document['model'])}[/]{beside} · "
        f"{count(document['tokens'], 'token')} of {count(document['texts'], 'text')}"
    )
    for name, stack in document["stacks"].items():
        terms = [t for t in stack["terms"] if t not in stack["absent"]]
        places = [stack["terms"].index(t) for t in terms]
        rows = [
            (layer, *(share(row[place]) for place in places))
            for layer, row in zip(stack["layers"], stack["importance"], strict=True)
        ]
        print_rows(screen, (f"{name}: importance in hidden state", *terms), rows)
        if stack["absent"]:
            screen.print(f"  absent: {', '.join(stack['absent'])}")
        if stack["linear"] is not None:
            _print_linear(screen, name, stack)
        if stack["heads"] is not None:
            _print_heads(screen, name, stack["heads"])
        if "local_shift" not in stack:
            continue
        rows = [
            (layer, *(f"{value:.4f}" for value in row))
            for layer, row in enumerate(stack["local_shift"])
        ]
        heads = (f"{name}: layer, edited (own change / input)", *stack["local_terms"])
        print_rows(screen, heads, rows)
        edited = stack["most_edited"]
        embedding = f"embeddings moved by {stack['local_embedding']:.4f}"
        if edited is None:
            screen.print(f"  no layer was edited; {embedding}")
        else:
            screen.print(
                f"  edited most: [bold]{edited['term']} of layer {edited['layer']}[/]; {embedding}"
            )


def _print_linear(screen: Console, name: str, stack: Document) -> None:
    """R² of the linear fits by layer, or how many tokens they lack."""
    linear = stack["linear"]
    if linear["too_few_tokens"]:
        held = linear["needed_tokens"] // 10
        screen.print(
            f"  linear fits: too few tokens: {linear['train_tokens']} to fit and "
            f"{linear['held_out_tokens']} held out; they need {linear['needed_tokens']} and {held}"
        )
        return
    columns = [fit[side] for fit in linear["fits"] for side in ("r2", "r2_train")]
    rows = [
        (layer, *(f"{value:.3f}" for value in row))
        for layer, row in enumerate(zip(*columns, strict=True))
    ]
    heads = [f"{part}, {side}" for part in ("term", "sub-layer") for side in ("held out", "fitted")]
    print_rows(screen, (f"{name}: layer, R² of a linear map", *heads), rows)
    fits = "; ".join(
        f"{part}: {fit['outcome']} from {fit['predictor']}"
        for part, fit in zip(("term", "sub-layer"), linear["fits"], strict=True)
    )
    screen.print(f"  {fits}")


def _print_heads(screen: Console, name: str, heads: Document) -> None:
    """The heads that changed most; of one model, those that matter most in the last layer."""
    keys = ["importance", "importance_last"]
    titles = ["importance in its block", "in the last layer"]
    if heads["local_shift"] is not None:
        keys.append("local_shift")
        titles.append("edited (own change / input)")
    values = heads[keys[-1]]
    places = [(block, head) for block, row in enumerate(values) for head in range(len(row))]
    places.sort(key=lambda place: -values[place[0]][place[1]])
    rows = [
        (
            f"{block}.{head}",
            *(f"{heads[key][block][head]:.4f}" for key in keys),
        )
        for block, head in places[:SHOWN_HEADS]
    ]
    print_rows(screen, (f"{name}: layer.head", *titles), rows)
    if len(places) > SHOWN_HEADS:
        screen.print(f"  {len(places) - SHOWN_HEADS} more heads: --json")
