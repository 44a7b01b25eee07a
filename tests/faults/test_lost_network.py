import huggingface_hub
import numpy as np
import pytest
from hub_standin import Fault, StandInHub
from soak import write_family

from deltadex.errors import REASONS
from deltadex.indexer import IndexOptions, index_family
from deltadex.indexer.hub.session import Patience, default_session
from deltadex.store import Catalog

IMPATIENT = Patience(tries=2, first_pause_s=0.01, longest_pause_s=0.02)
BASE = "acme/base"
N_MODELS = 10


class _Lost:
    """A network that is lost once so many models are recorded."""

    def __init__(self, hub, after):
        self.hub, self.left = hub, after

    def begin(self, models, bytes_total):
        return

    def outcome(self, outcome):
        self.left -= 1
        if self.left == 0:
            # what goes on over open connections is cut off too
            self.hub.faults = [
                Fault(path="", kind="reset", nth=0, where=where) for where in ("hub", "cdn")
            ]
            self.hub.__exit__()


@pytest.fixture
def families(tmp_path):
    """Stand-ins that have the same family, one after another the Hub of this process."""
    write_family(tmp_path / "family", N_MODELS)
    hubs = []

    def another():
        hub = StandInHub()
        hubs.append(hub)
        hub.add(BASE, _files(tmp_path / "family" / "base"))
        for folder in sorted((tmp_path / "family" / "models").iterdir()):
            hub.add(f"user/{folder.name}", _files(folder), parents=(BASE,))
        huggingface_hub.close_session()
        default_session.cache_clear()
        session = default_session()
        session.endpoint, session.patience = hub.endpoint, IMPATIENT
        session.cache_dir = tmp_path / f"cache{len(hubs)}"
        return hub

    yield another
    for hub in hubs:
        hub.__exit__()
    huggingface_hub.close_session()
    default_session.cache_clear()


def _files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _vectors(catalog):
    ids, vectors = catalog.family(BASE, catalog.find_recipe(None)).by_id()
    return dict(zip(ids, vectors, strict=True))


@pytest.mark.parametrize("workers", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_a_network_lost_in_the_middle_keeps_what_is_there_and_the_rest_comes_later(
    families, tmp_path, workers
):
    options = IndexOptions(base=BASE, hub=True, workers=workers)
    families()
    with Catalog.open(tmp_path / "whole.duckdb") as catalog:
        whole = index_family(catalog, options)
        assert not whole.refused
        expected = _vectors(catalog)
    assert len(expected) == N_MODELS

    with Catalog.open(tmp_path / "c.duckdb") as catalog:
        cut = index_family(catalog, options, _Lost(families(), after=2))

        assert cut.indexed + len(cut.refused) == N_MODELS
        assert 2 <= cut.indexed < N_MODELS
        assert {outcome.code for outcome in cut.refused} == {"hub-unreachable"}
        assert REASONS["hub-unreachable"].transient
        kept = _vectors(catalog)
        assert len(kept) == cut.indexed

        families()
        rest = index_family(catalog, options)

        assert (rest.indexed, rest.unchanged, rest.refused) == (len(cut.refused), cut.indexed, [])
        found = _vectors(catalog)
        assert found.keys() == expected.keys()
        assert all(np.array_equal(found[id], vector) for id, vector in expected.items())
