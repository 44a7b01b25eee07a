"""The tables of a geometry study."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from rich.console import Console

from ..tables import Document, console, print_rows, text
from ..text import share
from .shared import print_left_out, spread

ESTIMATOR_NAMES = {
    "facco": "TwoNN (facco)",
    "mle": "TwoNN, maximum likelihood (mle)",
    "low-fifth": "TwoNN on the lowest fifth, LLM-Microscope's (low-fifth)",
}

UNTRAINED = ", untrained"

FEW = "too few"

APART = 1.5

DIFFERENCE_LAYERS = 5
"""Layers of a table of differences, whose cells hold intervals; `--all` shows as many as others."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One table: a title, and the cell of a layer."""

    title: str
    cell: Callable[[Document], str]


def show_geometry(document: Document, *, all_measures: bool = False) -> None:
    """Each group's measures at a few depths, differences of groups, and what limits them."""
    screen = console()
    screen.print(
        f"geometry of [bold]{text(document['model'])}[/] by hidden state: 0 is the embedding, n is "
        "behind n layers"
    )
    shown = spread(document["n_layers"])
    groups = list(_named_groups(document))
    for measure in (*_dimensions(document), *_clouds(all_measures)):
        _print_measure(screen, measure, groups, shown)
    print_left_out(screen, range(document["n_layers"]), shown, "hidden states")
    _print_limits(screen, document, groups)
    if document["reference"] is not None:
        _print_divergences(screen, document, groups, shown, all_measures)
    _print_fertility(screen, document)
    _print_differences(screen, document, shown, all_measures)


def _named_groups(document: Document) -> Iterator[tuple[str, Document]]:
    """Each group, followed by the untrained network's."""
    fresh = {group["group"]: group for group in document["untrained"]}
    for group in document["groups"]:
        name = group["group"] or "all"
        yield name, group
        if group["group"] in fresh:
            yield f"{name}{UNTRAINED}", fresh[group["group"]]


def _dimensions(document: Document) -> Iterator[Measure]:
    rows = "" if document["sample"] is None else f", N = {document['sample']}"
    for estimator in document["options"]["estimators"]:
        yield Measure(
            f"intrinsic dimension: {ESTIMATOR_NAMES[estimator]}{rows}",
            partial(_dimension, estimator),
        )


def _clouds(all_measures: bool) -> Iterator[Measure]:
    """Of whole clouds: directions and linearity."""

    def of(part: str, key: str) -> Callable[[Document], str]:
        return lambda layer: share(layer[part][key] if layer[part] else None)

    yield Measure("anisotropy, centred", of("anisotropy", "centred"))
    if all_measures:
        yield Measure("anisotropy, un-centred", of("anisotropy", "uncentred"))
    yield Measure("mean cosine", of("anisotropy", "mean_cosine"))
    for key, title in (("stream", "with"), ("contribution", "without")):
        name = f"linearity of the step from the layer before, {title} the residual stream"
        yield Measure(f"{name}, held out", partial(_linearity, f"held_out_{key}"))
        if all_measures:
            yield Measure(f"{name}, on the tokens of the fit", partial(_linearity, key))


def _print_measure(
    screen: Console,
    measure: Measure,
    groups: Sequence[tuple[str, Document]],
    shown: Sequence[int],
) -> None:
    rows = [
        (name, group["tokens"], *(measure.cell(group["layers"][layer]) for layer in shown))
        for name, group in groups
    ]
    _print_table(screen, measure.title, ("group", "tokens", *map(str, shown)), rows)


def _print_table(
    screen: Console, title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]
) -> None:
    """The title in a line of its own, so that it does not widen a column."""
    screen.print(f"[bold]{title}[/]")
    print_rows(screen, heads, rows)


def _linearity(key: str, layer: Document) -> str:
    step = layer["linearity"]
    if step is None or step[key] is not None:
        return share(step and step[key])
    # held out of too few, though the whole is enough
    without_halves = "held_out" in key and step[key.removeprefix("held_out_")] is not None
    return FEW if without_halves or step["reason"].startswith(FEW) else "–"


def _dimension(estimator: str, layer: Document) -> str:
    estimate = next(d for d in layer["intrinsic_dimension"] if d["estimator"] == estimator)
    if estimate["dimension"] is None:
        return FEW if estimate["reason"].startswith(FEW) else "–"
    error = estimate["standard_error"]
    return f"{estimate['dimension']:.1f}" + (f"±{error:.1f}" if error is not None else "")


