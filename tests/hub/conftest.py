"""A stand-in Hub, and an impatient session with it; and one with a family on it."""

from dataclasses import replace

import huggingface_hub
import pytest
from fault_family import PATIENCE, family_hub
from hub_standin import StandInHub

from deltadex.indexer.hub.session import HubSession

IMPATIENT = replace(PATIENCE, read_s=0.3, call_s=2.0, bytes_per_second=1e5)


@pytest.fixture
def hub():
    with StandInHub() as hub:
        yield hub
        huggingface_hub.close_session()


@pytest.fixture(scope="module")
def family_of_module(tmp_path_factory):
    with family_hub(tmp_path_factory.mktemp("family")) as hub:
        yield hub


@pytest.fixture
def family(family_of_module):
    """The stand-in Hub of this module with a family on it, undisturbed."""
    family_of_module.behave()
    yield family_of_module
    family_of_module.behave()


@pytest.fixture
def session(hub, tmp_path):
    return HubSession(
        endpoint=hub.endpoint, token="hf_TOPSECRET", cache_dir=tmp_path, patience=IMPATIENT
    )
