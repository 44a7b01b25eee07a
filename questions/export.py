"""The catalog for other tools: `export`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Any, ClassVar, Literal

import click

from ..errors import RequestError
from ..options import Place, Stability, argument, as_kind, option, record
from ..results import Table
from .eval import Retrieval
from .face.opened import Family, Opened, find_family
from .terminal import command_line


@record
class Export(Family):
    """Write the catalog into files for other tools.

    >>> [path.name for path in db.export("v.safetensors", format="safetensors")]
    ['v.safetensors']
    """

    target: Place = argument(help="Folder or file to write.", file="any")
    _: KW_ONLY
    format: Literal["parquet", "safetensors"] = option(
        default="parquet",
        help="Write tables into a folder (the models alone into a file named .parquet), or one "
        "recipe's vectors into a file.",
    )

    def answer(self, db: Opened) -> list[Path]:
        from ..store import write_parquet, write_safetensors

        catalog, target = db._catalog, Path(self.target)
        if self.format == "parquet":
            return write_parquet(catalog, target)
        family = find_family(catalog, self.base)
        recipe = catalog.find_recipe(self.recipe, family)
        return [write_safetensors(catalog, target, family, recipe)]


@record
class ExportVectors(Family):
    """Bring a family's vectors under a recipe to Qdrant.

    Only differences are written: a second export, or one after another that was killed, is
    quick. `open(path, engine="qdrant")` then searches them.

    Returns:
        One row: `target`, `base`, `recipe`, `models`, `added`, `removed`, `newest_key`, `seconds`.

    Raises:
        StoreError: the server is not reached, full, or holds other vectors.
        RequestError: the target is not understood, or Qdrant's client not installed.
    """

    stability = "provisional"

    target: str = argument(
        help="`qdrant://HOST[:PORT]/COLLECTION[?https=1]`; the server's API key is read from the "
        "environment (`QDRANT_API_KEY`)."
    )

    def answer(self, db: Opened) -> Table:
        from ..store import export_vectors

        family = find_family(db._catalog, self.base)
        exported = export_vectors(
            db._catalog,
            self.target,
            base=family,
            recipe=db._catalog.find_recipe(self.recipe, family),
            track=db._track,
        )
        return Table(exported)


@record
class ExportScores(Retrieval):
    """Write what `evaluate` ranks into a Parquet file: a row for each query and candidate.

    Raises:
        RequestError: the name does not end in `.parquet`; else as `evaluate`.

    >>> [path.name for path in db.export_scores("scores.parquet", exclude="author")]
    ['scores.parquet']
    """

    stability: ClassVar[Stability] = "provisional"

    target: Place = argument(help="The Parquet file to write.")
    _: KW_ONLY
    recipe: str | None = option(default=None, help="Name or id of a recipe.")
    ways: Sequence[str] = option(
        "--way",
        default=("normalised",),
        help="Way of scoring, as `eval --compare` has it; may be repeated.",
    )

    def answer(self, db: Opened) -> list[Path]:
        from ..search import rankings
        from ..store import write_tables

        target = Path(self.target)
        if target.suffix.lower() != ".parquet":
            raise RequestError(f"{target}: scores are a Parquet file; end its name in .parquet")
        tables = rankings(
            db._catalog,
            recipe=self.recipe,
            base=db._catalog.find_base(self.base),
            exclude=self.exclude,
            with_unlabelled=self.with_unlabelled,
            ways=self.ways,
        )
        return [write_tables(target, tables)]


@record
class AnyExport(Export, ExportScores):
    """Write the catalog to TARGET for other tools, or its vectors to Qdrant with --to.

    An export to Qdrant writes what differs: run it again after models were added, or after it was
    stopped. The API key of a server is read from QDRANT_API_KEY.
    """

    stability = "stable"  # what --to and --scores write is provisional

    target: Any = argument(default=None, file="any")
    _: KW_ONLY
    to: str | None = option(
        default=None,
        metavar="qdrant://HOST[:PORT]/COLLECTION",
        help="Bring one recipe's vectors to Qdrant.",
    )
    scores: bool = option(
        default=False,
        help="Write every query's ranking that `eval` computes into one Parquet file; --exclude, "
        "--with-unlabelled and --way belong to it.",
    )

    def check(self) -> None:
        """Raises `click.UsageError` where options do not belong together."""
        if (self.target is None) == (self.to is None):
            raise click.UsageError("give TARGET, or --to for Qdrant")
        if self.to is not None and (self.scores or self.format != "parquet"):
            raise click.UsageError("--to writes vectors: leave out --scores and --format")
        if self.scores and self.format != "parquet":
            raise click.UsageError("--scores writes Parquet")
        is_default = tuple(self.ways) == ExportScores.ways
        if not self.scores and (self.exclude or self.with_unlabelled or not is_default):
            raise click.UsageError("--exclude, --with-unlabelled and --way belong to --scores")


@command_line.command_with(
    AnyExport,
    prints_table=False,
    examples=(
        "export ./tables",
        "export models.parquet",
        "export vectors.safetensors --format safetensors --base bert-base-uncased",
        "export --scores scores.parquet --exclude author",
        "export --to qdrant://localhost:6333/bert --base bert-base-uncased",
    ),
)
def command(common: command_line.Common, asked: AnyExport) -> None:
    asked.check()
    if asked.to is not None:
        command_line.when_stopped(lambda: command_line.FINISHED)
        vectors = ExportVectors(asked.to, recipe=asked.recipe, base=asked.base)
        command_line.print_answer(common, vectors, command_line.show_pairs)
        return
    with command_line.open_database(common) as db:
        wanted: Export | ExportScores = as_kind(Export, asked)
        if asked.scores:
            wanted = as_kind(ExportScores, asked)
        written = wanted.answer(db)
    command_line.print_document(
        {"written": [str(path) for path in written]}, command_line.show_pairs, common
    )
