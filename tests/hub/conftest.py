"""A stand-in Hub, and an impatient session with it."""

import huggingface_hub
import pytest
from hub_standin import StandInHub

from deltadex.indexer.hub.session import HubSession, Patience

IMPATIENT = Patience(
    connect_s=0.5,
    read_s=0.3,
    call_s=2.0,
    rate_limit_s=1.5,
    tries=4,
    first_pause_s=0.01,
    longest_pause_s=0.05,
)


@pytest.fixture
def hub():
    with StandInHub() as hub:
        yield hub
        huggingface_hub.close_session()


@pytest.fixture
def session(hub, tmp_path):
    return HubSession(
        endpoint=hub.endpoint, token="hf_TOPSECRET", cache_dir=tmp_path, patience=IMPATIENT
    )
