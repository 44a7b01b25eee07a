"""The packages of benchmarks/ can be imported, also by names that packages of deltadex have."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "benchmarks"), str(ROOT)]
