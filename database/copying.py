"""The catalog's contents elsewhere: other catalogs, files, engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..errors import RequestError
from ..options import Place, Question, argument, option, record
from .queries import Family, find_family
from .questions import Retrieval
from .tables import Table

if TYPE_CHECKING:
    from .opened import Opened


@record
class Merge(Question):
    """Bring all that other catalogs know into this one, which wins where they differ.

    Returns:
        One row: counts, `sources`, `conflicts`, and `damaged` parts, which were left out.

    Raises:
        RequestError: a source is this catalog.

    >>> db.merge("other.duckdb")[0]["unchanged"]
    4
    """

    sources: tuple[Place, ...] = argument(
        several=True,
        help="Catalogs, or folders and fsspec addresses of parts (`index(..., parts=...)`).",
    )

    def answer(self, db: Opened) -> Table:
        from ..store import merge_catalogs

        merged = merge_catalogs(
            db._catalog,
            self.sources,
            tracked=lambda batches: db._track(batches, "merging", total=len(batches)),
        )
        return Table(merged.to_json())


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
        return [write_safetensors(catalog, target, catalog.find_base(self.base), self.recipe)]


@record
class ExportVectors(Family):
    """Bring a family's vectors under a recipe to Qdrant, and check them there.

    Only differences are written: a second export, or one after another that was killed, is
    quick. `open(path, engine="qdrant")` then searches them.

    Returns:
        One row: `target`, `base`, `recipe`, `models`, `added`, `removed`, `repaired`, `bytes`,
        `checksum`, `recall_at_10`, `queries`, `newest_key`, `seconds`.

    Raises:
        StoreError: the engine is not reached, full, damaged, or holds other vectors.
        RequestError: the target is not understood, or its engine not installed.

    >>> db.export_vectors("edge:vectors")[0]["models"]
    4
    """

    target: str = argument(
        help="`edge:DIR`, or `qdrant://HOST[:PORT]/COLLECTION[?https=1]`; a server's API key is "
        "read from the environment (`QDRANT_API_KEY`)."
    )

    def answer(self, db: Opened) -> Table:
        from ..store import export_vectors, parse_target

        parsed, family = parse_target(self.target), find_family(db._catalog, self.base)
        exported = export_vectors(
            db._catalog,
            parsed,
            base=family,
            recipe=db._catalog.find_recipe(self.recipe, family),
            tracked=lambda things, what, total: db._track(things, what, total=total),
        )
        return Table(exported.to_json())


@record
class ExportScores(Retrieval):
    """Write what `evaluate` ranks into a Parquet file: a row for each query and candidate.

    Raises:
        RequestError: the name does not end in `.parquet`; else as `evaluate`.

    >>> [path.name for path in db.export_scores("scores.parquet", exclude="author")]
    ['scores.parquet']
    """

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
        found = rankings(
            db._catalog,
            recipe=self.recipe,
            base=db._catalog.find_base(self.base),
            exclude=self.exclude,
            with_unlabelled=self.with_unlabelled,
            ways=self.ways,
        )
        return [write_tables(target, (table for one in found for table in one.tables()))]


@record
class Backup(Question):
    """Copy the catalog as it is now into a file, which is a catalog itself.

    Returns:
        One row: `written`, `models`, `bytes`, `sha256`, `manifest`, `seconds`.

    Raises:
        RequestError: the target is there already, or has no folder.

    >>> db.backup("copy.duckdb")[0]["models"]
    4
    """

    target: Place = argument(file="any", help="The file to write.")
    _: KW_ONLY
    force: bool = option(default=False, help="Replace TARGET if it is there.")

    def answer(self, db: Opened) -> Table:
        from ..store import back_up

        return Table(back_up(db._catalog, Path(self.target), replace=self.force).to_json())
