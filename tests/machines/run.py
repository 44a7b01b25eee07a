"""Run the numeric tests as on other processors, and the whole suite in unusual surroundings.

    python tests/machines/run.py                  # the numeric tests, under every variant
    python tests/machines/run.py --surroundings   # `make test` in fresh clones
    python tests/machines/run.py --golden         # make tests/machines/golden/*.npz anew

Prints one line for each run; exits with 1 if a test failed in any.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from variants import AVX512, HASWELL, NUMERIC, OLDEST, SAME_EXAMPLES, VARIANTS

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
# `make test` in a fresh clone, as somebody else's machine might run it

NOBODY = 65534
FOLDER = "délta dex"
HIDDEN = re.compile(r"chromium.*|google-chrome.*|uvx?")
"""Programs that `make` uses where they are there."""

NEEDED = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))"


def _unusual(folder, clone):
    """Options of `subprocess.run`: as a user without root's rights, to whom the clone is handed
    over, with Ctrl-C ignored, umask 077, LANG=C, a home that cannot be written, no Chromium, no uv.
    """
    folder.chmod(0o755)
    home = folder / "home"
    home.mkdir(mode=0o555)
    dropped = ("LC_", "XDG_", "PYTHON")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    environment |= {"HOME": str(home), "LANG": "C", "PATH": str(_hide(folder / "bin"))}
    if os.getuid() == 0:
        subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(clone)], check=True)
    ignored = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    return {"env": environment, "umask": 0o077, "preexec_fn": ignored, **_nobody()}


def _nobody():
    """What makes a child another user's, where this one may."""
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}


def _hide(folder):
    """A folder of links to every program of PATH but the hidden ones."""
    folder.mkdir()
    for place in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in place.iterdir() if place.is_dir() else ():
            link = folder / program.name
            if not HIDDEN.fullmatch(program.name) and not link.is_symlink():
                link.symlink_to(program)
    return folder


def _serves(python, **user):
    try:
        return not subprocess.run([python, "-c", NEEDED], capture_output=True, **user).returncode
    except OSError:
        return False


def _python_for_anybody():
    places = (sys.executable, *(f"{folder}/python3" for folder in os.defpath.split(":")))
    found = (python for python in map(os.path.realpath, places) if _serves(python, **_nobody()))
    return next(found, None)


def _pythons():
    """One interpreter of each version from 3.11 on: on PATH, or installed beside this one."""
    beside = Path(sys.base_prefix).parent
    for version in (f"3.{number}" for number in range(11, 20)):
        places = [shutil.which(f"python{version}"), *beside.glob(f"{version}.*/bin/python3")]
        yield from [str(place) for place in places if place and _serves(place)][:1]


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
        command = [sys.executable, "-m", "pytest", *tests, "-m", "not slow", SAME_EXAMPLES]
        workers = ("-n", "2", "--dist", "loadfile")
        passed &= _run(variant.name, [*command, *workers], cwd=ROOT, env=variant.environment)
    return passed


def run_in_surroundings():
    """Run the whole suite in fresh clones: in an unusual place, whose path has a space and an é,
    and with each Python; whether all passed that could be run."""
    passed = True
    for python in (None, *_pythons()):
        with tempfile.TemporaryDirectory() as temporary:
            folder, name = Path(temporary), python or "an unusual place"
            clone = folder / ("deltadex" if python else FOLDER)
            subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
            options = {} if python else _unusual(folder, clone)
            python = python or _python_for_anybody()
            if python is None:
                print(f"{name:32} left out: no Python here that a user without root's rights runs")
                continue
            command = ["make", "test", f"PYTHON={python}"]
            passed &= _run(name, command, cwd=clone, stdin=subprocess.DEVNULL, **options)
    return passed


def make_golden():
    """Write the golden files of the processors that this one can play."""
    for name, variant in GOLDEN.items():
        if reason := variant.why_not():
            print(f"{name}: left as it is: {reason}")
            continue
        command = [sys.executable, str(HERE / "answers.py"), str(HERE / "golden" / f"{name}.npz")]
        subprocess.run(command, env=variant.environment, check=True)


def _run(name, command, **options):
    """Print a run's closing line, and all of it where it failed; whether it passed."""
    start = time.monotonic()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    ended = subprocess.run(command, text=True, errors="replace", **pipes, **options)
    lines, seconds = ended.stdout.splitlines(), time.monotonic() - start
    closing = next((line for line in reversed(lines) if " in " in line), "no result")
    print(f"{name:32} {seconds:5.0f} s  exit {ended.returncode}  {closing.strip('= ')}", flush=True)
    if ended.returncode:
        print(ended.stdout, flush=True)
    return ended.returncode == 0


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
