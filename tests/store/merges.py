"""Catalogs to be merged, and what is in them."""

import duckdb

from deltadex.records import ModelRecord, Refused
from deltadex.store import Catalog, merge_catalogs


def refused(id, code="truncated", **record):
    return Refused(model=ModelRecord(id=id, base="base", **record), code=code, reason="why")


def write(path, *outcomes):
    with Catalog.open(path) as catalog:
        for outcome in outcomes:
            catalog.record(outcome)
    return path


def merge(target, *sources):
    with Catalog.open(target) as catalog:
        return merge_catalogs(catalog, sources).to_json()


def contents(path, without="key"):
    """All that a catalog says, without keys, places and order, and these columns of models."""
    with duckdb.connect(str(path), read_only=True) as connection:

        def rows(sql):
            return sorted(connection.execute(sql).fetchall(), key=str)

        joined = "JOIN models m ON m.key = x.model"
        tables = connection.execute("SELECT id, vectors FROM recipes").fetchall()
        return {
            "families": rows("FROM families"),
            "models": rows(f"SELECT * EXCLUDE ({without}) FROM models"),
            "slots": rows(f"SELECT m.base, m.id, x.* EXCLUDE (model) FROM slots x {joined}"),
            "linear": rows(
                f"SELECT m.base, m.id, x.* EXCLUDE (model) FROM linear_sketches x {joined}"
            ),
            "studies": rows(f"SELECT m.base, m.id, x.* EXCLUDE (model) FROM studies x {joined}"),
            "recipes": rows("FROM recipes"),
            **{
                recipe: rows(f"SELECT m.base, m.id, x.* EXCLUDE (model) FROM {table} x {joined}")
                for recipe, table in tables
            },
            "orphans": rows("SELECT DISTINCT model FROM slots ANTI JOIN models ON model = key"),
        }


def counts(document):
    return [document[key] for key in ("added", "updated", "unchanged", "differing")]
