"""A signal, a full disk, a lost network: what is there stays, and a second run continues."""

import re
import signal
import subprocess
from contextlib import contextmanager

import huggingface_hub
import pytest
from factories import files_of, make_family
from hub_standin import Fault, StandInHub
from running import run
from runs_of_index import vectors

from deltadex.errors import REASONS, StoreFull
from deltadex.indexer import IndexOptions, index_family
from deltadex.indexer.hub.session import Patience, default_session
from deltadex.search import StoredQuery, find_similar, neighbours, prepare_search
from deltadex.store import Catalog
from deltadex.store.derived import index, row_files
from deltadex.store.files import index_folder

WORDS = {signal.SIGINT: "Interrupted", signal.SIGTERM: "Terminated"}
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


def _index(family, db):
    return run(db, "index", family / "base", family / "models", "--quiet")


@pytest.mark.parametrize("numbers", [[signal.SIGTERM], [signal.SIGINT] * 2])
def test_signals_end_the_run_in_one_line_and_it_continues(
    indexing, family, expected, tmp_path, numbers
):
    with indexing() as run:
        run.wait_for(2)
        for number in numbers:
            run.process.send_signal(number)
        said, _ = run.process.communicate(timeout=60)

    assert run.process.returncode == CODES[numbers[0]], said
    (line,) = said.splitlines()
    assert line.startswith(f"{WORDS[numbers[0]]}. ")
    n_said = re.search(
        r"Progress is saved: at least (\d+) models?; run the same command again", line
    )
    assert 1 <= int(n_said[1]) <= len(run.recorded) < len(expected)
    with Catalog.open(tmp_path / "c.duckdb") as catalog:
        assert vectors(catalog).keys() >= {*run.recorded}
    assert _index(family, tmp_path / "c.duckdb").exit_code == 0
    with Catalog.open(tmp_path / "c.duckdb") as catalog:
        assert vectors(catalog) == expected


# a full disk


@contextmanager
def _small_disk(folder, size):
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("cannot mount a small disk here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_ends_the_run_in_one_line_and_it_continues(family, expected, tmp_path):
    disk = tmp_path / "disk"
    with _small_disk(disk, "600k"):
        full = _index(family, disk / "c.duckdb")

        assert full.exit_code == 3
        (line,) = full.output.splitlines()
        assert line.startswith(f"Error: {disk}")
        assert "disk full" in line
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        assert _index(family, disk / "c.duckdb").exit_code == 0
        with Catalog.open(disk / "c.duckdb") as catalog:
            assert vectors(catalog) == expected


def test_a_full_disk_for_derived_files_fails_no_search(family, tmp_path, monkeypatch):
    db = tmp_path / "c.duckdb"
    assert _index(family, db).exit_code == 0
    with Catalog.open(db, read_only=True) as catalog:
        (base,) = catalog.bases()
        expected = find_similar(catalog, StoredQuery("a-1"), k=20).to_json()
    # a small family has the files that a large one has
    monkeypatch.setattr(neighbours, "SKETCH_FILE_MIN_MODELS", 4)
    monkeypatch.setattr(index, "PERSIST_FROM", 4)
    monkeypatch.setattr(row_files, "AT_ONCE", 2)
    with _small_disk(index_folder(db), "40k"):
        for spare in (0, 1 << 40):
            monkeypatch.setattr(row_files, "SPARE_BYTES", spare)
            with Catalog.open(db) as catalog:
                with pytest.raises(StoreFull, match="sketch"):
                    prepare_search(catalog, base, catalog.find_recipe(None))
                assert find_similar(catalog, StoredQuery("a-1"), k=20).to_json() == expected
            with Catalog.open(db, read_only=True) as catalog:
                assert find_similar(catalog, StoredQuery("a-1"), k=20).to_json() == expected


# a lost network

IMPATIENT = Patience(tries=2, first_pause_s=0.01, longest_pause_s=0.02)
BASE = "acme/base"
N_MODELS = 6


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
    make_family(tmp_path / "family", runs=N_MODELS // 2)
    hubs = []

    def another():
        hub = StandInHub()
        hubs.append(hub)
        hub.add(BASE, files_of(tmp_path / "family" / "base"))
        for folder in sorted((tmp_path / "family" / "models").glob("*-*")):
            hub.add(f"user/{folder.name}", files_of(folder), parents=(BASE,))
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


@pytest.mark.parametrize("workers", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_a_network_lost_in_the_middle_keeps_what_is_there_and_the_rest_comes_later(
    families, tmp_path, workers, monkeypatch
):
    monkeypatch.setattr("deltadex.indexer.run.GROUP_S", 0.0)  # told of each model as it ends
    options = IndexOptions(base=BASE, hub=True, workers=workers)
    families()
    with Catalog.open(tmp_path / "whole.duckdb") as catalog:
        whole = index_family(catalog, options)
        assert not whole.refused
        expected = vectors(catalog)
    assert len(expected) == N_MODELS

    with Catalog.open(tmp_path / "c.duckdb") as catalog:
        cut = index_family(catalog, options, _Lost(families(), after=2))

        assert cut.indexed + len(cut.refused) == N_MODELS
        assert 2 <= cut.indexed < N_MODELS
        assert {outcome.code for outcome in cut.refused} == {"hub-unreachable"}
        assert REASONS["hub-unreachable"].transient
        assert len(vectors(catalog)) == cut.indexed

        families()
        rest = index_family(catalog, options)

        assert (rest.indexed, rest.unchanged, rest.refused) == (len(cut.refused), cut.indexed, [])
        assert vectors(catalog) == expected
