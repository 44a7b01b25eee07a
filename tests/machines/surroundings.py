"""`make test` in a fresh clone, as somebody else's machine might run it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

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
