"""The catalog's contents for other tools, and a hash of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import RequestError
from ..catalog import Catalog
from ..files import make_folder, user_file, write_user_file
from ..session import Session, literal
from ..tables.recipes import tables

if TYPE_CHECKING:
    import pyarrow as pa


OTHER_FILES = {".csv", ".tsv", ".json", ".jsonl", ".xlsx", ".safetensors", ".duckdb"}
"""Endings that nobody gives a folder."""

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


def write_parquet(catalog: Catalog, target: Path) -> list[Path]:
    """Each table as `target/NAME.parquet`; of a target that is named as a file, the models alone;
    `RequestError` where that is of another kind."""
    ending = target.suffix.lower()
    if ending in OTHER_FILES and not target.is_dir():
        raise RequestError(
            f"{target}: tables are Parquet; name a folder for all of them, or a file that ends in "
            ".parquet for the models alone"
            + ("; vectors: --format safetensors" if ending == ".safetensors" else "")
        )
    is_file = ending == ".parquet" and not target.is_dir()
    folder = target.parent if is_file else target
    make_folder(folder)
    # the holder of the catalog writes, perhaps from another working folder
    folder = folder.resolve()
    written = []
    with closing(Session(catalog.access, about=folder)) as session:
        views = {row[0] for row in session.execute("SELECT view_name FROM duckdb_views()")}
        for name, sql in _TABLES.items():
            if (name == "fingerprints" and name not in views) or (is_file and name != "models"):
                continue
            file = folder / (target.name if is_file else f"{name}.parquet")
            with user_file(file) as temporary:
                options = "FORMAT parquet, COMPRESSION zstd"
                session.execute(f"COPY ({sql}) TO {literal(temporary)} ({options})")
            written.append(file)
    return written


def write_tables(target: Path, tables: Iterable[pa.Table]) -> Path:
    """Tables of the same columns, at least one, as one Parquet file; a row group each."""
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


OF_A_RUN = ("key", "indexed_at", "seconds", "bytes_read")
"""Columns of `models` that tell of the run and not of the model."""

_AT_ONCE = 512


def content_sha256(catalog: Catalog) -> str:
    """SHA-256 over every model's row, vectors, slots and linear sketches, ordered by base and id.

    Equal for two catalogs whose models have the same files and labels under the same recipes, on
    the same processor: in whatever order, by however many processes they were read.
    """
    with closing(Session(catalog.access)) as session:
        return session.look(lambda: _hash(session))


def _hash(session: Session) -> str:
    digest = hashlib.sha256()
    keys = [key for (key,) in session.execute("SELECT key FROM models ORDER BY base, id")]
    for start in range(0, len(keys), _AT_ONCE):
        batch = keys[start : start + _AT_ONCE]
        for sql in _statements(session):
            for row in session.execute(sql, [batch]):
                digest.update(repr(row).encode())
    return digest.hexdigest()


def _statements(session: Session) -> Iterator[str]:
    these = "m.key IN (SELECT unnest(?::BIGINT[])) ORDER BY ALL"
    yield f"SELECT m.base, m.id, m.* EXCLUDE ({', '.join(OF_A_RUN)}) FROM models m WHERE {these}"
    for id, table in tables(session):
        yield (
            f"SELECT m.base, m.id, '{id}', t.norm, md5(CAST(t.vector AS VARCHAR)) "
            f"FROM {table} t JOIN models m ON m.key = t.model WHERE {these}"
        )
    for table in ("slots", "linear_sketches"):
        yield (
            f"SELECT m.base, m.id, t.* EXCLUDE (model) FROM {table} t "
            f"JOIN models m ON m.key = t.model WHERE {these}"
        )
