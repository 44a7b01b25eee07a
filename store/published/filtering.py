"""Filters of `ls` and `find-similar` on the models of an attached index."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np
import pyarrow as pa

from ...arrays import Bool
from ..tables.filters import COLUMNS, Condition

_STORED_AS = {"model": "id"}
_NUMBERS = ("bytes_read", "bytes_total", "downloads", "seconds")


def matching(
    models: pa.Table, base: str, conditions: Sequence[Condition]
) -> Bool[np.ndarray, " models"]:
    """Which models of a table meet every condition; a column that is not published is unknown.

    The database is one of memory, which may open no file.
    """
    names = dict.fromkeys(_STORED_AS.get(name, name) for name in COLUMNS)
    selected = []
    for name in names:
        if name in models.column_names:
            selected.append(name)
        elif name == "base":
            selected.append("CAST(? AS VARCHAR) AS base")
        elif name == "status":
            selected.append("'indexed' AS status")
        else:
            type = "DOUBLE" if name in _NUMBERS else "VARCHAR"
            selected.append(f"CAST(NULL AS {type}) AS {name}")
    where = " AND ".join(condition.sql for condition in conditions)
    values = [value for condition in conditions for value in condition.values]
    numbered = models.append_column("place", pa.array(np.arange(models.num_rows)))
    with duckdb.connect(":memory:", config={"enable_external_access": "false"}) as connection:
        connection.register("published", numbered)
        rows = connection.execute(
            f"SELECT m.place FROM (SELECT place, {', '.join(selected)} FROM published) m "
            f"WHERE {where}",
            [base, *values],
        ).fetchnumpy()["place"]
    is_wanted = np.zeros(models.num_rows, dtype=np.bool_)
    is_wanted[np.asarray(rows, dtype=np.int64)] = True
    return is_wanted
