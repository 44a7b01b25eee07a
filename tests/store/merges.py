"""Catalogs to be merged, and what is in them."""

import duckdb

from deltadex.store import Catalog, merge_catalogs


def merge(target, *sources):
    with Catalog.open(target) as catalog:
        return merge_catalogs(catalog, sources)


def contents(path):
    """All that a catalog says, without keys, places and order."""
    with duckdb.connect(str(path), read_only=True) as connection:
        tables = connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        found = {}
        for (table,) in tables:
            columns = {row[0] for row in connection.execute(f"DESCRIBE {table}").fetchall()}
            sql = f"FROM {table}"
            if "model" in columns:  # rows of no model have none
                sql = "SELECT m.base, m.id, x.* EXCLUDE (model) " + sql
                sql += " x LEFT JOIN models m ON m.key = x.model"
            elif table == "models":
                sql = f"SELECT * EXCLUDE (key) {sql}"
            found[table] = sorted(connection.execute(sql).fetchall(), key=str)
        del found["meta"]
        return found


def counts(document):
    return [document[key] for key in ("added", "updated", "unchanged", "differing")]
