"""The table of a spectrum study."""

from __future__ import annotations

from ..tables import Document, console, print_rows, text
from .shared import print_left_out, spread

NAMES = {"update": "ΔW", "weights": "W"}


def show_spectra(document: Document) -> None:
    """α by role and layer, of ΔW and of W; in parentheses where draws rule a power law out."""
    screen = console()
    screen.print(f"α of the largest eigenvalues: [bold]{text(document['name'])}[/]")
    for stack, depth in document["depths"].items():
        shown = spread(depth, most=8)
        rows = []
        own = [m for m in document["matrices"] if m["stack"] == stack]
        for role in dict.fromkeys(m["role"] for m in own):
            for subject in document["subjects"]:
                cells = []
                for layer in shown:
                    place = (subject, role, layer)
                    here = [m for m in own if (m["subject"], m["role"], m["layer"]) == place]
                    cells.append(_alpha(here))
                rows.append((role, NAMES[subject], *cells))
        print_rows(screen, (stack, "of", *map(str, shown)), rows)
        print_left_out(screen, range(depth), shown)
    for note in document["notes"]:
        screen.print(f"  {text(note)}", style="dim")


def _alpha(matrices: list[Document]) -> str:
    """Of one matrix with its standard error; the mean of a slot's parts."""
    fitted = [m for m in matrices if m["power_law"]]
    if not matrices:
        return ""
    if not fitted:
        return str(matrices[0]["verdict"])
    alphas = [m["power_law"]["alpha"] for m in fitted]
    shown = f"{sum(alphas) / len(alphas):.1f}"
    if len(fitted) == 1:
        shown += f"±{fitted[0]['power_law']['standard_error']:.1f}"
    doubted = all(m["verdict"] == "no power law" for m in fitted)
    return f"({shown})" if doubted else shown
