"""The model of a disk that loses power: what it must keep, and what it may lose."""

import random

from disk.record import Call, Kind
from disk.simulator import MODELS, SECTOR, Disk, File, Moment, moments, states
from hypothesis import given
from hypothesis import strategies as st

ROOT = "/disk"


def _call(kind, path="", *, other="", inode=1, at=0, data=b""):
    return Call(kind=kind, error=0, path=path, other=other, inode=inode, at=at, data=data)


CREATED = _call(Kind.CREATE, "/disk/a")
WRITTEN = _call(Kind.WRITE, data=b"x" * 5000)
SYNCED = _call(Kind.SYNC, "/disk/a")
FOLDER_SYNCED = _call(Kind.SYNC, "/disk", inode=99)
RENAMED = _call(Kind.RENAME, "/disk/a", other="/disk/b")


def _states(calls, model):
    last = [m for m in moments(calls) if m.model == model and m.calls == len(calls)]
    return [state for _, state in states(ROOT, calls, last)]


def test_what_was_not_synced_may_be_there_or_not():
    for model in MODELS:
        found = _states([CREATED, WRITTEN], model)

        assert {} in found
        assert {"a": b"x" * 5000} in found
        assert {"a": bytes(5000)} in found


def test_a_synced_file_has_its_bytes_wherever_its_name_is():
    journal = _states([CREATED, WRITTEN, SYNCED], "journal")
    posix = _states([CREATED, WRITTEN, SYNCED], "posix")

    assert journal == [{"a": b"x" * 5000}]
    assert {} in posix
    assert {"a": b"x" * 5000} in posix
    assert len(posix) == 2


def test_a_synced_folder_has_its_names():
    for model in MODELS:
        assert _states([CREATED, WRITTEN, SYNCED, FOLDER_SYNCED], model) == [{"a": b"x" * 5000}]


def test_a_rename_is_made_or_not():
    for model in MODELS:
        found = _states([CREATED, WRITTEN, SYNCED, FOLDER_SYNCED, RENAMED], model)

        assert sorted(map(tuple, found)) == [("a",), ("b",)]


def test_a_file_in_a_folder_that_is_not_there_cannot_be_reached():
    calls = [_call(Kind.MKDIR, "/disk/f"), _call(Kind.CREATE, "/disk/f/a")]
    synced = _call(Kind.SYNC, "/disk/f", inode=98)

    assert {} in _states([*calls, synced], "posix")


@given(
    writes=st.lists(
        st.tuples(st.integers(0, 6000), st.binary(min_size=1, max_size=3000)), max_size=5
    ),
    n_synced=st.integers(0, 5),
    seed=st.integers(0, 1000),
)
def test_every_sector_holds_what_it_held_at_some_moment_since_the_sync(writes, n_synced, seed):
    disk, history, cache = Disk(ROOT, "journal"), [], bytearray(1 << 14)
    disk.do(CREATED)
    for number, (at, data) in enumerate(writes):
        if number == n_synced:
            disk.do(SYNCED)
            history.clear()
        if not history:
            history.append(bytes(cache))
        disk.do(_call(Kind.WRITE, at=at, data=data))
        cache[at : at + len(data)] = data
        history.append(bytes(cache))
    kinds = ["all", "none", "zeros", "in order", "last only", "pages", "sectors"]
    drawn = random.Random(seed).choice(kinds)
    moment = Moment(calls=len(writes), model="journal", data=drawn, names="all", seed=seed)

    content = disk.state(moment)["a"]

    for start in range(0, len(content), SECTOR):
        end = min(start + SECTOR, len(content))
        assert content[start:end] in [moment[start:end] for moment in history]


def test_a_file_reads_as_it_was_written():
    file = File()
    file.write(3, b"abc")
    file.write(1, b"xyz")
    file.truncate(5)
    file.write(7, b"!")
    file.sync()

    assert file.synced == b"\0xyzb\0\0!"
