"""Run the numeric tests as on other processors, and the whole suite in unusual surroundings.

    python tests/machines/run.py                  # the numeric tests, under every variant
    python tests/machines/run.py --surroundings   # `make test` in fresh clones: surroundings.py
    python tests/machines/run.py --golden         # make tests/machines/golden/*.npz anew

Prints one line for each run; exits with 1 if a test failed in any.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

from surroundings import SURROUNDINGS
from variants import AVX512, HASWELL, NUMERIC, OLDEST, SAME_EXAMPLES, VARIANTS

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
GOLDEN = {"avx512": AVX512, "haswell": HASWELL, "oldest": OLDEST}
"""Processors that golden files are made for."""


def run_numeric_tests(tests):
    """Run them under every variant; whether all passed that could be run."""
    passed = True
    for variant in (*VARIANTS, HASWELL, OLDEST):
        reason = variant.why_not()
        if reason:
            print(f"{variant.name:32} left out: {reason}", flush=True)
            continue
        start = time.monotonic()
        command = [sys.executable, "-m", "pytest", *tests, "-m", "not slow", SAME_EXAMPLES]
        ended = subprocess.run(
            [*command, "-n", "2", "--dist", "loadfile"],
            cwd=ROOT,
            env=variant.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        passed &= _tell(variant.name, ended.returncode, ended.stdout, time.monotonic() - start)
    return passed


def run_in_surroundings():
    """Run the whole suite in each of `SURROUNDINGS`; whether all passed that could be run."""
    passed = True
    for surroundings in SURROUNDINGS:
        start = time.monotonic()
        ended = surroundings.run(ROOT)
        if isinstance(ended, str):
            print(f"{surroundings.name:32} left out: {ended}", flush=True)
            continue
        passed &= _tell(surroundings.name, ended.returncode, ended.stdout, time.monotonic() - start)
    return passed


def make_golden():
    """Write the golden files of the processors that this one can play."""
    for name, variant in GOLDEN.items():
        if reason := variant.why_not():
            print(f"{name}: left as it is: {reason}")
            continue
        command = [sys.executable, str(HERE / "answers.py"), str(HERE / "golden" / f"{name}.npz")]
        subprocess.run(command, env=variant.environment, check=True)


def _tell(name, code, output, seconds):
    """Print a run's closing line, and all of it where it failed; whether it passed."""
    closing = next((line for line in reversed(output.splitlines()) if " in " in line), "no result")
    print(f"{name:32} {seconds:5.0f} s  exit {code}  {closing.strip('= ')}", flush=True)
    if code:
        print(output, flush=True)
    return code == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--golden", action="store_true")
    parser.add_argument("--surroundings", action="store_true")
    options = parser.parse_args()
    if options.golden:
        make_golden()
    elif options.surroundings:
        sys.exit(not run_in_surroundings())
    else:
        sys.exit(not run_numeric_tests(NUMERIC))


if __name__ == "__main__":
    main()
