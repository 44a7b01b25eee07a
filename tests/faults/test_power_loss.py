"""A disk that loses power, what it may leave, and one with errors at some calls.

A few of the states of benchmarks/power_loss.py and of the errors of benchmarks/disk_faults.py.
"""

import random

import pytest
from disk.child import Place
from disk.faults import ERRORS, SMALL, n_calls, run_with, whole_run
from disk.library import Fault
from disk.look import describe, doctored, look, place_of, write_state
from disk.record import Call, Kind
from disk.run import STEPS, everything, is_complete, run
from disk.simulator import MODELS, SECTOR, Disk, File, Moment, moments, reported, states
from hypothesis import given
from hypothesis import strategies as st

N_STATES = 5
"""Of each model and run."""


@pytest.fixture(scope="module")
def whole(watching, family, memory):
    return everything(watching, family, memory / "whole")


@pytest.fixture(scope="module", params=[False, True], ids=["log as it is", "small log"])
def recorded(request, watching, family, memory):
    place = Place(memory / f"recorded {request.param}")
    return run(watching, family, STEPS, place, small_log=request.param)


def test_the_record_explains_every_byte_that_the_run_left(recorded):
    assert recorded.code == 0, recorded.said
    assert is_complete(recorded)
    assert {Kind.WRITE, Kind.SYNC, Kind.RENAME, Kind.UNLINK} <= {c.kind for c in recorded.calls}


@pytest.mark.parametrize("model", MODELS)
def test_what_was_reported_is_there_after_a_power_loss(
    recorded, whole, model, memory, record_property, request
):
    seed = random.randrange(10**6)
    record_property("seed", seed)
    everywhere = [m for m in moments(recorded.calls) if m.model == model]
    chosen = random.Random(seed).sample(everywhere, N_STATES)

    for moment, files in states(str(recorded.place.disk), recorded.calls, chosen):
        place = place_of(memory / "state")
        write_state(files, place)
        verdict = look(place, reported(recorded.calls[: moment.calls]), whole)

        what = f"seed {seed}, {describe(moment)}: {verdict}"
        assert (verdict.lost, verdict.half, verdict.wrong) == ([], [], []), what
        # without the new log's name, nothing tells of the checkpoint (docs/reliability.md)
        is_known = request.node.callspec.id == "small log-posix" and verdict.refused
        assert is_known or not verdict.refused, what
    assert not doctored(place)


def test_a_model_that_is_not_there_is_missed(recorded, whole, tmp_path):
    last = max((m for m in moments(recorded.calls)), key=lambda m: m.calls)
    ((_, files),) = states(str(recorded.place.disk), recorded.calls, [last])
    place = Place(tmp_path / "state")
    write_state({name: data for name, data in files.items() if ".duckdb" not in name}, place)

    verdict = look(place, reported(recorded.calls), whole)

    assert "m00000" in verdict.lost
    assert "copy.duckdb" in verdict.lost


# errors at some calls


@pytest.fixture(scope="module")
def undisturbed(watching, family, memory):
    return whole_run(watching, family, SMALL, memory / "undisturbed")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n == "ENOSPC" else pytest.mark.slow) for n in ERRORS],
)
def test_a_failing_call_ends_a_command_in_one_line_and_loses_nothing(
    watching, family, undisturbed, memory, name, record_property
):
    seed = random.randrange(10**6)
    record_property("seed", seed)
    error, is_lasting = ERRORS[name]
    call = random.Random(seed).randint(1, n_calls(undisturbed))
    fault = Fault(call=call, error=error, is_lasting=is_lasting)

    outcome = run_with(watching, family, SMALL, undisturbed, fault, memory / "faulty")

    assert not outcome.wrong, f"{fault}, {outcome.failed}: {outcome.wrong}"


# the model of the disk: what it must keep, and what it may lose

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


def test_a_synced_folder_has_its_names_and_a_rename_is_made_or_not():
    synced = [CREATED, WRITTEN, SYNCED, FOLDER_SYNCED]
    for model in MODELS:
        assert _states(synced, model) == [{"a": b"x" * 5000}]
        assert sorted(map(tuple, _states([*synced, RENAMED], model))) == [("a",), ("b",)]


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
