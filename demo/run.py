"""The demo from training to map, through the functions that the other commands call."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ..indexer import IndexOptions, Progress, index_family
from ..search import StoredQuery, evaluate, find_similar
from ..store import Catalog
from ..web import map_family
from .family import Trained, train_family

RECIPES = ("sketch", "mean-factors")


@runtime_checkable
class Screen(Protocol):
    """Told what the demo does; the command line draws it."""

    @property
    def progress(self) -> Progress: ...

    def heading(self, text: str) -> None: ...

    def trained(self, model: Trained) -> None: ...

    def document(self, kind: str, document: dict[str, Any]) -> None: ...


def run_demo(folder: Path, db: Path, screen: Screen) -> dict[str, Any]:
    """Train a family in `folder`, index it into `db`, score two recipes, find neighbours, map it.

    Raises:
        DeltadexError: as the commands it stands for.
    """
    screen.heading("Training a small BERT and its fine-tunes (nothing is downloaded)")
    for model in train_family(folder):
        screen.trained(model)
    models = folder / "models"
    document: dict[str, Any] = {"folder": str(folder), "db": str(db)}
    options = IndexOptions(
        base=str(folder / "base"), folder=models, labels=models / "labels.csv", recipes=RECIPES
    )
    with Catalog.open(db) as catalog:
        screen.heading("Indexing them by what changed in their weights")
        report = index_family(catalog, options, screen.progress)
        document["index"] = report.to_json()
        screen.document("index", document["index"])
        for recipe in RECIPES:
            screen.heading(f"Are the nearest models trained on the same data? Recipe {recipe}")
            document[recipe] = evaluate(catalog, base=report.base, recipe=recipe).to_json()
            screen.document("eval", document[recipe])
        screen.heading("The nearest to one of the adapters")
        query = StoredQuery("wine-lora-0", report.base)
        document["neighbours"] = find_similar(catalog, query, k=5).to_json()
        screen.document("neighbours", document["neighbours"])
        target = folder / "map.html"
        map_family(catalog, target, base=report.base)
        document["map"] = str(target)
        screen.heading(f"A map of the family is in {target}")
    return document
