"""A hash of all that a catalog says of its models, however and wherever they were read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing

from ..catalog import Catalog
from ..session import Session
from ..tables.recipes import tables

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
