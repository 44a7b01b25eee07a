"""What a long run leaves in memory, and what it costs to write."""

from dataclasses import replace

import numpy as np
import pytest
from outcomes import indexed

from deltadex.store import Catalog, holding

N_MODELS = 10
BYTES_A_MODEL = 2 << 20


def large(number):
    """An outcome with a large sketch that no compression makes smaller."""
    outcome = indexed(f"m{number}", seed=number)
    sketch = np.random.default_rng(number).bytes(BYTES_A_MODEL)
    return replace(outcome, slots=(replace(outcome.slots[0], sketch=sketch),))


def pages(catalog):
    """Bytes of the file that DuckDB has in memory."""
    with catalog.snapshot():
        ((used,),) = catalog._session.execute("SELECT sum(memory_usage_bytes) FROM duckdb_memory()")
    return int(used)


@pytest.fixture
def catalog(path, monkeypatch):
    """One of 20 MiB, all of it read."""
    monkeypatch.setattr(holding, "SHED_TO", "8MB")
    with Catalog.open(path) as opened:
        for number in range(N_MODELS):
            opened.record(large(number))
    with Catalog.open(path) as opened:
        for row in opened.models():
            opened.slots(row.key, row.recipes[0])
        yield opened


def test_pages_of_the_file_are_given_back(catalog):
    before = pages(catalog)

    catalog.shed_memory()

    assert before > N_MODELS * BYTES_A_MODEL
    assert pages(catalog) <= 8_000_000
    # and as much may be used as before
    assert len(catalog.slots(catalog.model("m3").key, catalog.model("m3").recipes[0])) == 1
    assert catalog._session.execute("SELECT current_setting('memory_limit')") != [("7.6 MiB",)]
