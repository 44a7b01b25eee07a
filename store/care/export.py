"""The catalog's contents for other tools."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import RequestError
from ..catalog import Catalog
from ..files import make_folder, user_file, write_user_file
from ..session import Session

if TYPE_CHECKING:
    import pyarrow as pa

_TABLES = {
    # `id` as before, for readers of older exports
    "models": "SELECT id AS model, * FROM models ORDER BY base, id",
    "slots": (
        "SELECT m.base, m.id AS model, s.* EXCLUDE (model, sketch) "
        "FROM slots s JOIN models m ON m.key = s.model ORDER BY ALL"
    ),
    "linear_sketches": (
        "SELECT m.base, m.id AS model, l.* EXCLUDE (model) "
        "FROM linear_sketches l JOIN models m ON m.key = l.model ORDER BY ALL"
    ),
    "data_sets": "SELECT * FROM data_sets ORDER BY base, name",
    "data_sketches": "SELECT * FROM data_sketches ORDER BY ALL",
    "fingerprints": "SELECT * FROM fingerprints ORDER BY base, model, recipe",
}


def write_parquet(catalog: Catalog, folder: Path) -> list[Path]:
    """Each table as `folder/NAME.parquet`."""
    make_folder(folder)
    # the holder of the catalog writes, perhaps from another working folder
    folder = folder.resolve()
    written = []
    with closing(Session(catalog.access, about=folder)) as session:
        views = {row[0] for row in session.execute("SELECT view_name FROM duckdb_views()")}
        for name, sql in _TABLES.items():
            if name == "fingerprints" and name not in views:
                continue
            target = folder / f"{name}.parquet"
            with user_file(target) as temporary:
                quoted = str(temporary).replace("'", "''")
                session.execute(f"COPY ({sql}) TO '{quoted}' (FORMAT parquet, COMPRESSION zstd)")
            written.append(target)
    return written


def write_tables(target: Path, tables: Iterable[pa.Table]) -> Path:
    """Tables of the same columns, at least one, as one Parquet file; a row group each.

    Raises:
        StoreFull: the system refuses.
    """
    from pyarrow import parquet

    remaining = iter(tables)
    first = next(remaining)
    with (
        user_file(target) as temporary,
        parquet.ParquetWriter(temporary, first.schema, compression="zstd") as writer,
    ):
        writer.write_table(first)
        for table in remaining:
            writer.write_table(table)
    return target


def write_safetensors(catalog: Catalog, target: Path, base: str | None, recipe: str | None) -> Path:
    """The vectors of a family under a recipe (models, dim), float32; base, recipe and ids are
    metadata.

    Raises:
        EmptyCatalog: there is no family.
        RequestError: there are several, and no base is named.
    """
    from safetensors.numpy import save

    bases = [base] if base else catalog.bases()
    if len(bases) > 1:
        raise RequestError(
            f"the catalog has {len(bases)} families; add --base, one of: {', '.join(bases)}"
        )
    chosen = catalog.find_recipe(recipe, bases[0] if bases else None)
    ids, vectors = catalog.look(lambda: catalog.family(bases[0], chosen).by_id())
    metadata = {"base": bases[0], "recipe": chosen.id, "ids": json.dumps(ids)}
    write_user_file(target, save({"vectors": vectors}, metadata))
    return target
