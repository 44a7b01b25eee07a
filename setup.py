"""Lists the packages: every folder of modules that is a part of the product."""

from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
FOLDERS = (init.parent.relative_to(ROOT) for init in ROOT.glob("[!.]*/**/__init__.py"))
NOT_SHIPPED = {"tests", "benchmarks", "build", "docs"}

setup(
    script_name="setup.py",  # so that the wheel leaves this file out
    packages=[
        "deltadex",
        *sorted(".".join(("deltadex", *f.parts)) for f in FOLDERS if f.parts[0] not in NOT_SHIPPED),
    ],
)
