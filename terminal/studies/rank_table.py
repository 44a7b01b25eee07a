"""The table of a rank study."""

from __future__ import annotations

from ..tables import Document, console, print_rows, text
from .shared import print_failed, print_left_out, spread


def show_ranks(document: Document) -> None:
    """r_θ by role and layer, with the law of each curve."""
    screen = console()
    subject = "W" if document["subject"] == "weights" else "ΔW"
    screen.print(f"rank of {subject}: [bold]{text(document['name'])}[/]")
    for theta in document["thetas"]:
        curves = [c for c in document["curves"] if c["theta"] == theta]
        for stack in dict.fromkeys(c["stack"] for c in curves):
            own = [c for c in curves if c["stack"] == stack]
            depth = max(c["n_layers"] for c in own)
            shown = spread(depth)
            rows = []
            for curve in own:
                by_layer = {point["layer"]: point for point in curve["points"]}
                cells = [_rank(by_layer.get(layer)) for layer in shown]
                rows.append((curve["role"], *cells, _law(curve["fit"])))
            heads = (f"θ = {theta:g}, {stack}", *map(str, shown), "law")
            print_rows(screen, heads, rows)
            print_left_out(screen, range(depth), shown)
    for note in document["notes"]:
        screen.print(f"  {text(note)}", style="dim")
    print_failed(screen, document)


def _rank(point: Document | None) -> str:
    if point is None:
        return ""
    spread = point["standard_error"]
    shown = f"{point['rank']:.0f}" if spread is None else f"{point['rank']:.1f}±{spread:.1f}"
    return shown if point["valid"] else f"({shown})"


def _law(fit: Document) -> str:
    """The law and how well it fits; why there is none, where a word says it."""
    best, verdict = fit["best"], str(fit["verdict"])
    if best is None:
        return verdict
    if verdict == "constant":
        scatter = f" ± {fit['scatter']:.2g}" if fit["scatter"] else ""
        return f"constant {best['parameters']['a']['value']:.3g}{scatter}"
    if verdict == "no pattern":
        return f"no pattern, p {fit['p_value']:.2g}"
    if not fit["pattern"]:
        return f"{verdict} ({best['law']}: R² {best['r_squared']:.2f})"
    shown = f"{verdict}, R² {best['r_squared']:.2f}"
    if fit["misses"]:
        worst = max(fit["misses"], key=lambda miss: abs(miss["standard_errors"]))
        shown += f", layer {worst['layer']} off by {abs(worst['standard_errors']):.1f} s.e."
    return shown
