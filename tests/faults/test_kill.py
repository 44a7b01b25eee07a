import random
import time

import pytest
from runs_of_index import vectors

from deltadex.indexer import IndexOptions, index_family
from deltadex.store import Catalog, examine


@pytest.mark.slow
def test_a_killed_run_loses_nothing_that_was_reported_and_goes_on(
    indexing, family, expected, tmp_path, record_property
):
    seed = random.randrange(10**6)
    record_property("seed", seed)
    rng, path = random.Random(seed), tmp_path / "c.duckdb"
    reported = set()
    for n_recorded in range(len(expected) - 1):
        with indexing() as run:
            run.wait_for(1 if n_recorded else 0)
            time.sleep(rng.random() * 0.2)
            run.process.kill()
            run.process.wait()
            reported |= {*run.recorded}
        with Catalog.open(path) as catalog:
            found = vectors(catalog)
        assert reported <= found.keys(), f"seed {seed}"
        assert found.items() <= expected.items()

    with Catalog.open(path) as catalog:
        index_family(catalog, IndexOptions(base=str(family / "base"), source=family / "models"))
        assert vectors(catalog) == expected
    assert not [found for found in examine(path) if found.state == "problem"]
