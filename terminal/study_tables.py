"""Documents of the studies, drawn as tables for people."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console

from .tables import Document, console, print_rows, text
from .text import share


def show_ranks(document: Document) -> None:
    """r_θ by role and layer, with the law of each curve."""
    screen = console()
    subject = "W" if document["subject"] == "weights" else "ΔW"
    screen.print(f"rank of {subject}: [bold]{text(document['name'])}[/]")
    for theta in document["thetas"]:
        curves = [c for c in document["curves"] if c["theta"] == theta]
        for stack in dict.fromkeys(c["stack"] for c in curves):
            own = [c for c in curves if c["stack"] == stack]
            shown = _spread(max(c["n_layers"] for c in own))
            rows = []
            for curve in own:
                by_layer = {point["layer"]: point for point in curve["points"]}
                cells = [_rank(by_layer.get(layer)) for layer in shown]
                rows.append((curve["role"], *cells, _law(curve["fit"])))
            heads = (f"θ = {theta:g}, {stack}", *(str(n + 1) for n in shown), "law")
            print_rows(screen, heads, rows)
    for note in document["notes"]:
        screen.print(f"  {text(note)}", style="dim")
    _failed(screen, document)


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


def show_geometry(document: Document) -> None:
    """Each group's dimension and anisotropy at a few depths."""
    screen = console()
    screen.print(f"geometry of [bold]{text(document['model'])}[/]")
    shown = _spread(document["n_layers"])
    estimator = document["options"]["estimators"][0]
    columns: tuple[tuple[str, Callable[[Document], str]], ...] = (
        (f"intrinsic dimension ({estimator})", lambda layer: _dimension(layer, estimator)),
        ("anisotropy, centred", lambda layer: share(layer["anisotropy"]["centred"])),
        ("mean cosine", lambda layer: share(layer["anisotropy"]["mean_cosine"])),
    )
    for title, value in columns:
        rows = [
            (
                group["group"] or "all",
                group["tokens"],
                *(value(group["layers"][layer]) for layer in shown),
            )
            for group in document["groups"]
        ]
        print_rows(screen, (title, "tokens", *map(str, shown)), rows)
    cut = [g for g in document["groups"] if g["fertility"]]
    if len(cut) > 1:
        keys = ("tokens_per_word", "tokens_per_character", "unknown_share")
        rows = [(g["group"], *(share(g["fertility"][key]) for key in keys)) for g in cut]
        heads = ("tokens per word, unknown", "per word", "per character", "unknown")
        print_rows(screen, heads, rows)


def show_layers(document: Document) -> None:
    """Accuracy of the layer classifier and of every control."""
    screen = console()
    screen.print(
        f"layers of [bold]{text(document['model'])}[/] · chance {document['chance']:.3f} · "
        f"{document['n_tokens']} tokens of {document['n_texts']} texts"
    )
    rows = [
        (
            control["title"],
            share(control["accuracy"]),
            "" if control["standard_error"] is None else share(control["standard_error"]),
            "" if control["converged"] else "did not converge",
        )
        for control in document["controls"]
    ]
    print_rows(screen, ("", "accuracy", "±", ""), rows)
    growth = document["norms"]["growth"]
    if growth:
        kind = "exponential" if growth["exponential"] else "not exponential"
        screen.print(f"norms grow by ×{growth['rate']:.3f} a layer, R² {growth['r2']:.2f}: {kind}")


def show_profiles(document: Document) -> None:
    """One line a model."""
    screen = console()
    rows = []
    for profile in document["profiles"]:
        stack = list(profile["components"]["stacks"].values())[-1]
        edited = stack["most_edited"]
        row = (
            profile["model"],
            f"{edited['term']} {edited['layer']}" if edited else "nothing",
            share(stack["total_shift"][-1]),
            share(profile["layers"]["accuracy"]),
            "known" if profile.get("known") else f"{sum(profile['seconds'].values()):.1f}",
        )
        rows.append(row)
    print_rows(screen, ("model", "edited most", "moved", "layers told apart", "seconds"), rows)
    _failed(screen, document)


def show_diff(document: Document) -> None:
    """A sentence, then roles, layers and the slots that differ most."""
    screen = console()
    first, second = map(text, document["models"])
    screen.print(f"[bold]{text(document['sentence'])}[/]")
    for title, sums in (("|ΔW| by role", "by_role"), ("|ΔW| by layer", "by_layer")):
        rows = [(name, f"{a:.3g}", f"{b:.3g}") for name, (a, b) in document[sums].items()]
        print_rows(screen, (title, first, second), rows[:12])
    unit = "|ΔW|/|W|" if document["unit"] == "relative" else "|ΔW|"
    rows = [
        (
            slot["slot"],
            *(f"{value:.3g}" for value in slot["change"]),
            " / ".join(f"{value:.1f}" for value in slot["stable_rank"]),
            share(slot["cosine"]),
        )
        for slot in document["most_different"]
    ]
    heads = (f"most different, {unit}", first, second, "stable rank", "cosine")
    print_rows(screen, heads, rows)
    for name, profile in document["profiles"].items():
        edited = [
            f"{where['term']} of {stack} layer {where['layer']}"
            for stack, where in profile["most_edited"].items()
            if where
        ]
        screen.print(f"  {text(name)} edited most: {', '.join(edited) or 'nothing'}")


def _spread(n_layers: int, most: int = 12) -> list[int]:
    """At most `most` layers from the first to the last, evenly."""
    if n_layers <= most:
        return list(range(n_layers))
    return sorted({round(i * (n_layers - 1) / (most - 1)) for i in range(most)})


def _rank(point: Document | None) -> str:
    if point is None:
        return ""
    spread = point["standard_error"]
    shown = f"{point['rank']:.0f}" if spread is None else f"{point['rank']:.1f}±{spread:.1f}"
    return shown if point["valid"] else f"({shown})"


def _law(fit: Document) -> str:
    best = fit["best"]
    if best is None or not fit["pattern"]:
        return str(fit["verdict"])
    return f"{best['law']}, R² {best['r_squared']:.2f}"


def _dimension(layer: Document, estimator: str) -> str:
    estimate = next(d for d in layer["intrinsic_dimension"] if d["estimator"] == estimator)
    if estimate["dimension"] is None:
        return "–"
    spread = f"±{estimate['sd']:.1f}" if estimate["sd"] is not None else ""
    return f"{estimate['dimension']:.1f}{spread}"


def _failed(screen: Console, document: Document) -> None:
    for model in document["failed"]:
        screen.print(f"[yellow]{text(model['model'])}[/]: {text(model['reason'])}")
