"""The models of a family that may be published, and what is published of each."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...arrays import Int64
from ...errors import BadIndex
from ...records import GATED_NOTE, PRIVATE_NOTE, Recipe
from ..session import Session
from ..tables.recipes import tables
from .parts import COUNTS, TEXTS
from .plain_text import may_be_public


def removal_hash(base: str, id: str) -> str:
    """What an index remembers of a model that is left out: SHA-256 of base and id."""
    return hashlib.sha256(f"{base}\n{id}".encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublicModels:
    """Models in order of id.

    Attributes:
        keys: In the catalog.
        table: A row each, without vectors.
        left_out: How many models are not published, by reason.
    """

    keys: Int64[np.ndarray, " models"]
    table: pa.Table
    left_out: dict[str, int]

    def digests(self) -> list[bytes]:
        """Of all that is published of each model but its vector and its downloads."""
        columns = [self.table.column(name).to_pylist() for name in (*TEXTS, "norm", "bytes_total")]
        return [hashlib.sha256(repr(row).encode()).digest() for row in zip(*columns, strict=True)]


def select_public(
    session: Session,
    base: str,
    recipe: Recipe,
    *,
    named: str,
    removed: Collection[str],
    with_gated: bool,
) -> PublicModels:
    """The models of a family with a vector under a recipe that may be published.

    Args:
        base: In the catalog.
        named: What the index calls it.
        removed: Hashes of the ids that are left out.
    """
    table = _select(session, base, recipe)
    left_out = {"removed": 0, "private": 0, "gated": 0, "a path or token as id": 0}
    kept = []
    ids, notes = table.column("id").to_pylist(), table.column("notes").to_pylist()
    for row, (id, of_model) in enumerate(zip(ids, notes, strict=True)):
        reason = None
        if removal_hash(named, id) in removed:
            reason = "removed"
        elif PRIVATE_NOTE in (of_model or ()):
            reason = "private"
        elif GATED_NOTE in (of_model or ()) and not with_gated:
            reason = "gated"
        elif not may_be_public(id):
            reason = "a path or token as id"
        if reason is None:
            kept.append(row)
        else:
            left_out[reason] += 1
    table = table.take(pa.array(kept, pa.int64()))
    columns = {}
    for name in TEXTS:
        texts = table.column(name).to_pylist()
        shown = [text if may_be_public(text) else None for text in texts]
        columns[name] = pa.array(shown, pa.string())
    for name in COUNTS:
        columns[name] = table.column(name).cast(pa.int64())
    columns["norm"] = table.column("norm").cast(pa.float32())
    return PublicModels(
        keys=table.column("key").to_numpy(),
        table=pa.table(columns),
        left_out={reason: n for reason, n in left_out.items() if n},
    )


def read_removals(content: bytes) -> frozenset[str]:
    """The hashes of the models that an index leaves out for good, from the file that lists them.

    Raises:
        BadIndex: it is no such list.
    """
    lines = content.split()
    if not all(len(line) == 64 and line.isalnum() and line.isascii() for line in lines):
        raise BadIndex("the list of removed models is not a list of hashes")
    return frozenset(line.decode() for line in lines)


def _select(session: Session, base: str, recipe: Recipe) -> pa.Table:
    vectors = dict(tables(session)).get(recipe.id)
    columns = ", ".join(f"m.{name}" for name in (*TEXTS, *COUNTS))
    return session.arrow(
        f"SELECT m.key, {columns}, m.notes, v.norm FROM {vectors} v "
        "JOIN models m ON m.key = v.model "
        "WHERE m.base = ? AND m.status = 'indexed' ORDER BY m.id",
        [base],
    )
