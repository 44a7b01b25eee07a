"""`deltadex export`: the catalog for other tools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from ..terminal.options import Common, argument, base_option, option, recipe_option, takes
from .opening import open_database
from .output import print_document, show_pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What is written, and where."""

    target: Path | None = argument(required=False)
    to: str | None = option(
        "--to",
        metavar="edge:DIR|qdrant://HOST[:PORT]/COLLECTION",
        help="Bring one recipe's vectors to Qdrant, and check them there.",
    )
    format: Literal["parquet", "safetensors"] = option(
        "--format",
        default="parquet",
        help="Write tables into a folder (the models alone into a file named .parquet), or one "
        "recipe's vectors into a file.",
    )
    scores: bool = option(
        "--scores", help="Write every query's ranking that `eval` computes into one Parquet file."
    )
    exclude: Literal["author", "run"] | None = option(
        "--exclude", help="Of --scores: leave out candidates of the same author or run."
    )
    with_unlabelled: bool = option(
        "--with-unlabelled", help="Of --scores: rank models without a dataset label too."
    )
    ways: tuple[str, ...] = option(
        "--way",
        multiple=True,
        help="Of --scores: a way of scoring, as of `eval --compare`; may be repeated.",
    )

    def check(self) -> None:
        """Raises `click.UsageError` where options do not belong together."""
        if (self.target is None) == (self.to is None):
            raise click.UsageError("give TARGET, or --to for Qdrant")
        if self.to is not None and (self.scores or self.format != "parquet"):
            raise click.UsageError("--to writes vectors: leave out --scores and --format")
        if self.scores and self.format != "parquet":
            raise click.UsageError("--scores writes Parquet")
        if not self.scores and (self.exclude or self.with_unlabelled or self.ways):
            raise click.UsageError("--exclude, --with-unlabelled and --way belong to --scores")

    recipe: str | None = recipe_option()
    base: str | None = base_option()


@click.command()
@takes(Export)
def export(common: Common, options: Export) -> None:
    """Write the catalog to TARGET for other tools, or its vectors to Qdrant with --to.

    An export to Qdrant writes what differs: run it again after models were added, or after it was
    stopped. The API key of a server is read from QDRANT_API_KEY.

    \b
    Example:
      deltadex export ./tables
      deltadex export models.parquet
      deltadex export vectors.safetensors --format safetensors --base bert-base-uncased
      deltadex export --scores scores.parquet --exclude author
      deltadex export --to edge:./vectors --base bert-base-uncased
      deltadex export --to qdrant://localhost:6333/bert
    """
    options.check()
    with open_database(common) as db:
        family: dict[str, str | None] = {"recipe": options.recipe, "base": options.base}
        if options.to is not None:
            exported = db.export_vectors(options.to, **family)
            print_document(exported.to_json(), show_pairs, common)
            return
        assert options.target is not None
        if options.scores:
            written = db.export_scores(
                options.target,
                exclude=options.exclude,
                with_unlabelled=options.with_unlabelled,
                ways=options.ways or ("normalised",),
                **family,
            )
        else:
            written = db.export(options.target, format=options.format, **family)
    print_document({"written": [str(path) for path in written]}, show_pairs, common)
