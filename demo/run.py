"""The demo from training to map, by the calls that the other commands make."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from .. import database
from ..indexer import Progress
from .training import train_family

RECIPES = ("sketch", "mean-factors")


@runtime_checkable
class Screen(Protocol):
    """Shows what the demo does; the command line draws it."""

    @property
    def progress(self) -> Progress: ...

    def heading(self, text: str) -> None: ...

    def line(self, text: str) -> None: ...

    def document(self, kind: str, document: Mapping[str, Any]) -> None: ...


def run_demo(folder: Path, db: Path, screen: Screen) -> dict[str, Any]:
    """Train a family in `folder`, index it into `db`, score two recipes, find neighbours, map it.

    Raises:
        DeltadexError: as the commands it stands for.
    """
    screen.heading("Training a small BERT and its fine-tunes (nothing is downloaded)")
    for model in train_family(folder):
        place = f"{model.done:>2}/{model.total}"
        screen.line(f"  {place}  {model.model:24} held-out accuracy {model.accuracy:.2f}")
    models, target = folder / "models", folder / "map.html"
    document: dict[str, Any] = {"folder": str(folder), "db": str(db)}
    with database.open(db) as family:
        screen.heading("Indexing them by what changed in their weights")
        report = family.index(
            folder / "base",
            models,
            labels=models / "labels.csv",
            recipes=RECIPES,
            progress=screen.progress,
        )
        document["index"] = report.to_json()
        base = document["index"]["base"]
        screen.document("index", document["index"])
        for recipe in RECIPES:
            screen.heading(f"Are the nearest models trained on the same data? Recipe {recipe}")
            document[recipe] = family.evaluate(recipe, base=base).to_json()
            screen.document("eval", document[recipe])
        screen.heading("The nearest to one of the adapters")
        document["neighbours"] = family.find_similar("wine-lora-0", k=5, base=base).to_json()
        screen.document("neighbours", document["neighbours"])
        family.map(target, base=base)
        document["map"] = str(target)
        screen.heading(f"A map of the family is in {target}")
    return document
