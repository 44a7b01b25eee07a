"""A lineage as a tree of text, folded where it is large."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text
from rich.tree import Tree

from ...results import Descent, count
from ..terminal.console import screen
from ..terminal.text import plain

MOST_LINES = 100
"""Models up to which a tree is shown whole."""

SHOWN_OF_EACH = 6
"""Models below one, of a larger tree: those that have most below themselves."""

DEEPEST = 60
"""Models in a line up to which a tree is shown: rich draws it by recursion."""

CLAIMS_SHOWN = 20

MARKS = {"duplicate": "copy", "quantised": "rounded copy", "merge": "merge", "fine-tune": ""}


def show_lineage(document: Mapping[str, Any], *, everything: bool = False) -> None:
    """The tree, then what cards say otherwise, then what was not compared."""
    console = screen()
    left_out = [row for row in document["not_compared"] if row["reason"].startswith("not-read")]
    if n_unread := len(left_out) + len(partly := document.get("partly_read", [])):
        console.print(f"{count(n_unread, 'model')} not read, or in part: see below", style="yellow")
    console.print(_tree(document, everything=everything))
    n_models, n_without = document["models"], document["without_parent"]
    console.print(
        f"{count(n_models, 'model')}; {n_without} without a known parent "
        f"(no edge with a probability of {document['level']:g} or more)",
        style="dim",
    )
    if document["times"]["future"]:
        n_future = count(document["times"]["future"], "time")
        console.print(f"{n_future} in the future ignored", style="dim")
    notes = [f"{row['model']}: {row['note']}" for row in document["claims"] if row["note"]]
    notes += [f"{row['model']}: not compared: {row['reason']}" for row in document["not_compared"]]
    notes += [f"{row['model']} {row['note']}" for row in partly]
    for note in notes if everything else notes[:CLAIMS_SHOWN]:
        console.print(Text(plain(note)))
    if not everything and len(notes) > CLAIMS_SHOWN:
        console.print(f"… and {len(notes) - CLAIMS_SHOWN} more; --all shows them", style="dim")
    if "picture" in document:
        console.print(Text(plain(f"picture: {document['picture']}")))


def _tree(document: Mapping[str, Any], *, everything: bool) -> Tree:
    tree = Descent.of(document)
    most = None if everything or document["models"] <= MOST_LINES else SHOWN_OF_EACH
    root = Tree(Text(plain(document["base"])))
    queue = [(root, document["base"], 0)]
    while queue:
        branch, name, depth = queue.pop()
        edges = tree.below(name)
        shown = edges[:most] if depth < DEEPEST else []
        for edge in shown:
            line = _line(edge, tree.others.get(edge["child"], ()), document["base"])
            queue.append((branch.add(line), edge["child"], depth + 1))
        n_left = sum(tree.sizes[edge["child"]] for edge in edges[len(shown) :])
        if n_left:
            branch.add(Text(f"… and {count(n_left, 'more model')}", style="dim"))
    return root


def _line(edge: Mapping[str, Any], others: Sequence[Mapping[str, Any]], base: str) -> Text:
    words = [MARKS[edge["kind"]]] if MARKS[edge["kind"]] else []
    if edge["weight"] is not None:
        words[-1] = f"merge, weight {edge['weight']:.2f}"
        words += [f"with {other['parent']} {other['weight']:.2f}" for other in others]
    if edge["parent"] != base:
        words.append(f"p {edge['probability']:.2f}")
    if edge["words"]:
        words.append(f"words: {', '.join(edge['words'])}")
    line = Text(plain(edge["child"]))
    return line.append(f"  {plain(', '.join(words))}", style="dim") if words else line
