"""A copy of the package, to be changed and run without the one that is tested."""

import json
import os
import shutil
import sys
from pathlib import Path

from running import printed

import deltadex

ROOT = Path(deltadex.__file__).parent
PACKAGE = ("*.py", "*.pyi", "*.json", "*.sql", "*.html", "*.js", "*.css", "*.svg", "py.typed")


def copy_package(folder):
    """The package in the folder, a copy without tests, benchmarks and docs."""
    for pattern in PACKAGE:
        for file in ROOT.rglob(pattern):
            place = file.relative_to(ROOT)
            if place.parts[0] not in ("tests", "benchmarks", "docs") and place.parts[0][0] != ".":
                target = folder / "deltadex" / place
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, target)
    return folder / "deltadex"


def printed_by(code, folder):
    """The document that the code prints, run with the copy in the folder."""
    environment = os.environ | {"PYTHONPATH": str(folder)}
    return json.loads(printed(sys.executable, "-c", code, cwd=folder, env=environment))
