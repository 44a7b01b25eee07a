"""Which model a study is about."""

import numpy as np
import pytest

from deltadex import database
from deltadex.errors import RequestError
from deltadex.records import Fingerprint, Indexed, ModelRecord, Recipe
from deltadex.store import Catalog


def test_a_model_that_a_service_was_sent_has_no_files_to_study(tmp_path):
    vector = np.array([1.0, 0.0], np.float32)
    fingerprint = Fingerprint(recipe=Recipe(name="sketch", rank=1, dim=2), vector=vector, norm=1.0)
    record = ModelRecord(id="up/one", base="base", source="upload", kind="adapter")
    with Catalog.open(tmp_path / "c.duckdb") as catalog:
        catalog.record(
            Indexed(model=record, fingerprints=(fingerprint,), slots=(), bytes_read=0, seconds=0.0)
        )

    with (
        database.open(tmp_path / "c.duckdb") as db,
        pytest.raises(RequestError, match="keeps no files; name the adapter's folder"),
    ):
        db.studies.rank("up/one")
