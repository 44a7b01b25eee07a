import os
import signal
import time

import pytest
from killing import TASKS, finish, look, read_trace, undisturbed

INDEX = next(task for task in TASKS if task.name == "index")
WORDS = {signal.SIGINT: "Interrupted", signal.SIGTERM: "Terminated"}
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
LONGEST_S = 30.0
PHASES = ("opening", "migrating", "reading", "committing", "closing")
QUICK = (("reading", signal.SIGINT), ("committing", signal.SIGTERM))


@pytest.fixture(scope="module")
def expected(nursery, prepared, tmp_path_factory):
    return undisturbed(nursery, prepared, INDEX, tmp_path_factory.mktemp("signals") / "whole")


def _wait_until_at(phase, db, process):
    given_up_at = time.monotonic() + LONGEST_S
    while process.is_alive() and f"> {phase}\n" not in db.with_suffix(".trace").read_text():
        assert time.monotonic() < given_up_at
        time.sleep(0.001)


@pytest.mark.parametrize(
    ("phase", "number"),
    [
        pytest.param(phase, number, marks=[] if (phase, number) in QUICK else pytest.mark.slow)
        for number in (signal.SIGINT, signal.SIGTERM)
        for phase in PHASES
    ],
)
def test_a_signal_ends_the_run_in_one_line_and_it_continues(
    nursery, prepared, expected, tmp_path, number, phase
):
    folder = tmp_path / "c"
    db = prepared.begin(INDEX, folder)
    process = nursery.start(INDEX, prepared, db, again=False)
    _wait_until_at(phase, db, process)
    if process.is_alive():
        os.kill(process.pid, number)
    process.join(LONGEST_S)

    said = db.with_suffix(".output").read_text("utf-8")
    trace = read_trace(db)
    # the last phase may be over before the signal is there
    assert process.exitcode in ({CODES[number], 0} if phase == "closing" else {CODES[number]}), said
    if process.exitcode:
        line = f"{WORDS[number]}. Progress is saved; run the same command again to continue.\n"
        # after the last phase, the document may be out too
        assert said == line or (phase == "closing" and said.endswith(f"\n}}\n{line}"))
    findings = look(INDEX, expected, db, trace)
    nursery.again(INDEX, prepared, db)
    assert not finish(INDEX, expected, folder, 0.0, trace, findings).findings


def test_a_second_ctrl_c_does_no_harm(nursery, prepared, expected, tmp_path):
    folder = tmp_path / "c"
    db = prepared.begin(INDEX, folder)
    process = nursery.start(INDEX, prepared, db, again=False)
    _wait_until_at("recording", db, process)
    for _ in range(2):
        if process.is_alive():
            os.kill(process.pid, signal.SIGINT)
        time.sleep(0.01)
    process.join(LONGEST_S)

    assert process.exitcode == 130
    assert "Traceback" not in db.with_suffix(".output").read_text("utf-8")
    trace = read_trace(db)
    findings = look(INDEX, expected, db, trace)
    nursery.again(INDEX, prepared, db)
    assert not finish(INDEX, expected, folder, 0.0, trace, findings).findings
