"""A signal, a full disk, a lost network: what is there stays, and a second run continues."""

import os
import re
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager

import huggingface_hub
import numpy as np
import pytest
from hub_standin import Fault, StandInHub
from killing import TASKS, check, finish, look, lowered, read_trace, undisturbed
from soak import write_family

from deltadex.errors import REASONS, StoreFull
from deltadex.indexer import IndexOptions, index_family
from deltadex.indexer.hub.session import Patience, default_session
from deltadex.search import StoredQuery, find_similar, prepare_search
from deltadex.store import Catalog
from deltadex.store.derived import row_files
from deltadex.store.files import index_folder

INDEX = next(task for task in TASKS if task.name == "index")
WORDS = {signal.SIGINT: "Interrupted", signal.SIGTERM: "Terminated"}
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
LONGEST_S = 30.0
PHASES = ("opening", "reading", "committing", "closing")
QUICK = (("reading", signal.SIGINT), ("committing", signal.SIGTERM))


@pytest.fixture(scope="module")
def expected(nursery, prepared, tmp_path_factory):
    return undisturbed(nursery, prepared, INDEX, tmp_path_factory.mktemp("signals") / "whole")


def _wait_until_at(phase, db, process):
    given_up_at = time.monotonic() + LONGEST_S
    while process.is_alive() and f"> {phase}\n" not in db.with_suffix(".trace").read_text():
        assert time.monotonic() < given_up_at
        time.sleep(0.001)


@pytest.fixture
def signalled(nursery, prepared, expected, tmp_path):
    """What a run said that got signals in a phase, its exit code, and how many models it had
    recorded; a second run continues."""

    def run(phase, *numbers):
        folder = tmp_path / "c"
        db = prepared.begin(INDEX, folder)
        process = nursery.start(INDEX, prepared, db, again=False)
        _wait_until_at(phase, db, process)
        for number in numbers:
            if process.is_alive():
                os.kill(process.pid, number)
            time.sleep(0.01 if len(numbers) > 1 else 0.0)
        process.join(LONGEST_S)
        trace = read_trace(db)
        findings = look(INDEX, expected, db, trace)
        said = db.with_suffix(".output").read_text("utf-8")
        nursery.again(INDEX, prepared, db)
        assert not finish(INDEX, expected, folder, 0.0, trace, findings).findings
        return said, process.exitcode, len(trace.there)

    return run


@pytest.mark.parametrize(
    ("phase", "number"),
    [
        pytest.param(phase, number, marks=[] if (phase, number) in QUICK else pytest.mark.slow)
        for number in (signal.SIGINT, signal.SIGTERM)
        for phase in PHASES
    ],
)
def test_a_signal_ends_the_run_in_one_line_and_it_continues(signalled, number, phase):
    said, code, n_recorded = signalled(phase, number)

    # the last phase may be over before the signal is there
    assert code in ({CODES[number], 0} if phase == "closing" else {CODES[number]}), said
    if code:
        *document, line = said.splitlines()
        # after the last phase, the document may be out too
        assert not document or (phase == "closing" and document[-1] == "}")
        assert line.startswith(f"{WORDS[number]}. ")
        n_said = re.search(r"Progress is saved: (\d+) models?; run the same command again", line)
        assert n_said or "No model was finished yet; run the same command again" in line
        assert (int(n_said[1]) if n_said else 0) <= n_recorded


def test_a_second_ctrl_c_does_no_harm(signalled):
    said, code, _ = signalled("recording", signal.SIGINT, signal.SIGINT)

    assert code == 130
    assert "Traceback" not in said


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


@pytest.mark.parametrize(
    "size", ["200k", *(pytest.param(size, marks=pytest.mark.slow) for size in ("64k", "400k"))]
)
def test_a_full_disk_ends_the_run_in_one_line_and_it_continues(nursery, prepared, tmp_path, size):
    expected = undisturbed(nursery, prepared, INDEX, tmp_path / "undisturbed")
    disk = tmp_path / "disk"
    with _small_disk(disk, size):
        db = disk / "c.duckdb"
        steps = INDEX.steps_in(disk)

        full = nursery.do(steps, prepared.family, db)

        assert full.code == 3
        (line,) = full.said.splitlines()
        assert line.startswith(f"Error: {disk}")
        assert "disk full" in line
        remount = ["mount", "-o", "remount,size=64m", str(disk)]
        subprocess.run(remount, check=True)
        if db.exists():
            assert not check(db, expected.whole, there=full.there)
        assert nursery.do(steps, prepared.family, db).code == 0
        assert not check(db, expected.after, there=expected.after.ids)


def test_a_full_disk_for_derived_files_fails_no_search(prepared, tmp_path, monkeypatch):
    folder = tmp_path / "c"
    folder.mkdir()
    db = folder / "c.duckdb"
    shutil.copy(prepared.starts["whole"] / "c.duckdb", db)
    with Catalog.open(db, read_only=True) as catalog:
        (base,) = catalog.bases()
        expected = find_similar(catalog, StoredQuery("m00001"), k=20).to_json()
    with _small_disk(index_folder(db), "40k"), lowered():
        for spare in (0, 1 << 40):
            monkeypatch.setattr(row_files, "SPARE_BYTES", spare)
            with Catalog.open(db) as catalog:
                with pytest.raises(StoreFull, match="sketch"):
                    prepare_search(catalog, base, catalog.find_recipe(None))
                assert find_similar(catalog, StoredQuery("m00001"), k=20).to_json() == expected
            with Catalog.open(db, read_only=True) as catalog:
                assert find_similar(catalog, StoredQuery("m00001"), k=20).to_json() == expected


# a lost network

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
    families, tmp_path, workers, monkeypatch
):
    monkeypatch.setattr("deltadex.indexer.run.GROUP_S", 0.0)  # told of each model as it ends
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
