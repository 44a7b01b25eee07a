"""The table of correlations."""

from __future__ import annotations

from ..tables import Document, console, print_rows, text
from ..text import count, share

MOST_NAMES = 8


def show_correlations(document: Document) -> None:
    """ρ of a measure with each column; what was averaged, and what was left out."""
    screen = console()
    layer = document["layer"]
    parts = [
        f"Spearman's ρ of [bold]{text(document['measure'])}[/] over {document['over']}",
        f"of {text(document['model'])}" if document["model"] else "",
        f"· group {text(document['group'])}" if document["group"] else "",
        f"· {'' if isinstance(layer, str) else 'layer '}{layer}" if layer is not None else "",
        "layers" if str(layer).startswith("mean") else "layer" if layer == "last" else "",
    ]
    screen.print(" ".join(filter(None, parts)))
    rows = [
        (
            text(one["column"]),
            one["n"],
            share(one["rho"]),
            "–" if one["low"] is None else f"{one['low']:.2f} to {one['high']:.2f}",
            _p(one["p_value"]),
            _p(one["p_holm"]),
            one["verdict"],
        )
        for one in document["correlations"]
    ]
    print_rows(screen, ("column", "n", "ρ", "95 %", "p", "p, Holm", ""), rows)
    if document["unmatched"]:
        names = [text(name) for name in document["unmatched"]]
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        screen.print(f"  not measured: {', '.join(names[:MOST_NAMES])}{more}", style="dim")
    if document["other_settings"]:
        screen.print(
            f"  left out: {count(document['other_settings'], 'model')} measured with other "
            "settings only",
            style="dim",
        )
    for line in document["broken_rows"][:MOST_NAMES]:
        screen.print(f"  {text(line)}", style="dim")


def _p(value: float | None) -> str:
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"
