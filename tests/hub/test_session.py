"""What a refusal advises, and what the sessions of two runs share."""

from __future__ import annotations

import pytest
from hub_standin import Fault

from deltadex.errors import BaseError, ModelError
from deltadex.indexer.base import Base
from deltadex.indexer.hub import describe, read_small_file, run_session
from deltadex.indexer.hub.remote_bytes import locate


@pytest.mark.parametrize("status", [401, 404])
def test_a_private_or_missing_file_names_the_token(hub, session, status):
    hub.add("org/model", {"config.json": b"{}", "model.safetensors": b""})
    model = describe("org/model", session=session)
    hub.faults.append(Fault(path="resolve", kind="status", where="hub", status=status, nth=0))

    for request in (
        lambda: read_small_file(model, "config.json", session=session),
        lambda: locate(session, model.id, model.sha, "model.safetensors"),
    ):
        with pytest.raises(ModelError, match="set HF_TOKEN") as caught:
            request()
        assert caught.value.code == "private-or-missing"


def test_a_private_or_missing_base_names_the_token(hub, session):
    with pytest.raises(BaseError, match=r"base org/nothing: private-or-missing: .*set HF_TOKEN"):
        Base(name="org/nothing", session=session).weights()


def test_stopping_one_run_stops_no_other():
    first, second = run_session(), run_session()
    first.cancelled.set()

    assert not second.cancelled.is_set()
    assert not Base(name="b").session.cancelled.is_set()
