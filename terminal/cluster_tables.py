"""Clusters of a family, drawn as tables for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from .tables import Document, console, print_rows, text
from .text import count, share

MEMBERS_SHOWN = 3
SUGGESTIONS_SHOWN = 50


def show_clusters(document: Document) -> None:
    """The clusters, how they agree with the labels, and suggestions for unlabelled models."""
    screen = console()
    screen.print(
        f"{text(document['base'])}: [bold]{len(document['clusters'])}[/] clusters of "
        f"{count(document['models'], 'model')}, {len(document['noise'])} in none · "
        f"recipe {document['recipe']}"
    )
    rows: list[tuple[Any, ...]] = [
        (
            cluster["name"],
            cluster["size"],
            ", ".join(
                f"{group['dataset']} ({group['models']})" for group in cluster["datasets"][:3]
            ),
            ", ".join(cluster["words"][:3]),
            ", ".join(cluster["models"][:MEMBERS_SHOWN]),
        )
        for cluster in document["clusters"]
    ]
    if rows:
        print_rows(screen, ("cluster", "models", "datasets", "words", "members"), rows)
    apart = document["silhouette"]
    for name, value, note in (
        ("ARI", document["ari"], "clusters against datasets, 0 for chance"),
        ("NMI", document["nmi"], "the same, not corrected for chance"),
        ("silhouette", apart["labels"], "of the datasets, −1…1"),
        ("", apart["clusters"], "of the clusters"),
    ):
        screen.print(f"  {name:10} [bold]{share(value)}[/]  [dim]{note}[/]")
    for note in document["notes"]:
        screen.print(f"  {text(note)}", style="dim")
    if "suggestions" in document:
        _show_suggestions(screen, document)


def _show_suggestions(screen: Console, document: Document) -> None:
    suggestions, hints = document["suggestions"], document["hints"]
    if not len(suggestions) + document["abstained"]:
        screen.print("\nEvery model has a dataset: nothing to suggest.")
        return
    screen.print(
        f"\nmodels with a suggested dataset: [bold]{len(suggestions)}[/]; without: "
        f"{document['abstained']}"
    )
    _show_list(screen, suggestions, ("model", "dataset", "confidence", "fdr", "verdict"))
    if hints:
        screen.print(
            f"[bold]{len(hints)}[/] hints: more than "
            f"{1 - document['calibration']['target']:.0%} of these are expected to be wrong"
        )
        _show_list(screen, hints, ("model", "dataset (hint)", "confidence", "fdr", "verdict"))
    screen.print(f"  {_evidence(document['calibration'])}", style="dim")
    n_kept = document["calibration"]["kept_data"]
    if n_kept:
        screen.print(
            f"  {n_kept} kept data {'set' if n_kept == 1 else 'sets'} may name models as well: "
            "fdr is twice the rate of the better list",
            style="dim",
        )


def _show_list(screen: Console, suggestions: list[Document], columns: tuple[str, ...]) -> None:
    """The first of some suggestions, and how many there are beside."""
    if not suggestions:
        return
    rows: list[tuple[Any, ...]] = [
        (
            s["model"],
            s["dataset"],
            share(s["confidence"]),
            share(s["fdr"]),
            s["verdict"],
            s["source"],
        )
        for s in suggestions[:SUGGESTIONS_SHOWN]
    ]
    if any(s["source"] == "kept data" for s in suggestions):
        columns = (*columns, "named by")
    print_rows(screen, columns, [row[: len(columns)] for row in rows])
    if len(suggestions) > SUGGESTIONS_SHOWN:
        screen.print(f"  and {len(suggestions) - SUGGESTIONS_SHOWN} more: --json has them all")


def _evidence(calibration: Document) -> str:
    """What the suggestions are known from, or what is missing."""
    tail = calibration["tail"]
    known = (
        f"strangers' scores: {tail['source']} ({tail['queries']} labelled models, "
        f"{count(tail['datasets'], 'dataset')} with siblings)"
    )
    if calibration["precision"] is not None:
        return (
            f"{known}; held out, {calibration['answers']} answers of {calibration['models']} "
            f"labelled models: precision {share(calibration['precision'])} at coverage "
            f"{share(calibration['coverage'])}"
        )
    if calibration["threshold"] is not None:
        return f"{known}; no labelled model with such evidence could be held out"
    if not calibration["datasets"]:
        return f"{known}: no labelled model to name others after"
    return (
        f"{known}: no model reaches a confidence of {calibration['target']:.2f}; more labelled "
        "models help, and so does --unknown 0 where the labels name every dataset"
    )
