"""What a long run leaves in memory."""

from dataclasses import replace

import numpy as np
from outcomes import indexed

from deltadex.store import Catalog, holding

BYTES_A_MODEL = 2 << 20


def large(number):
    """An outcome with a large sketch that no compression makes smaller."""
    outcome = indexed(f"m{number}", seed=number)
    sketch = np.random.default_rng(number).bytes(BYTES_A_MODEL)
    return replace(outcome, slots=(replace(outcome.slots[0], sketch=sketch),))


def pages(catalog):
    """Bytes of the file that DuckDB has in memory."""
    with catalog.snapshot():
        ((used,),) = catalog.execute("SELECT sum(memory_usage_bytes) FROM duckdb_memory()")
    return int(used)


def test_pages_of_the_file_are_given_back(path, monkeypatch):
    monkeypatch.setattr(holding, "SHED_TO", "8MB")
    with Catalog.open(path) as catalog:
        catalog.record_all([large(number) for number in range(10)])
    with Catalog.open(path) as catalog:
        rows = catalog.models()
        for row in rows:
            catalog.slots(row.key, row.recipes[0])
        before = pages(catalog)

        catalog.shed_memory()

        assert before > 10 * BYTES_A_MODEL
        assert pages(catalog) <= 8_000_000
        # and as much may be used as before
        assert len(catalog.slots(rows[3].key, rows[3].recipes[0])) == 1
        limit = catalog.execute("SELECT current_setting('memory_limit')")
        assert limit != [("7.6 MiB",)]
