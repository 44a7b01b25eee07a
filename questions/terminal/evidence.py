"""Evidence on the screen: z, probability, fdr, and what they rest on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import Any

from ...results import Document, Section, Shown, percent, share

EVIDENCE_OF_DATA = ("verdict", "probability", "z", "±", "fdr", "cosine")

NULL = "the null alone"
"""The source of a calibration in a family that is too small for another."""

NOTHING_STANDS_OUT = "no model stands out"
"""The verdict of a neighbour that is as near as strangers are."""


def evidence_table(
    heads: Sequence[str], rows: Iterable[Document], names: Mapping[str, str] = {}
) -> Section:
    """A table of names and numbers. Where bases have `names`, a column says them, behind models."""
    if names:
        rows = [{**row, "base": names[row["base"]]} for row in rows]
        if "base" not in heads:
            place = 1 + heads.index("model")
            heads = [*heads[:place], "base", *heads[place:]]
    return Section(columns=heads, rows=[[_evidence(head, row) for head in heads] for row in rows])


def _evidence(head: str, row: Document) -> str:
    match head:
        case "verdict":
            return str(row["verdict"]) if stands_out(row) else ""
        case "control":
            return f"z {row['control']['z']:.1f}" if row["control"] else ""
        case "95 %":
            return f"{row['low']:+.2f} … {row['high']:+.2f}"
        case "p":
            return "< .001" if row["p"] < 0.001 else f"{row['p']:.3f}".lstrip("0")
    key, form = _NUMBERS.get(head, (head, str))
    value = row.get(key)
    return "" if value is None else form(value)


def rate(value: float) -> str:
    """0.0123 → `1.3 %`, rounded up so that no rate is shown below the limit that it missed."""
    tenths = ceil(round(1000 * value, 6))
    if value < 0.001:
        return "<0.1 %"
    return f"{tenths / 10:.1f} %" if tenths < 100 else percent(value)


_NUMBERS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "z": ("z", "{:.1f}".format),
    "±": ("z_error", "{:.1f}".format),
    "touched": ("touched", "{:,}".format),
    "missing": ("missing", "{:,}".format),
    "by chance": ("missing_by_chance", "{:,.0f}".format),
    "fdr": ("fdr", rate),
    "probability": ("probability", "{:.2f}".format),
    "cosine": ("cosine", share),
    "effect": ("effect", "{:+.2f}".format),
}
"""The key of a column of evidence, and how its numbers are written."""


def stands_out(neighbour: Document) -> bool:
    return bool(neighbour["verdict"] != NOTHING_STANDS_OUT)


def show_left_out(document: Document) -> Shown:
    for row in document["left_out"]:
        reason = row["reason"].removeprefix(f"{row['base']}: ")
        yield f"not asked: {row['base']}  {reason}"
