"""Answers about data sets, drawn as tables for people."""

from __future__ import annotations

from collections.abc import Mapping

from .tables import (
    Document,
    console,
    headline,
    print_evidence,
    print_rows,
    rate,
    stands_out,
    text,
)
from .text import count, share

RATES = "fdr by the tail of the family's strangers; higher where labels of near models disagree"

NEAREST_OF_EACH = 3
"""Models that are shown of each of several data sets."""


def show_trained_models(document: Document) -> None:
    """The models nearest to a data set, the control, and what it means at most."""
    screen = console()
    query = document["query"]
    screen.print(
        f"models of {text(query['base'])} nearest to [bold]{text(query['texts'])}[/]: gradient of "
        f"{count(query['n_texts'], 'example')}, loss: {query['loss']}"
    )
    screen.print(text(query["reading"]), style="dim")
    models = document["neighbours"]
    if not models:
        screen.print("no model passes the filters")
        return
    screen.print(f"[bold]{headline(models, document['compared'])}[/]")
    screen.print(f"{RATES}{_references(document)}", style="dim")
    if query["control"]:
        screen.print(
            f"the same texts with permuted labels reach z {query['control']['z']:.1f}: of a model "
            "that is no higher, the texts may be alike and not what the labels teach"
        )
    print_evidence(
        ("rank", "model", "verdict", "z", "±", "fdr", "cosine", "dataset", "author"),
        [
            (
                str(row["rank"]),
                text(row["model"]),
                *_evidence(row),
                share(row["cosine"]),
                text(row["dataset"]),
                text(row["author"]),
            )
            for row in models
        ],
    )
    if document["comparison"]:
        _show_comparison(document["comparison"], query["texts"])
    screen.print(f"It says at most: {document['meaning']}", style="dim")


def _show_comparison(comparison: Document, data: str) -> None:
    """The data against the control, model by model."""
    screen = console()
    others = comparison["others"]
    null = (
        f"and {others} other models"
        if others
        else "alone: too few other models to see whether the two files differ for every model"
    )
    screen.print(
        f"[bold]{text(data)}[/] against the control [bold]{text(comparison['control'])}[/]: "
        f"{count(comparison['examples'], 'example')} of each; "
        f"tested by {comparison['groups']} groups of "
        f"each {null}"
    )
    for sentence in comparison["left_out"]:
        screen.print(text(sentence), style="dim")
    print_evidence(
        ("model", "verdict", "effect", "95 %", "p"),
        [
            (
                text(row["model"]),
                row["verdict"],
                f"{row['effect']:+.2f}",
                f"{row['low']:+.2f} … {row['high']:+.2f}",
                _p_value(row["p"]),
            )
            for row in comparison["models"]
        ],
    )


def _p_value(p: float) -> str:
    return "< .001" if p < 0.001 else f"{p:.3f}".lstrip("0")


def show_data_scores(document: Document) -> None:
    """Several data sets, a line for each of the models nearest to it, and those not read."""
    screen = console()
    screen.print(
        f"{count(len(document['data']), 'data set')} beside "
        f"{count(document['compared'], 'model')} of "
        f"{text(document['base'])}"
    )
    screen.print(RATES, style="dim")
    rows = []
    for entry in document["data"]:
        about = (text(entry["data"]), str(entry["examples"]), entry["loss"], _control(entry))
        for place, near in enumerate(entry["nearest"][:NEAREST_OF_EACH]):
            evidence = _evidence(near)
            head = about if place == 0 else ("", "", "", "")
            rows.append((*head, text(near["model"]), *evidence, text(near["dataset"])))
    print_evidence(
        ("data", "examples", "loss", "control", "nearest", "verdict", "z", "±", "fdr", "dataset"),
        rows,
    )
    for failure in document["failed"]:
        screen.print(f"not read: [bold]{text(failure['data'])}[/]  {text(failure['reason'])}")
    screen.print(f"It says at most: {document['meaning']}", style="dim")


def show_nearest_data(document: Document) -> None:
    """The kept data sets nearest to a model."""
    screen = console()
    screen.print(f"kept data nearest to [bold]{text(document['query']['model'])}[/]")
    screen.print(RATES, style="dim")
    print_evidence(
        ("rank", "data", "verdict", "z", "±", "fdr", "cosine", "loss", "examples"),
        [
            (
                str(row["rank"]),
                text(row["data"]),
                *_evidence(row),
                share(row["cosine"]),
                row["loss"],
                str(row["examples"]),
            )
            for row in document["data"]
        ],
    )
    screen.print(f"It says at most: {document['meaning']}", style="dim")


def show_data_sets(document: Document) -> None:
    """The kept data sets, a line each."""
    if not document["data"]:
        console().print(
            "no data set is kept: `deltadex find-trained-on FILE --keep NAME` keeps one"
        )
        return
    heads = ("name", "base", "loss", "examples", "made_at")
    print_rows(console(), heads, document["data"])


def show_data_set(document: Document) -> None:
    """Everything that is kept of a data set."""
    screen = console()
    for key, value in document.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{name} {entry}" for name, entry in value.items() if entry != {})
        if value not in (None, ""):
            screen.print(f"[dim]{key:>10}[/]  {text(value)}")


def _evidence(row: Document) -> tuple[str, str, str, str]:
    """Verdict, z, its error and fdr."""
    error = "" if row["z_error"] is None else f"{row['z_error']:.1f}"
    return row["verdict"] if stands_out(row) else "", f"{row['z']:.1f}", error, rate(row["fdr"])


def _control(entry: Document) -> str:
    """The highest z with the labels permuted."""
    return f"z {entry['control']['z']:.1f}" if entry["control"] else ""


def _references(document: Document) -> str:
    n = document["references"]
    return f"; models normalised by {n} gradients of other data" if n else ""
