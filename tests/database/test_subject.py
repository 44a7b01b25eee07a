"""Which models a study can be about."""

import numpy as np
import pytest

from deltadex import database
from deltadex.errors import RequestError
from deltadex.records import Fingerprint, Indexed, ModelRecord, Recipe
from deltadex.store import Catalog


@pytest.fixture
def db(tmp_path):
    """Two adapters that a service was sent, of whose slots nothing is kept."""
    with Catalog.open(tmp_path / "c.duckdb") as catalog:
        for place, name in enumerate(("up/one", "up/two")):
            fingerprint = Fingerprint(
                recipe=Recipe(name="sketch", rank=1, dim=2),
                vector=np.eye(2, dtype=np.float32)[place],
                norm=1.0,
            )
            record = ModelRecord(id=name, base="base", source="upload", kind="adapter")
            catalog.record(
                Indexed(
                    model=record,
                    fingerprints=(fingerprint,),
                    slots=(),
                    bytes_read=0,
                    seconds=0.0,
                )
            )
    with database.open(tmp_path / "c.duckdb") as db:
        yield db


def test_a_model_that_a_service_was_sent_has_no_files_to_study(db):
    with pytest.raises(RequestError, match="keeps no files; name the adapter's folder"):
        db.studies.rank("up/one")


def test_models_without_slots_cannot_be_compared(db):
    with pytest.raises(RequestError, match="keeps no slots of up/one and up/two"):
        db.diff("up/one", "up/two")
