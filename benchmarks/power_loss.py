"""What a power loss leaves: is anything lost, half there or wrong?

    python benchmarks/power_loss.py [--states 1000] [--seed N] [--doctor 20]

A run of commands over tiny models (index, add, rm, searches, backups, derived files) is recorded
with every call that changes a file (`disk/calls.c`). After each call the power may go: of what was
not synced, the disk then holds nothing, everything or any part (`disk/simulator.py` says which, by
two models). At least so many of these states are drawn, half of each model; equal ones count once.
Each is written to a folder and opened: whatever a command had reported must be there, whole, as an
undisturbed run records it, and searches must not depend on derived files. Two runs are recorded:
one as it is, and one where DuckDB writes its log into the file all the time.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from disk.child import Place, folder_in_memory
from disk.library import build
from disk.look import Verdict, describe, doctored, look, place_of, write_state
from disk.run import STEPS, Recorded, everything, is_complete, run
from disk.simulator import MODELS, Moment, moments, reported, states
from killing import Contents, Nursery, prepare_family

MOMENTS_FOR_A_STATE = 1.25
"""Some moments give the same state."""


def verdicts(
    recorded: Recorded, whole: Contents, n_states: int, every: int, seed: str, folder: Path
) -> Iterator[tuple[Moment, Verdict]]:
    """About so many states of one run, half of each model, looked at; some by the doctor too."""
    everywhere = list(moments(recorded.calls))
    for model in MODELS:
        here = [moment for moment in everywhere if moment.model == model]
        rng = random.Random(f"{seed} {model}")
        chosen = rng.sample(here, min(len(here), int(MOMENTS_FOR_A_STATE * n_states / 2)))
        found = states(str(recorded.place.disk), recorded.calls, chosen)
        for number, (moment, files) in enumerate(found):
            place = place_of(folder)
            write_state(files, place)
            verdict = look(place, reported(recorded.calls[: moment.calls]), whole)
            if every and number % every == 0 and place.db.exists():
                verdict.wrong += doctored(place)
            yield moment, verdict


def main() -> None:
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    parser = argparse.ArgumentParser()
    parser.add_argument("--states", type=int, default=1000)
    parser.add_argument("--doctor", type=int, default=20, help="It sees one state of so many.")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    rows: dict[str, Counter[str]] = {}
    with folder_in_memory() as temporary:
        folder = Path(temporary)
        nursery = Nursery(build(folder))
        prepared = prepare_family(folder / "prepared", nursery.do, ())
        whole = everything(nursery, prepared, folder / "whole")
        for log in ("log as it is", "small log"):
            place = Place(folder / log)
            recorded = run(nursery, prepared, STEPS, place, small_log=log == "small log")
            if recorded.code or not is_complete(recorded):
                sys.exit(f"{log}: the run failed or calls are missing:\n{recorded.said}")
            n = sum(1 for call in recorded.calls if call.changes_disk)
            print(f"{log}: {n} calls")
            seed = f"{options.seed} {log}"
            for moment, verdict in verdicts(
                recorded, whole, options.states // 2, options.doctor, seed, folder / "state"
            ):
                row = rows.setdefault(f"{moment.model}, {log}", Counter())
                row.update(states=1, opened=not verdict.refused, **verdict.counts)
                if verdict:
                    print(f"{log}: {describe(moment)}: {verdict}")
    show(rows)
    sys.exit(any(row[name] for row in rows.values() for name in Verdict.KINDS))


def show(rows: dict[str, Counter[str]]) -> None:
    """Print the table."""
    titles = ("states", "opened", *Verdict.KINDS)
    print(f"\n{'':<22}" + "".join(f"{title:>10}" for title in titles))
    for name, row in {**rows, "all": sum(rows.values(), Counter())}.items():
        print(f"{name:<22}" + "".join(f"{row[title]:>10}" for title in titles))


if __name__ == "__main__":
    main()
