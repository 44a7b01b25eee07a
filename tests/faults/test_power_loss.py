"""States that a power loss may leave: a few of those of benchmarks/power_loss.py."""

import random

import pytest
from disk.child import Place
from disk.look import describe, doctored, look, place_of, write_state
from disk.record import Kind
from disk.run import STEPS, everything, is_complete, run
from disk.simulator import MODELS, moments, reported, states

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
