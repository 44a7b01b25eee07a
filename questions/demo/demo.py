"""A small family, trained, indexed, scored and drawn: `demo`."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...options import argument, record
from ...results import Shown, count
from .. import terminal
from ..eval import show_evaluation
from ..face.database import open as open_catalog
from ..find_similar import show_neighbours
from ..index import show_report
from ..lineage.lineage import show_lineage
from ..terminal.command_line import CONTINUES, Common, command_with, print_document, when_stopped

if TYPE_CHECKING:
    from ..terminal.progress import RunProgress

RECIPES = ("sketch", "mean-factors")


@record
class Demo:
    """Train a small family, index it, score it, map it; no network.

    Models and map go into FOLDER; a model that is there whole is not trained again. Needs
    `pip install 'deltadex[demo]'`.
    """

    folder: Path = argument(default="demo-output", file="any")


@command_with(Demo, prints_table=False, examples=("demo",))
def command(common: Common, asked: Demo) -> None:
    when_stopped(lambda: _kept(asked.folder))
    quiet = common.quiet or common.as_json
    document: dict[str, Any] = {"folder": str(asked.folder), "db": str(common.db)}
    with (
        terminal.RunProgress(quiet=quiet) as progress,
        closing(run_demo(asked.folder, common.db, progress, document)) as parts,
    ):
        for part in parts:
            if quiet:
                continue
            if isinstance(part, str):
                click.echo(part, err=True)
            else:
                terminal.show_answer(part)
    print_document(document, lambda _: None, common)


def read_words(folder: Path, document: dict[str, Any]) -> Iterator[str]:
    """Train models on texts, and read from their weights on which words, and on which file."""
    from .family import train_on_texts

    yield "\nTraining six models on halves of Python's docstrings"
    yield from train_on_texts(folder)
    catalog, file = folder / "texts.duckdb", folder / "mail-a.csv"
    with open_catalog(catalog) as texts:
        texts.index(folder / "text-base", folder / "text-models")
        yield "\nWhat was each trained on? Read from its weights, which nobody labelled"
        names = ("mail-a", "numbers-a", "testing-b")
        document["words"] = {name: texts.words(name).to_json() for name in names}
        for model, said in document["words"].items():
            yield f"  {model}: {said['sentence']}"
        yield f"\nWhich was trained on {file}?"
        document["trained_on"] = texts.data.find_models(file, quick=True, k=3).to_json()
        for row in document["trained_on"]["neighbours"]:
            yield f"  {row['model']}: {row['verdict']}"


def train_models(folder: Path, document: dict[str, Any]) -> Iterator[str]:
    """Train models of texts and read their words, then train a family, in `folder`."""
    yield "\nLoading torch, transformers and PEFT"
    try:
        from . import family
    except ModuleNotFoundError as err:
        if err.name is None:  # transformers could not load its own
            raise
        raise click.UsageError(f"the demo needs {err.name}: pip install 'deltadex[demo]'") from err
    tasks = family.all_tasks()
    with family.trainers() as train:
        base_trained = train(family.train_base, folder / "base", tasks)
        yield from read_words(folder, document)
        yield "\nTraining a small BERT and its fine-tunes (nothing is downloaded)"
        yield f"  base: {family.BASE_STEPS} steps, beside the six models"
        base_trained.result()
        yield from family.train_family(folder, tasks, train)
        yield from family.derive_models(folder / "models", tasks)


def run_demo(
    folder: Path, db: Path, progress: RunProgress, document: dict[str, Any]
) -> Generator[str | Shown, None, None]:
    """Train models in `folder`, index the family into `db`, score two recipes, map it, draw its
    tree.

    Yields lines on what is done, and answers as their commands show them; `document` gains what
    `deltadex demo --json` prints.
    """
    yield from train_models(folder, document)
    models, target = folder / "models", folder / "map.html"
    with open_catalog(db) as catalog:
        yield "\nIndexing them by what changed in their weights"
        report = catalog.index(
            folder / "base",
            models,
            labels=models / "labels.csv",
            recipes=RECIPES,
            progress=progress,
        )
        document["index"] = report.to_json()
        base = document["index"]["base"]
        yield show_report(document["index"])
        for recipe in RECIPES:
            yield f"\nAre the nearest models trained on the same data? Recipe {recipe}"
            document[recipe] = catalog.evaluate(recipe, base=base).to_json()
            yield show_evaluation(document[recipe])
        yield "\nThe nearest to one of the adapters"
        document["neighbours"] = catalog.find_similar("wine-lora-0", k=5, base=base).to_json()
        yield show_neighbours(document["neighbours"])
        catalog.map(target, base=base)
        document["map"] = str(target)
        yield "\nWhich model was trained from which"
        lineage = catalog.lineage(base)
        document["lineage"] = lineage.to_json()
        yield show_lineage(document["lineage"])
        document["tree"] = str(lineage.save(folder / "lineage.svg"))
    of_texts, of_family = (shlex.quote(str(path)) for path in (folder / "texts.duckdb", db))
    yield "\nWhat to look at"
    yield f"  {target}: the map, a colour for each data set; what lies apart saw other data"
    yield f"  {document['tree']}: the tree; a merge, an edited copy and a chain have parents"
    for model, said in document["words"].items():
        yield f"  {model}: {said['sentence']}"
    yield "\nWhat to try next"
    yield f"  deltadex words numbers-b --db {of_texts}: the words of another model"
    yield f"  deltadex find-similar digits-wine-merge --db {of_family}: near its parents' data"
    yield f"  deltadex serve --db {of_family}: all of this as a page"


def _kept(folder: Path) -> str:
    if not (folder / "base" / "model.safetensors").exists():
        return "No model is saved yet; run the same command again."
    weights, settings = (
        {path.parent for path in (folder / "models").glob(f"*/{name}")}
        for name in ("*.safetensors", "*config.json")
    )
    saved = count(len(weights & settings), "fine-tune")
    return f"The base and {saved} are saved in {folder}; {CONTINUES}"
