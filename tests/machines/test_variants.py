"""A cut of `make test-machines`: the numeric tests as on another processor."""

import subprocess
import sys
from pathlib import Path

import pytest
from variants import CUT, HASWELL, NUMERIC, OLDEST, SAME_EXAMPLES

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("variant", [HASWELL, OLDEST], ids=lambda variant: variant.name)
def test_the_numeric_tests_pass_as_on_another_processor(variant):
    if reason := variant.why_not():
        pytest.skip(reason)

    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *CUT, SAME_EXAMPLES, "-p", "no:cacheprovider"],
        cwd=ROOT,
        env=variant.environment,
        capture_output=True,
        text=True,
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_listed_tests_exist():
    assert all((ROOT / path).exists() for path in (*NUMERIC, *CUT))
