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
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """A clone's place, user and environment; the ordinary ones where nothing is said.

    Attributes:
        python: Makes the virtual environment.
        is_unusual: Run as a user without root's rights, with Ctrl-C ignored, umask 077, LANG=C, a
            home that cannot be written, no Chromium, no uv, in a folder with a space and an é.
    """

    name: str
    python: Path | None = None
    is_unusual: bool = False

    def run(self, root):
        """What `make test` in a fresh clone gives, or why it cannot be run here."""
        python = self.python or _python_for_anybody()
        if python is None:
            return "there is no Python here that a user without root's rights can run"
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            clone = folder / (FOLDER if self.is_unusual else "deltadex")
            subprocess.run(["git", "clone", "-q", str(root), str(clone)], check=True)
            return subprocess.run(
                ["make", "test", f"PYTHON={python}"],
                cwd=clone,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                **(_unusual(folder, clone) if self.is_unusual else {}),
            )


def _unusual(folder, clone):
    """Options of `subprocess.run`; the clone is handed over to the user that they name."""
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


def _python_for_anybody():
    for place in (sys.executable, *(f"{folder}/python3" for folder in os.defpath.split(":"))):
        python = Path(place).resolve()
        try:
            subprocess.run(
                [str(python), "-c", NEEDED], check=True, capture_output=True, **_nobody()
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return python
    return None


def _pythons():
    """One interpreter of each version from 3.11 on: on PATH, or installed beside this one."""
    beside = Path(sys.base_prefix).parent
    pythons = {}
    for number in range(11, 20):
        version = f"3.{number}"
        places = [shutil.which(f"python{version}"), *beside.glob(f"{version}.*/bin/python3")]
        for place in filter(None, places):
            tried = subprocess.run([str(place), "-c", NEEDED], capture_output=True)
            if tried.returncode == 0:
                pythons.setdefault(version, Path(place))
    return list(pythons.values())


SURROUNDINGS = (
    Surroundings(name="an unusual place", is_unusual=True),
    *(Surroundings(name=str(python), python=python) for python in _pythons()),
)


# Runs

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
