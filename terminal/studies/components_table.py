"""The table of a components study."""

from __future__ import annotations

from ..tables import Document, console, print_rows, text
from ..text import share


def show_components(document: Document) -> None:
    """Importance by layer and term; beside a base, what moved and what was edited."""
    screen = console()
    beside = f" against {text(document['against'])}" if document["against"] else ""
    screen.print(
        f"components of [bold]{text(document['model'])}[/]{beside} · "
        f"{document['tokens']} tokens of {document['texts']} texts"
    )
    for name, stack in document["stacks"].items():
        terms = [t for t in stack["terms"] if t not in stack["absent"]]
        places = [stack["terms"].index(t) for t in terms]
        rows = [
            (layer, *(share(row[place]) for place in places))
            for layer, row in zip(stack["layers"], stack["importance"], strict=True)
        ]
        print_rows(screen, (f"{name}: importance", *terms), rows)
        if stack["absent"]:
            screen.print(f"  absent: {', '.join(stack['absent'])}")
        if "local_shift" not in stack:
            continue
        rows = [
            (layer, *(f"{value:.4f}" for value in row))
            for layer, row in enumerate(stack["local_shift"], start=1)
        ]
        heads = (f"{name}: edited (own change / input)", *stack["local_terms"])
        print_rows(screen, heads, rows)
        edited = stack["most_edited"]
        embedding = f"embeddings moved by {stack['local_embedding']:.4f}"
        if edited is None:
            screen.print(f"  no layer was edited; {embedding}")
        else:
            screen.print(
                f"  edited most: [bold]{edited['term']} of layer {edited['layer']}[/]; {embedding}"
            )
