"""Ranges of a base that are kept between commands: the same answers from fewer bytes."""

import errno
import hashlib
import json
import multiprocessing
import os

import pytest
from fault_family import run
from hub_standin import Fault
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deltadex.indexer.hub import files
from deltadex.indexer.hub.files import RangeFolder

FILE = "org/base\n" + "0" * 64 + "\n1000"


def kept(folder):
    return sorted((folder / "base-ranges").glob("*"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where ranges are kept in this test."""
    monkeypatch.setenv("DELTADEX_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


def test_a_range_comes_back_under_its_own_name_only(folder):
    ranges = RangeFolder()

    ranges.put(FILE, 10, 14, bytearray(b"abcd"))

    assert RangeFolder().get(FILE, 10, 14) == b"abcd"
    for other in ((FILE, 10, 15), (FILE, 11, 14), (FILE + "0", 10, 14)):
        assert ranges.get(*other) is None
    assert (folder / "base-ranges").stat().st_mode & 0o077 == 0
    (first,) = kept(folder)
    ranges.put(FILE, 14, 18, bytearray(b"efgh"))
    (second,) = set(kept(folder)) - {first}
    second.write_bytes(first.read_bytes())  # the content of another range
    assert ranges.get(FILE, 14, 18) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(place=st.integers(0, 10**4), change=st.integers(1, 255), cut=st.booleans())
def test_a_damaged_range_is_thrown_away(folder, place, change, cut):
    ranges = RangeFolder()
    ranges.put(FILE, 0, 100, bytearray(range(100)))
    (path,) = kept(folder)
    stored = bytearray(path.read_bytes())
    place %= len(stored)
    stored[place] ^= change
    path.write_bytes(stored[:place] if cut else stored)

    assert ranges.get(FILE, 0, 100) is None
    assert kept(folder) == []


def test_the_least_recently_used_ranges_make_room(folder):
    ranges = RangeFolder(limit=64 * 1000)
    for number in range(60):
        ranges.put(FILE, number, number + 1000, bytearray(1000))
        for path in kept(folder):  # seconds pass
            os.utime(path, (path.stat().st_atime - 1, path.stat().st_mtime - 1))
        assert ranges.get(FILE, 0, 1000) is not None

    for number in range(60, 80):
        ranges.put(FILE, number, number + 1000, bytearray(1000))

    small = RangeFolder(limit=1600)
    small.put(FILE, 0, 101, bytearray(101))  # larger than its share of the folder

    assert small.get(FILE, 0, 101) is None
    assert sum(path.stat().st_size for path in kept(folder)) <= 64 * 1000
    assert ranges.get(FILE, 0, 1000) is not None
    assert ranges.get(FILE, 79, 1079) is not None
    assert ranges.get(FILE, 1, 1001) is None


def test_what_killed_processes_left_is_removed(folder):
    ranges = RangeFolder()
    ranges.put(FILE, 0, 4, bytearray(b"abcd"))
    old, new = folder / "base-ranges" / "a.partial", folder / "base-ranges" / "b.partial"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))

    RangeFolder().put(FILE, 4, 8, bytearray(b"efgh"))

    assert not old.exists()
    assert new.exists()


def full_disk(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


LITTLE_SPACE = files.shutil.disk_usage("/")._replace(free=2**30)
OBSTACLES = {
    "full disk": lambda patch, folder: patch.setattr(os, "replace", full_disk),
    "little space": lambda patch, folder: patch.setattr(
        files.shutil, "disk_usage", lambda _: LITTLE_SPACE
    ),
    "no folder": lambda patch, folder: folder.write_text("a file"),
    "switched off": lambda patch, folder: patch.setenv("DELTADEX_CACHE", ""),
}


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_nothing_is_kept_where_nothing_can_be(folder, monkeypatch, obstacle):
    OBSTACLES[obstacle](monkeypatch, folder)
    ranges = RangeFolder()

    ranges.put(FILE, 0, 4, bytearray(b"abcd"))

    assert ranges.get(FILE, 0, 4) is None
    assert not folder.is_dir() or kept(folder) == []


def _use(folder, seed):
    """Write and read the same ranges as others do; how many came back otherwise."""
    ranges = RangeFolder(folder, limit=64 * 300)
    wrong = 0
    for turn in range(200):
        number = (turn * 7 + seed) % 80
        content = hashlib.sha256(bytes([number])).digest() * 8
        got = ranges.get(FILE, number, number + 256)
        wrong += got is not None and got != content
        ranges.put(FILE, number, number + 256, bytearray(content))
    return wrong


def test_processes_may_share_the_folder(tmp_path):
    context = multiprocessing.get_context("fork")
    with context.Pool(3) as pool:
        wrong = pool.starmap(_use, [(tmp_path / "base-ranges", seed) for seed in (0, 1, 40)])

    assert wrong == [0, 0, 0]
    assert all(path.suffix == ".range" for path in kept(tmp_path))
    # each process may write a 16th of the limit before it looks again
    assert sum(p.stat().st_size for p in kept(tmp_path)) <= 64 * 300 * (1 + 3 / 16 + 0.2)


def base_bytes(hub):
    path = hub.stored("org/base", "model.safetensors")
    return sum(r.body_bytes for r in hub.requests("cdn") if r.path == path)


def index(hub, folder, *options):
    """One command on a new catalog, with nothing else in the log of requests."""
    hub.log.clear()
    folder.mkdir(exist_ok=True)
    return run(folder, "add", "org/full", "--base", "org/base", "--budget", "10%", *options)


def test_the_next_command_fetches_nothing_of_the_base(family, folder, tmp_path):
    first = index(family, tmp_path / "1")
    fetched = base_bytes(family)
    second = index(family, tmp_path / "2")

    assert 0 < fetched < 0.3 * len(family.repos["org/base"].files["model.safetensors"])
    assert base_bytes(family) == 0
    assert second.codes == first.codes
    assert second.vectors == first.vectors
    reported = [json.loads(done.stdout)["bytes_read"] for done in (first, second)]
    assert reported[0] - reported[1] == fetched
    assert f"B from {folder / 'base-ranges'}" in second.log
    assert f"from {folder}" not in first.log
    heads = [r.path for r in family.requests("hub", "HEAD")]
    assert any("org/base/resolve" in path for path in heads)


def test_what_is_kept_is_used_only_by_who_may_read_the_base(family, folder, tmp_path):
    index(family, tmp_path / "1")
    family.fail("/org/base/resolve", 403, headers={"X-Error-Code": "GatedRepo"}, nth=0)

    refused = index(family, tmp_path / "2")

    assert "org/full" not in refused.vectors


def test_a_header_that_changed_on_the_way_is_not_kept(family, folder, tmp_path):
    path = family.stored("org/base", "model.safetensors")
    family.faults += [Fault(path=path, kind="flip", nth=1, after=9)]
    first = index(family, tmp_path / "1")
    family.behave()

    second = index(family, tmp_path / "2")

    assert first.codes.get("org/full") != "indexed"
    assert second.codes == {"org/full": "indexed"}


def test_kept_ranges_that_make_no_base_are_forgotten(family, folder, tmp_path):
    first = index(family, tmp_path / "1")
    for path in kept(folder):
        content = path.read_bytes()[len(b"deltadex range 1\n") + 32 :]
        if content[8:9] != b"{":  # a header's
            # as if the range had had this content when it was kept
            content = b"\xff" * len(content)
            digest = hashlib.sha256(path.stem.encode() + content).digest()
            path.write_bytes(b"deltadex range 1\n" + digest + content)

    second = index(family, tmp_path / "2")
    fetched = base_bytes(family)

    assert first.vectors == second.vectors
    assert fetched > 0
