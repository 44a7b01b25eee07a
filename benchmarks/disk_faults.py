"""Errors of the disk at every call of a small run: does a command end well, and is all there?

    python benchmarks/disk_faults.py [--every K] [--first N]

A run of commands over tiny models is repeated once for every call that changes a file, or opens one
for writing, and for every error of a list: that call fails (`disk/calls.c`). A command must end by
itself, with one line that says why and an exit code of its own, or not need the call. What it had
reported must be there. Then the disk is well again: the same commands must end as in a run without
faults.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from disk.child import folder_in_memory
from disk.faults import ERRORS, STEPS, n_calls, run_with, whole_run
from disk.library import Fault, build
from killing import Nursery, prepare_family

TITLES = ("runs", "faults", "refused", "absorbed", "wrong")


def main() -> None:
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1, help="Only every so many calls.")
    parser.add_argument("--first", type=int, default=1, help="Number of the first call.")
    options = parser.parse_args()
    rows: dict[str, Counter[str]] = {}
    kinds: Counter[str] = Counter()
    with folder_in_memory() as temporary:
        folder = Path(temporary)
        nursery = Nursery(build(folder))
        prepared = prepare_family(folder / "prepared", nursery.do, ())
        whole = whole_run(nursery, prepared, STEPS, folder / "undisturbed")
        print(f"{n_calls(whole)} calls")
        for name, (error, is_lasting) in ERRORS.items():
            row = rows.setdefault(name, Counter())
            for call in range(options.first, n_calls(whole) + 1, options.every):
                fault = Fault(call=call, error=error, is_lasting=is_lasting)
                outcome = run_with(nursery, prepared, STEPS, whole, fault, folder / "faulty")
                failed = outcome.failed
                kinds.update([failed.kind.name] if failed else [])
                row.update(
                    runs=1,
                    faults=failed is not None,
                    refused=failed is not None and outcome.refused > 0,
                    absorbed=failed is not None and outcome.refused == 0,
                    wrong=bool(outcome.wrong),
                )
                if outcome.wrong:
                    where = f"{failed.kind.name} {failed.path}" if failed else "no call"
                    print(f"{name}, call {call} ({where}): {outcome.wrong}")
    print(f"\n{'':<22}" + "".join(f"{title:>10}" for title in TITLES))
    for name, row in {**rows, "all": sum(rows.values(), Counter())}.items():
        print(f"{name:<22}" + "".join(f"{row[title]:>10}" for title in TITLES))
    print("\nfailed: " + ", ".join(f"{kind.lower()} {n}" for kind, n in kinds.most_common()))
    sys.exit(any(row["wrong"] for row in rows.values()))


if __name__ == "__main__":
    main()
