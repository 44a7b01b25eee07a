"""Catalogs for the doctor, and what it says of them."""

import duckdb
from outcomes import RECIPE

from deltadex.search import StoredQuery, find_similar
from deltadex.store import Catalog, examine
from deltadex.store.files import derived_path

CHECKS = [
    *("versions", "space", "catalog", "tables", "table indexes", "commits", "models"),
    "leftovers",
]
SCHEMA = (
    "SELECT table_name, comment, sql FROM duckdb_tables() ORDER BY 1",
    "SELECT view_name, comment, sql FROM duckdb_views() WHERE NOT internal ORDER BY 1",
    "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal ORDER BY ALL",
    "SELECT table_name, index_name, sql FROM duckdb_indexes() ORDER BY ALL",
)
"""Questions about every table, view, index and comment of a file, with their definitions."""

VECTORS = f"vectors_{RECIPE.id[-8:]}_{RECIPE.dim}"


def look(path, repairs=True):
    return list(examine(path, repairs=repairs))


def state(found, check):
    """The worst state of a check, and all that was said."""
    of_it = [f for f in found if f.check == check]
    worst = next(s for s in ("problem", "repaired", "note", "ok") if s in [f.state for f in of_it])
    return worst, " ".join(f.detail + " " + f.advice for f in of_it)


def troubles(found):
    return {f.check for f in found if f.state in ("problem", "repaired")}


def sql(path, *statements):
    with duckdb.connect(str(path)) as connection:
        for statement in statements:
            connection.execute(statement)


def files(path):
    """Bytes of everything beside the catalog, by name."""
    return {
        p.relative_to(path.parent): p.read_bytes()
        for p in path.parent.rglob("*")
        if p.is_file() and p.suffix != ".lock"
    }


def derived(path, ending):
    return derived_path(path, "base", RECIPE.id, ending)


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 0xFF
    path.write_bytes(data)


def answers(path):
    with Catalog.open(path) as catalog:
        return [find_similar(catalog, StoredQuery(id), k=11).to_json() for id in ("m00", "m07")]
