"""Clusters of a family, drawn as tables for people."""

from __future__ import annotations

from rich.console import Console

from .tables import Document, console, print_rows, text
from .text import share

MEMBERS_SHOWN = 3
SUGGESTIONS_SHOWN = 50


def show_clusters(document: Document) -> None:
    """The clusters, how they agree with the labels, and suggestions for unlabelled models."""
    screen = console()
    screen.print(
        f"{text(document['base'])}: [bold]{len(document['clusters'])}[/] clusters of "
        f"{document['models']} models, {len(document['noise'])} in none · "
        f"recipe {document['recipe']}"
    )
    rows = [
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
    suggestions, calibration = document["suggestions"], document["calibration"]
    screen.print(
        f"\n[bold]{len(suggestions)}[/] datasets suggested, {document['abstained']} models without"
    )
    if suggestions:
        shown = [
            s | {"confidence": share(s["confidence"])} for s in suggestions[:SUGGESTIONS_SHOWN]
        ]
        print_rows(screen, ("model", "dataset", "confidence"), shown)
        if len(suggestions) > SUGGESTIONS_SHOWN:
            screen.print(f"  and {len(suggestions) - SUGGESTIONS_SHOWN} more: --json has them all")
    screen.print(f"  {_evidence(calibration)}", style="dim")


def _evidence(calibration: Document) -> str:
    """The evidence for the suggestions, or what is missing."""
    evidence = (
        f"{calibration['answers']} held-out answers of {calibration['models']} labelled models, "
        f"{calibration['datasets']} datasets, {calibration['unknown_share']:.0%} taken as unknown"
    )
    if calibration["threshold"] is not None:
        return (
            f"{evidence}: precision {share(calibration['precision'])} "
            f"at coverage {share(calibration['coverage'])}"
        )
    best = max((level["confidence"] for level in calibration["curve"]), default=None)
    reached = "nothing can be said" if best is None else f"{best:.2f} is all that they show"
    return (
        f"{evidence}: {reached}, {calibration['target']:.2f} is needed; more labelled runs and "
        "datasets help, and so does --unknown 0 where the labels name every dataset"
    )
