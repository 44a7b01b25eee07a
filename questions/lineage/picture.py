"""A lineage: a row a model, indented below its parent; and the same for Graphviz."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from matplotlib.lines import Line2D

from ... import figures
from ...errors import RequestError
from ...results import Descent, Lasts, Row, printable
from ...store import check_folder

ROW_MM, HEAD_MM = 4.0, 16.0

MOST_ROWS = 200
"""Rows of a picture; of a larger family, models with the most below them."""

NAME: Mapping[figures.Width, int] = {"full": 44, "column": 22}
"""Characters of a name."""

INDENTS: Mapping[figures.Width, float] = {"full": 14.0, "column": 6.0}
"""Levels that the indents take half of the width for, at least."""

MARKS = {
    "base": ("s", "#7F7F7F", "base"),
    "fine-tune": ("o", figures.PALETTE[0], "fine-tune"),
    "duplicate": ("o", figures.PALETTE[5], "copy"),
    "quantised": ("v", figures.PALETTE[4], "rounded copy"),
    "merge": ("D", figures.PALETTE[2], "merge"),
}

SOLID_FROM = 0.8
"""Probability from which an edge is drawn as a line, not dotted."""

FAINT = "#8a8f98"

CAPTION = (
    "A model stands below the one that it was trained from, by weights and times; the number is "
    "the probability of that edge. {without} of {models} hang at the base: no parent is known."
)


def check_lineage_ending(target: Path) -> None:
    """Refuse, with a `RequestError`, a file name that is no picture's, nor one of Graphviz; and one
    in no folder."""
    check_folder(target)
    if target.suffix.lower() not in (*figures.ENDINGS, ".dot"):
        endings = ", ".join((*figures.ENDINGS, ".dot"))
        raise RequestError(f"{target}: a lineage's file name ends in one of {endings}")


def draw_lineage(document: Mapping[str, Any], width: figures.Width = "full") -> figures.Picture:
    """Draw the document that `deltadex lineage --json` prints."""
    tree = Descent.of(document)
    rows: list[tuple[Lasts, Row | str]] = [((), ""), *_rows(document, tree)]
    caption = CAPTION.format(without=document["without_parent"], models=document["models"])
    picture = figures.new_picture(width, HEAD_MM + ROW_MM * len(rows), caption=caption)
    axes = picture.figure.subplots()
    axes.set_axis_off()
    deepest = max(len(lasts) for lasts, _ in rows)
    reach = max(float(deepest), INDENTS[width] / 2)
    axes.set_xlim(-0.3, 2 * reach)
    axes.set_ylim(len(rows) - 0.5, -0.7)
    kinds = {"base"}
    at = [0]  # the rows of a model and of those above it
    for number, (lasts, row) in enumerate(rows):
        level, edge = len(lasts), None if isinstance(row, str) else row
        at[level:] = [number]
        if number:
            solid = edge is None or edge["probability"] >= SOLID_FROM
            style = "-" if solid else ":"
            axes.plot(
                [level - 1, level - 1, level],
                [at[level - 1], number, number],
                color=FAINT,
                linewidth=0.8,
                linestyle=style,
                zorder=1,
                solid_capstyle="round",
            )
        if isinstance(row, str) and number:
            axes.text(level, number, row, va="center", color=FAINT)
            continue
        kind = edge["kind"] if edge else "base"
        name = edge["child"] if edge else document["base"]
        kinds.add(kind)
        marker, colour, _ = MARKS[kind]
        axes.plot([level], [number], marker, color=colour, markersize=4, zorder=3)
        shown = figures.middle_cut(name, NAME[width])
        label = axes.text(level + 0.16, number, shown, va="center", fontsize=figures.SMALL)
        if edge and (words := _words(edge, tree, document["base"], width)):
            axes.annotate(
                words,
                (1, 0.5),
                xycoords=label,
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=figures.SMALL - 1,
                color=FAINT,
            )
        told = f"{name}\n{kind} of {edge['parent']}" if edge else name
        picture.hover(axes, [level], [number], [told])
    entries = {
        name: Line2D([], [], marker=marker, color=colour, linestyle="", markersize=4)
        for kind, (marker, colour, name) in MARKS.items()
        if kind in kinds
    }
    figures.add_legend(picture.figure, entries)
    picture.figure.suptitle(f"Lineage of {figures.short(document['base'])}")
    return picture


def _words(edge: Row, tree: Descent, base: str, width: figures.Width) -> str:
    """What stands behind a name: the probability, the other parents of a merge, and words of its
    training data."""
    words = [f"{edge['probability']:.2f}"] if edge["parent"] != base else []
    if words and edge["weight"] is not None and width == "full":
        words.append(f"weight {edge['weight']:.2f}")
        others = tree.others.get(edge["child"], ())
        words += [f"+ {figures.middle_cut(o['parent'], 20)} {o['weight']:.2f}" for o in others]
    elif edge["words"] and width == "full":
        words.append(figures.middle_cut(", ".join(edge["words"]), NAME[width]))
    return "  ".join(words)


def _rows(document: Mapping[str, Any], tree: Descent) -> Iterator[tuple[Lasts, Row | str]]:
    """Every model below its first parent, depth first; at most `MOST_ROWS`."""
    kept = set(sorted(tree.sizes, key=lambda name: (-tree.sizes[name], name))[:MOST_ROWS])

    def shown(name: str, level: int) -> list[Row | str]:
        edges = tree.below(name)
        n_left = sum(tree.sizes[edge["child"]] for edge in edges if edge["child"] not in kept)
        own = [edge for edge in edges if edge["child"] in kept]
        return [*own, f"… and {n_left} more"] if n_left else [*own]

    return tree.walk(document["base"], shown)


def graphviz_lineage(document: Mapping[str, Any]) -> str:
    """The tree in Graphviz's language; without characters that no line can hold."""
    lines = ["digraph lineage {", "  rankdir=LR;", "  node [shape=box, style=rounded];"]
    lines.append(f"  {_quoted(document['base'])} [style=bold];")
    for edge in document["edges"]:
        ends = f"{_quoted(edge['parent'])} -> {_quoted(edge['child'])}"
        style = "dashed" if edge["probability"] < SOLID_FROM else "solid"
        label = f"{edge['kind']} {edge['probability']:.2f}"
        lines.append(f"  {ends} [label={_quoted(label)}, style={style}];")
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{printable(escaped)}"'
