"""The command line: each command reads its options, calls one function, prints one document."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import __version__
from .commands import COMMANDS, print_document
from .commands.boundary import EXIT_NOTHING_DONE, EXIT_SOME_FAILED, Boundary
from .errors import UnknownModel
from .terminal.options import (
    base_option,
    common,
    filter_options,
    indexing_options,
    recipe_option,
)
from .terminal.text import plain

if TYPE_CHECKING:
    from .search.neighbours import Query
    from .store import Catalog


@click.group(cls=Boundary, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="deltadex")
def main() -> None:
    """A vector database of fine-tuned models.

    Index the fine-tunes of a base model by what changed in their weights; then find those
    trained on the same data.
    """


@main.command()
@click.argument("base")
@click.argument("folder", required=False, type=click.Path(exists=True, path_type=Path))
@click.option("--hub", is_flag=True, help="The base's whole family on the Hugging Face Hub.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many models.")
@indexing_options
@common
def index(db: Path, as_json: bool, quiet: bool, workers: int | None, **options: Any) -> None:
    """Fingerprint the fine-tunes of BASE found in FOLDER (or on the Hub).

    BASE is a Hub id or a folder; a mere name will do when all members are adapters. FOLDER
    holds models at any depth, or is a file with one id or path a line. A second run reads
    only what is new.

    \b
    Example:
      deltadex index bert-base-uncased ./my-fine-tunes --labels labels.csv
    """
    _index(db, as_json, quiet, workers=workers or 0, **options)


@main.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option("--base", required=True, help="The base they descend from.")
@indexing_options
@common
def add(db: Path, as_json: bool, quiet: bool, workers: int | None, **options: Any) -> None:
    """Add single models: Hub ids or folders.

    \b
    Example:
      deltadex add someone/bert-imdb ./my-run --base bert-base-uncased
    """
    _index(db, as_json, quiet, workers=workers or 0, **options)


def _index(db: Path, as_json: bool, quiet: bool, **options: Any) -> None:
    from .indexer import IndexOptions, index_family
    from .store import Catalog
    from .terminal import RunProgress, show_report

    with Catalog.open(db) as catalog, RunProgress(quiet=quiet) as progress:
        report = index_family(catalog, IndexOptions(**options), progress)
    document = report.to_json()
    print_document(document, show_report, as_json)
    if document["failed"]:
        done = report.indexed + report.unchanged
        sys.exit(EXIT_SOME_FAILED if done else EXIT_NOTHING_DONE)


@main.command("find-similar")
@click.argument("model")
@click.option("-k", default=10, show_default=True, help="How many neighbours.")
@filter_options
@recipe_option
@base_option
@click.option("--explain", is_flag=True, help="Which layers and roles carry each similarity.")
@common
def find_similar(
    model: str, db: Path, as_json: bool, quiet: bool, explain: bool, **options: Any
) -> None:
    """The models nearest to MODEL: an indexed id, or any path or Hub id.

    A model that is not in the catalog is fingerprinted on the fly and not stored.

    \b
    Example:
      deltadex find-similar someone/bert-imdb -k 5 --explain
    """
    from .terminal import show_explanation, show_neighbours

    with _reading(db) as catalog:
        query = _query(catalog, model, options["recipe"], options.pop("base"))
        from .search import explain_pair, nearest

        neighbours = nearest(catalog, query, **options)
        document: dict[str, Any] = neighbours.to_json()
        if explain:
            document["explanations"] = [
                explain_pair(catalog, query, n.model, recipe=options["recipe"]).to_json()
                for n in neighbours.neighbours
            ]
    print_document(document, show_neighbours, as_json)
    if explain and not as_json:
        for explanation in document["explanations"]:
            show_explanation(explanation)


def _query(catalog: Catalog, model: str, recipe: str | None, base: str | None) -> Query:
    """The stored model that `model` names; else a fresh fingerprint of it."""
    from .search import FreshQuery, StoredQuery

    try:
        row = catalog.model(model, base)
        if row.status == "indexed":
            return StoredQuery(row.id, row.base)
    except UnknownModel:
        if not Path(model).is_dir() and "/" not in model:
            raise
    from .indexer import fingerprint_query, guess_base

    base = base or guess_base(catalog, model)
    chosen = catalog.find_recipe(recipe, base)
    outcome = fingerprint_query(catalog, model, base, chosen)
    return FreshQuery(
        model=model,
        base=base,
        fingerprint=outcome.fingerprints[0],
        kind=outcome.model.kind,
        dataset=outcome.model.dataset,
        slots=outcome.slots,
    )


@main.command("eval")
@click.option(
    "--recipe", "recipes", multiple=True, help="Name or id; several are shown side by side."
)
@base_option
@click.option("--exclude", type=click.Choice(["author", "run"]), help="Candidates left out.")
@common
def evaluate_command(
    db: Path, as_json: bool, quiet: bool, recipes: tuple[str, ...], **options: Any
) -> None:
    """Same-dataset retrieval precision of the labelled models, against chance.

    \b
    Example:
      deltadex eval --exclude author
      deltadex eval --recipe sketch --recipe activation-shift
    """
    from .terminal import show_evaluation, show_evaluations

    with _reading(db) as catalog:
        from .search import evaluate

        documents = [
            evaluate(catalog, recipe=recipe, **options).to_json() for recipe in recipes or (None,)
        ]
    if len(documents) > 1:
        print_document({"recipes": documents}, show_evaluations, as_json)
    else:
        print_document(documents[0], show_evaluation, as_json)


@main.command("ls")
@filter_options
@base_option
@click.option("--status", type=click.Choice(["indexed", "failed", "skipped", "no-update"]))
@common
def list_models(db: Path, as_json: bool, quiet: bool, **options: Any) -> None:
    """The models of the catalog.

    \b
    Example:
      deltadex ls --where "dataset IS NULL AND status = 'indexed'"
    """
    from .terminal import show_models

    with _reading(db) as catalog:
        rows = catalog.models(**options)
    print_document({"models": [row.to_json() for row in rows]}, show_models, as_json)


@main.command()
@click.argument("model")
@base_option
@common
def show(model: str, db: Path, as_json: bool, quiet: bool, base: str | None) -> None:
    """Everything known of MODEL, and what it changed, slot by slot.

    \b
    Example:
      deltadex show someone/bert-imdb
    """
    from .terminal import show_model

    with _reading(db) as catalog:
        document = catalog.describe(model, base)
    print_document(document, show_model, as_json)


@main.command()
@click.argument("model")
@base_option
@common
def rm(model: str, db: Path, as_json: bool, quiet: bool, base: str | None) -> None:
    """Forget MODEL. Its files are not touched.

    \b
    Example:
      deltadex rm someone/bert-imdb
    """
    from .store import Catalog

    with Catalog.open(db, create=False) as catalog:
        row = catalog.remove(model, base)
    print_document({"removed": row.id, "base": row.base}, _show_pairs, as_json)


@main.command()
@common
def stats(db: Path, as_json: bool, quiet: bool) -> None:
    """How many models, datasets and recipes the catalog holds.

    \b
    Example:
      deltadex stats
    """
    from .terminal import show_stats

    with _reading(db) as catalog:
        document = catalog.stats()
    print_document(document, show_stats, as_json)


@main.command()
@base_option
@common
def failures(db: Path, as_json: bool, quiet: bool, base: str | None) -> None:
    """Models that are not in the index, grouped by reason.

    \b
    Example:
      deltadex failures
    """
    from .terminal import show_failures

    with _reading(db) as catalog:
        document = {"failures": catalog.failures(base)}
    print_document(document, show_failures, as_json)


@main.command()
@click.argument("target", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", "safetensors"]),
    default="parquet",
    show_default=True,
    help="Tables into a folder, or one recipe's vectors into a file.",
)
@recipe_option
@base_option
@common
def export(
    target: Path,
    db: Path,
    as_json: bool,
    quiet: bool,
    form: str,
    recipe: str | None,
    base: str | None,
) -> None:
    """Write the catalog to TARGET for other tools.

    \b
    Example:
      deltadex export ./tables
      deltadex export vectors.safetensors --format safetensors --base bert-base-uncased
    """
    with _reading(db) as catalog:
        if form == "parquet":
            written = catalog.export_parquet(target)
        else:
            written = [catalog.export_safetensors(target, base, recipe)]
    print_document({"written": [str(path) for path in written]}, _show_pairs, as_json)


@main.command()
@click.argument("folder", default="demo-output", type=click.Path(path_type=Path))
@common
def demo(folder: Path, db: Path, as_json: bool, quiet: bool) -> None:
    """Train a small family, index it, score it, map it; no network.

    Models and map go into FOLDER. Needs `pip install 'deltadex[demo]'`.

    \b
    Example:
      deltadex demo
    """
    try:
        from .demo import run_demo
    except ModuleNotFoundError as err:
        raise click.UsageError(f"the demo needs {err.name}: pip install 'deltadex[demo]'") from err
    from .terminal import DemoScreen

    with DemoScreen(quiet=quiet or as_json) as screen:
        document = run_demo(folder, db, screen)
    print_document(document, lambda _: None, as_json)


for _command in COMMANDS:
    main.add_command(_command)


def _reading(db: Path) -> Catalog:
    from .store import Catalog

    return Catalog.open(db, read_only=True, create=False)


def _show_pairs(document: Mapping[str, Any]) -> None:
    for key, value in document.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        click.echo(plain(f"{key}: {shown}"))
