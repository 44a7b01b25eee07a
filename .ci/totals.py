"""Fail where a room of the house holds more lines of Python than `totals.txt` allows.

A row of that file is a room, its limit, and why the limit was changed last. Where a room has become
smaller, lower its limit.
"""

import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
APART = ("tests", "benchmarks", "docs", ".ci")


def lines() -> Counter[str]:
    """By the first folder of a file, `top` for files outside of one, and all of the `product`."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    counts: Counter[str] = Counter()
    for name in filter(None, listed.stdout.splitlines()):
        folder, _, rest = name.partition("/")
        path = ROOT / name
        n = len(path.read_text("utf-8").splitlines()) if path.exists() else 0
        counts[folder if rest else "top"] += n
        counts["product"] += n if folder not in APART else 0
    return counts


def main() -> None:
    found, exceeded = lines(), 0
    for row in (Path(__file__).parent / "totals.txt").read_text("utf-8").splitlines():
        room, limit, _why = row.split(maxsplit=2)
        if found[room] > int(limit):
            exceeded += 1
            print(f"{room}: {found[room]:,} lines, at most {int(limit):,}")
    sys.exit(bool(exceeded))


if __name__ == "__main__":
    main()
