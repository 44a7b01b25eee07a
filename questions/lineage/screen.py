"""A lineage as a tree of text, folded where it is large."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...errors import OFFERED
from ...results import Descent, Row, Shown, count

MOST_LINES = 100
"""Models up to which a tree is shown whole."""

SHOWN_OF_EACH = 6
"""Models below one, of a larger tree: those that have most below themselves; and those that stand
alone, of which nothing else is said, up to which each has a line."""

DEEPEST = 60
"""Models in a line up to which a tree is shown."""

CLAIMS_SHOWN = 20

WHOLE = 0.99
"""Sum of a merge's weights from which nothing is left for the base."""

MARKS = {"duplicate": "copy", "quantised": "rounded copy", "merge": "merge", "fine-tune": ""}


def show_lineage(document: Mapping[str, Any], *, everything: bool = False) -> Shown:
    """The tree, then what cards say otherwise, then what was not compared."""
    left_out = [row for row in document["not_compared"] if row["reason"].startswith("not-read")]
    if n_unread := len(left_out) + len(partly := document.get("partly_read", [])):
        yield f"{count(n_unread, 'model')} not read, or in part: see below"
    yield from _tree(document, everything=everything)
    yield (
        f"{count(document['models'], 'model')}; {document['without_parent']} without a known "
        f"parent (no edge with a probability of {document['level']:g} or more)"
    )
    if document["times"]["future"]:
        yield f"{count(document['times']['future'], 'time')} in the future ignored"
    notes = [f"{row['model']}: {row['note']}" for row in document["claims"] if row["note"]]
    notes += [f"{row['model']}: not compared: {row['reason']}" for row in document["not_compared"]]
    notes += [f"{row['model']} {row['note']}" for row in partly]
    yield from notes if everything else notes[:CLAIMS_SHOWN]
    if not everything and len(notes) > CLAIMS_SHOWN:
        yield f"… and {len(notes) - CLAIMS_SHOWN} more; --all shows them"
    if "picture" in document:
        yield f"picture: {document['picture']}"


def _tree(document: Mapping[str, Any], *, everything: bool) -> Iterator[str]:
    tree = Descent.of(document)
    most = None if everything or document["models"] <= MOST_LINES else SHOWN_OF_EACH

    def shown(name: str, level: int) -> list[Row | str]:
        edges, alone = tree.below(name), []
        if name == document["base"] and not everything:
            single = [edge for edge in edges if tree.sizes[edge["child"]] == 1]
            alone = [e["child"] for e in single if not (MARKS[e["kind"]] or e["words"])]
        if len(alone) > SHOWN_OF_EACH:
            edges = [edge for edge in edges if edge["child"] not in alone]
        rows: list[Row | str] = [*edges[:most]] if level < DEEPEST else []
        n_left = sum(tree.sizes[edge["child"]] for edge in edges[len(rows) :])
        rows += [f"… and {count(n_left, 'more model')}"] if n_left else []
        if len(alone) > SHOWN_OF_EACH:
            few = ", ".join(alone[:OFFERED])
            rows.append(f"{len(alone)} models alone: {few}, …; --all shows them")
        return rows

    yield document["base"]
    for (*lasts, is_last), row in tree.walk(document["base"], shown):
        branch = "".join("    " if last else "│   " for last in lasts)
        branch += "└── " if is_last else "├── "
        if not isinstance(row, str):
            row = _line(row, tree.others.get(row["child"], ()), document["base"])
        yield branch + row


def _line(edge: Mapping[str, Any], others: Sequence[Mapping[str, Any]], base: str) -> str:
    words = [MARKS[edge["kind"]]] if MARKS[edge["kind"]] else []
    if edge["weight"] is not None:
        words[-1] = f"merge, weight {edge['weight']:.2f}"
        words += [f"with {other['parent']} {other['weight']:.2f}" for other in others]
        if sum(row["weight"] for row in (edge, *others)) < WHOLE:
            words.append("the rest of the base's weights")
    if edge["parent"] != base:
        words.append(f"p {edge['probability']:.2f}")
    if edge["words"]:
        words.append(f"words: {', '.join(edge['words'])}")
    return "  ".join([edge["child"], *([", ".join(words)] if words else [])])
