"""The catalog's contents elsewhere: other catalogs, files, engines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from ..errors import RequestError
from .opened import Opened, Place
from .tables import Table


class Copying(Opened):
    """How a `Database` exchanges its contents with files."""

    def merge(self, *sources: Place) -> Table:
        """Bring all that other catalogs know into this one, which wins where they differ.

        Args:
            sources: Catalogs, or folders and fsspec addresses of parts (`index(..., parts=...)`).

        Returns:
            One row: counts, `sources`, `conflicts`, and `damaged` parts, which were left out.

        Raises:
            RequestError: a source is this catalog.

        >>> db.merge("other.duckdb")[0]["unchanged"]
        4
        """
        from ..store import merge_catalogs

        merged = merge_catalogs(
            self._catalog,
            sources,
            tracked=lambda batches: self._track(batches, "merging", total=len(batches)),
        )
        return Table(merged.to_json())

    def export(
        self,
        target: Place,
        *,
        format: Literal["parquet", "safetensors"] = "parquet",
        recipe: str | None = None,
        base: str | None = None,
    ) -> list[Path]:
        """Write tables into a folder (`parquet`), the models alone into a file that is named
        `.parquet`, or one recipe's vectors into a file.

        >>> [path.name for path in db.export("v.safetensors", format="safetensors")]
        ['v.safetensors']
        """
        from ..store import write_parquet, write_safetensors

        if format == "parquet":
            return write_parquet(self._catalog, Path(target))
        return [write_safetensors(self._catalog, Path(target), self.find_base(base), recipe)]

    def export_vectors(
        self, target: str, *, recipe: str | None = None, base: str | None = None
    ) -> Table:
        """Bring a family's vectors under a recipe to Qdrant, and check them there.

        Only differences are written: a second export, or one after another that was killed, is
        quick. `open(path, engine="qdrant")` then searches them.

        Args:
            target: `edge:DIR`, or `qdrant://HOST[:PORT]/COLLECTION[?https=1]`; a server's API key
                is read from the environment (`QDRANT_API_KEY`).

        Returns:
            One row: `target`, `base`, `recipe`, `models`, `added`, `removed`, `repaired`, `bytes`,
            `checksum`, `recall_at_10`, `queries`, `newest_key`, `seconds`.

        Raises:
            StoreError: the engine is not reached, full, damaged, or holds other vectors.
            RequestError: the target is not understood, or its engine not installed.

        >>> db.export_vectors("edge:vectors")[0]["models"]
        4
        """
        from ..store import export_vectors, parse_target

        parsed, family = parse_target(target), self.find_family(base)
        exported = export_vectors(
            self._catalog,
            parsed,
            base=family,
            recipe=self._catalog.find_recipe(recipe, family),
            tracked=lambda things, what, total: self._track(things, what, total=total),
        )
        return Table(exported.to_json())

    def export_scores(
        self,
        target: Place,
        *,
        recipe: str | None = None,
        base: str | None = None,
        exclude: Literal["author", "run"] | None = None,
        with_unlabelled: bool = False,
        ways: Sequence[str] = ("normalised",),
    ) -> list[Path]:
        """Write what `evaluate` ranks into a Parquet file: a row for each query and candidate.

        Args:
            exclude, with_unlabelled: As of `evaluate`.
            ways: Of scoring; as `compare` of `evaluate`.

        Raises:
            RequestError: the name does not end in `.parquet`; else as `evaluate`.

        >>> [path.name for path in db.export_scores("scores.parquet", exclude="author")]
        ['scores.parquet']
        """
        from ..search import rankings
        from ..store import write_tables

        target = Path(target)
        if target.suffix.lower() != ".parquet":
            raise RequestError(f"{target}: scores are a Parquet file; end its name in .parquet")
        found = rankings(
            self._catalog,
            recipe=recipe,
            base=self.find_base(base),
            exclude=exclude,
            with_unlabelled=with_unlabelled,
            ways=ways,
        )
        return [write_tables(target, (table for one in found for table in one.tables()))]

    def backup(self, target: Place, *, force: bool = False) -> Table:
        """Copy the catalog as it is now into a file, which is a catalog itself.

        Args:
            force: Whether a file that is there already is replaced.

        Returns:
            One row: `written`, `models`, `bytes`, `sha256`, `manifest`, `seconds`.

        Raises:
            RequestError: the target is there already, or has no folder.

        >>> db.backup("copy.duckdb")[0]["models"]
        4
        """
        from ..store import back_up

        return Table(back_up(self._catalog, Path(target), replace=force).to_json())