def _print_limits(
    screen: Console, document: Document, groups: Sequence[tuple[str, Document]]
) -> None:
    """What the numbers do not say: too few rows, estimators that disagree, too few texts."""
    few = list(_too_few(groups))
    for line in few:
        screen.print(f"  {text(line)}")
    if few and document["sample_set_by"]:
        screen.print(
            f"  N = {document['sample']}: the distinct rows of "
            f"{text(document['sample_set_by'])}; give more texts, or raise --keep-tokens"
        )
    for name, group in groups:
        for note in group["notes"]:
            screen.print(f"  {text(name)}: {text(note)}")
        apart = _layers_apart(group)
        if apart:
            layers = ", ".join(map(str, apart))
            screen.print(
                f"  [yellow]{text(name)}: the estimators differ by more than {APART} times[/] in "
                f"hidden states {layers}: the tokens do not follow TwoNN's law there"
            )
        if group["trends_disagree"]:
            trends = ", ".join(map(_trend, group["trends"]))
            screen.print(
                f"  [yellow]{text(name)}: the estimators disagree on the trend over depth[/] "
                f"(Spearman, 95 %): {trends}"
            )
    limits: dict[str, list[str]] = {}
    for name, group in groups:
        for line in _linearity_limits(group):
            limits.setdefault(line, []).append(name)
    for line, names in limits.items():
        screen.print(f"  linearity of {text('; '.join(names))}: {text(line)}")


def _layers_apart(group: Document) -> list[int]:
    """Layers in which the largest estimate is more than 1.5 times the smallest."""
    found = []
    for layer in group["layers"]:
        values = [d["dimension"] for d in layer["intrinsic_dimension"]]
        known = [value for value in values if value is not None]
        if known and max(known) > APART * min(known):
            found.append(layer["layer"])
    return found


def _too_few(groups: Sequence[tuple[str, Document]]) -> Iterator[str]:
    """For each estimator, how many numbers are missing and the first reason."""
    missing: dict[str, list[str]] = {}
    for name, group in groups:
        for layer in group["layers"]:
            for estimate in layer["intrinsic_dimension"]:
                if estimate["reason"]:
                    where = f"{name}, layer {layer['layer']}: {estimate['reason']}"
                    missing.setdefault(estimate["estimator"], []).append(where)
    for estimator, places in missing.items():
        more = f" (and {len(places) - 1} more)" if len(places) > 1 else ""
        yield f"{estimator}: {places[0]}{more}"


def _linearity_limits(group: Document) -> Iterator[str]:
    """That there are few tokens for the dimensions, or no linearity at all."""
    steps = [layer["linearity"] for layer in group["layers"][1:]]
    if steps and all(step is None for step in steps):
        yield "left out, its moments would need more than 8 GiB"
    reason = next((step["reason"] for step in steps if step and step["reason"]), "")
    if reason:
        yield reason
    if any(step and step["optimistic"] for step in steps):
        yield (
            "fewer than ten tokens for each dimension: the held-out score is too low by that, "
            "the score on the tokens of the fit too high"
        )


def _trend(trend: Document) -> str:
    bounds = ""
    if trend["low"] is not None:
        bounds = f" ({trend['low']:+.2f} to {trend['high']:+.2f})"
    return f"{trend['estimator']} {trend['spearman']:+.2f}{bounds}"


def _print_divergences(
    screen: Console,
    document: Document,
    groups: Sequence[tuple[str, Document]],
    shown: Sequence[int],
    all_measures: bool,
) -> None:
    """From the reference, with its floor; each estimator that has a number, or why none has."""
    reference = text(document["reference"])
    others = [(n, g) for n, g in groups if g["layers"][0]["divergence"]]
    wanted = [
        ("gauss", "jeffreys", "Jeffreys, Gaussians"),
        ("softmax-mean", "to_reference", "KL to it, softmax of means"),
    ]
    if all_measures:
        wanted += [
            ("gauss", "to_reference", "KL to it, Gaussians"),
            ("gauss", "from_reference", "KL from it, Gaussians"),
            ("softmax-mean", "from_reference", "KL from it, softmax of means"),
            ("softmax-padded", "to_reference", "KL to it, softmax of tokens"),
            ("softmax-padded", "from_reference", "KL from it, softmax of tokens"),
        ]
    for estimator, key, title in wanted:
        by_layer = {
            name: [_divergence(layer, estimator) for layer in g["layers"]] for name, g in others
        }
        rows: list[tuple[object, ...]] = []
        for name, group in others:
            values = by_layer[name]
            if any(values[layer][key] is not None for layer in shown):
                cells = [share(values[layer][key]) for layer in shown]
                rows.append((name, group["tokens"], *cells))
            else:
                screen.print(f"  {text(name)}, {estimator}: {text(values[0]['reason'])}")
        if not rows:
            continue
        if key == "jeffreys":
            rows += _floor_rows(by_layer, shown)
        heads = ("group", "tokens", *map(str, shown))
        _print_table(screen, f"divergence from {reference}: {title} (nats)", heads, rows)


