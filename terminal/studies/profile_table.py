"""The table of profiles."""

from __future__ import annotations

from ..tables import Document, console, print_rows
from ..text import share
from .shared import print_failed


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
    print_failed(screen, document)
