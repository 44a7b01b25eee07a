"""A cut of `make test-machines`: the numeric tests as on another processor."""

import sys
from pathlib import Path

import pytest
from running import printed
from variants import CUT, HASWELL, NUMERIC, OLDEST, SAME_EXAMPLES

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("variant", [HASWELL, OLDEST], ids=lambda variant: variant.name)
def test_the_numeric_tests_pass_as_on_another_processor(variant):
    if reason := variant.why_not():
        pytest.skip(reason)

    command = (sys.executable, "-m", "pytest", *CUT, SAME_EXAMPLES, "-p", "no:cacheprovider")
    printed(*command, cwd=ROOT, env=variant.environment)


def test_the_listed_tests_exist():
    assert all((ROOT / path).exists() for path in (*NUMERIC, *CUT))
