"""A disk's errors at some calls of a small run: a few of benchmarks/disk_faults.py."""

import random

import pytest
from disk.faults import ERRORS, SMALL, n_calls, run_with, whole_run
from disk.library import Fault


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