def _floor_rows(
    by_layer: dict[str, list[Document]], shown: Sequence[int]
) -> Iterator[tuple[object, ...]]:
    """The reference's halves, once for each network."""
    for suffix in ("", UNTRAINED):
        own = [v for name, v in by_layer.items() if name.endswith(UNTRAINED) == bool(suffix)]
        floors = [
            next((v[layer]["floor"] for v in own if v[layer]["floor"] is not None), None)
            for layer in shown
        ]
        if any(floor is not None for floor in floors):
            yield (f"floor: halves of the reference{suffix}", "", *map(share, floors))


def _divergence(layer: Document, estimator: str) -> Document:
    found: Document = next(d for d in layer["divergence"] if d["estimator"] == estimator)
    return found


def _print_fertility(screen: Console, document: Document) -> None:
    cut = [g for g in document["groups"] if g["fertility"]]
    if len(cut) > 1:
        keys = ("tokens_per_word", "tokens_per_character", "unknown_share")
        rows = [(g["group"], *(share(g["fertility"][key]) for key in keys)) for g in cut]
        heads = ("group", "tokens per word", "per character", "share unknown")
        _print_table(screen, "fertility", heads, rows)


def _print_differences(
    screen: Console, document: Document, shown: Sequence[int], all_measures: bool
) -> None:
    """Pairs of scripts and contrasts: first less second, with 95 % intervals."""
    depths = shown if all_measures else spread(document["n_layers"], DIFFERENCE_LAYERS)
    for pair in document["pairs"]:
        title = f"{pair['first']} less {pair['second']} ({pair['shared_ids']} texts in both)"
        _print_difference(screen, title, pair["measures"], depths, all_measures)
        if pair["first_fertility"] and pair["second_fertility"]:
            screen.print(
                f"  tokens per word {share(pair['first_fertility']['tokens_per_word'])} and "
                f"{share(pair['second_fertility']['tokens_per_word'])}, unknown "
                f"{share(pair['first_fertility']['unknown_share'])} and "
                f"{share(pair['second_fertility']['unknown_share'])}: the script "
                "that is cut into more tokens differs by that alone"
            )
    for contrast in document["contrasts"]:
        name = contrast["group"] or "all"
        first = "trained" if contrast["condition"] == "untrained" else "as written"
        title = f"{name}: {first} less {contrast['condition']}"
        _print_difference(screen, title, contrast["measures"], depths, all_measures)
    if document["pairs"] or document["contrasts"]:
        print_left_out(screen, range(document["n_layers"]), depths, "hidden states")


def _print_difference(
    screen: Console,
    title: str,
    measures: Sequence[Document],
    shown: Sequence[int],
    all_measures: bool,
) -> None:
    main = ("facco", "gram", "lanczos", "power", "exact", "least squares", "softmax-mean")
    rows = []
    for measure in measures:
        uncentred = measure["measure"] == "anisotropy, uncentred"
        if not all_measures and (measure["estimator"] not in main or uncentred):
            continue
        by_layer = {layer["layer"]: layer for layer in measure["layers"]}
        cells = [_difference(by_layer.get(layer)) for layer in shown]
        rows.append((f"{measure['measure']} ({measure['estimator']})", *cells))
    if rows:
        heads = ("measure", *map(str, shown))
        _print_table(screen, text(f"{title}; 95 %, * omits 0"), heads, rows)


def _difference(layer: Document | None) -> str:
    if layer is None:
        return "–"
    digits = 1 if abs(layer["difference"]) >= 1 else 3
    value = f"{layer['difference']:+.{digits}f}"
    if layer["low"] is None:
        return value
    sure = "*" if layer["low"] > 0 or layer["high"] < 0 else ""
    return f"{value}{sure} ({layer['low']:+.{digits}f}…{layer['high']:+.{digits}f})"
