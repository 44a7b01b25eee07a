"""The tables of a layers study."""

from __future__ import annotations

from rich.console import Console

from ..tables import Document, console, print_rows, text
from ..text import count, share
from .shared import print_failed, print_left_out, spread

SHOWN_DIMS = 4

SWEPT = {"context": "tokens of a text", "texts": "training texts"}


def show_layers(document: Document) -> None:
    """Accuracies of the layer classifier and of every control; dimensions, norms, sweeps."""
    screen = console()
    screen.print(
        f"layers of [bold]{text(document['model'])}[/] · chance {document['chance']:.3f} · "
        f"{count(document['n_tokens'], 'token')} of {count(document['n_texts'], 'text')}"
    )
    removed = document["n_punctuation_removed"]
    if removed is not None:
        screen.print(
            f"{count(removed, 'token')} without a letter or digit are left out", style="dim"
        )
    rows = [
        (
            control["title"],
            share(control["accuracy"]),
            _error(control["standard_error"]),
            "" if control["converged"] else "did not converge",
        )
        for control in document["controls"]
    ]
    print_rows(screen, ("", "accuracy", "±", ""), rows)
    tree = document["tree"]
    screen.print(
        f"the decision tree has {tree['leaves']} leaves of {tree['min_leaf']} rows or more and "
        f"depth {tree['depth']}, and asks about {tree['dims']} of {document['dim']} dimensions",
        style="dim",
    )
    _print_contributions(screen, document)
    if growth := document["norms"]["growth"]:
        screen.print(_growth(growth))
    for key in ("context_sweep", "texts_sweep"):
        if document[key]:
            _print_sweep(screen, document[key])
    if document["models"]:
        _print_models(screen, document)


def _print_contributions(screen: Console, document: Document) -> None:
    """By layer, how many dimensions hold half and nine tenths of the weights, and the largest."""
    held = document["contributions"]
    rows = []
    shown = spread(len(held["layers"]))
    for place in shown:
        largest = held["largest"][place][:SHOWN_DIMS]
        dims = " ".join(f"{'+-'[one['sign'] < 0]}{one['dim']}" for one in largest)
        shares = (held["n50"][place], held["n90"][place], f"{held['max_share'][place]:.1%}")
        rows.append((held["layers"][place], *shares, dims))
    heads = ("hidden state", "n50", "n90", "largest", "dimensions of largest weight, from 0")
    print_rows(screen, heads, rows)
    print_left_out(screen, held["layers"], shown, "hidden states")
    screen.print(
        f"n50, n90: dimensions, of {document['dim']}, that hold 50 % and 90 % of a layer's "
        "absolute weights; + speaks for the layer, - against it",
        style="dim",
    )


def _growth(growth: Document) -> str:
    """Whether norms grow or shrink with depth, in words."""
    low, high = growth["rate_interval"]
    numbers = f"×{growth['rate']:.3f} a layer (95 % interval {low:.3f} to {high:.3f})"
    fit = f"R² {growth['r2']:.2f}"
    if growth["verdict"] == "flat":
        return f"mean norms neither grow nor shrink steadily with depth: {numbers}, {fit}"
    kind = "exponentially" if growth["exponential"] else "but not exponentially"
    return f"mean norms {growth['verdict']} with depth, {kind}: {numbers}, {fit}"


def _print_sweep(screen: Console, sweep: Document) -> None:
    """Accuracies by context length or number of texts."""
    reaching = sweep["n_examined"] is not None
    rows = [
        (
            point["value"],
            *((point["n_reaching"], point["n_texts"]) if reaching else ()),
            point["n_train"] // len(point["recall"]),
            share(point["accuracy"]),
            _error(point["standard_error"]),
            _difference(point),
        )
        for point in sweep["points"]
    ]
    texts = (f"reach it, of {sweep['n_examined']}", "texts used") if reaching else ()
    heads = (SWEPT[sweep["variable"]], *texts, "training tokens", "accuracy", "±", "less the first")
    print_rows(screen, heads, rows)
    screen.print(sweep["held_back"], style="dim")
    for skipped in sweep["skipped"]:
        screen.print(f"  {text(skipped)}", style="dim")


def _difference(point: Document) -> str:
    if point["difference"] is None:
        return ""
    error = point["difference_error"]
    return f"{point['difference']:+.3f}" + ("" if error is None else f" ± {error:.3f}")


def _print_models(screen: Console, document: Document) -> None:
    """Accuracies by model size."""
    rows = [
        (
            _short(point["model"]),
            f"{point['n_parameters'] / 1e6:.1f} M",
            point["n_layers"],
            point["dim"],
            f"{point['chance']:.3f}",
            share(point["accuracy"]),
            _error(point["standard_error"]),
            share(point["above_chance"]),
        )
        for point in document["models"]
    ]
    heads = ("model", "parameters", "depth", "width", "chance", "accuracy", "±", "above chance")
    print_rows(screen, heads, rows)
    screen.print(
        "above chance: (accuracy - chance) / (1 - chance), which does not depend on depth",
        style="dim",
    )
    print_failed(screen, document)


def _error(value: float | None) -> str:
    return "" if value is None else share(value)


def _short(name: str) -> str:
    """An id, or the last part of a path."""
    return name.rstrip("/").rsplit("/", 1)[-1] if name.startswith(("/", ".", "~")) else name
