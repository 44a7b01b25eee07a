"""Two hundred `kill -9` at random moments: is anything lost, double or wrong?

    python benchmarks/kills.py [--kills 200] [--cold 20] [--seed N]

Real commands over a family of tiny models are killed at moments spread evenly over the time that
an undisturbed run takes, so that every phase is hit. After each kill the catalog is opened and
compared, bit for bit, with what an undisturbed run records; everything that had been acknowledged
must be there once, whole, and found by search; then the same command goes on and must end as the
undisturbed run does. Most processes are forked from one that has everything imported; `--cold`
many are `python -m deltadex` from its first instruction, seen by a reader in another process.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from killing import (
    TASKS,
    Death,
    Nursery,
    Prepared,
    Task,
    kill_cold,
    kill_once,
    moments,
    prepare_family,
    undisturbed,
)

COLD = "index"
"""The task that is also killed as a cold process."""


def warm_kills(
    nursery: Nursery, prepared: Prepared, task: Task, n_kills: int, folder: Path, seed: int
) -> Iterator[Death]:
    """The deaths of one task's processes, each looked at."""
    expected = undisturbed(nursery, prepared, task, folder / "undisturbed")
    for number, share in enumerate(moments(n_kills, random.Random(f"{seed} {task.name}"))):
        yield kill_once(nursery, prepared, task, expected, folder / str(number), share)


def cold_kills(
    nursery: Nursery, prepared: Prepared, task: Task, n_kills: int, folder: Path, seed: int
) -> Iterator[Death]:
    """The same for `python -m deltadex`."""
    expected = undisturbed(nursery, prepared, task, folder / "undisturbed")
    db = prepared.begin(task, folder / "timed")
    start = time.monotonic()
    command = ["-m", "deltadex", *task.steps_in(db.parent)[0], "--db", str(db)]
    subprocess.run([sys.executable, *command], cwd=prepared.family, check=True, capture_output=True)
    seconds = time.monotonic() - start
    for number, share in enumerate(moments(n_kills, random.Random(f"{seed} cold"))):
        at = folder / str(number)
        yield kill_cold(nursery, prepared, task, expected, at, share, seconds)


def shared_out(n_kills: int, tasks: Sequence[Task]) -> dict[str, int]:
    """Kills for each task: as even as can be; of fewer kills than tasks the last ones get none."""
    each, more = divmod(n_kills, len(tasks))
    return {task.name: each + (place < more) for place, task in enumerate(tasks)}


def line(name: str, deaths: Sequence[Death]) -> str:
    """A row of the table."""
    counts = (
        len(deaths),
        sum(d.is_unfinished for d in deaths),
        sum(d.acknowledged for d in deaths),
        sum(len(d.findings.lost) for d in deaths),
        sum(len(d.findings.duplicates) for d in deaths),
        sum(len(d.findings.wrong) for d in deaths),
        sum(len(d.litter) for d in deaths),
    )
    return f"{name:<22}" + "".join(f"{count:>13}" for count in counts)


def show(deaths: Sequence[Death], rows: Sequence[str]) -> None:
    """Print the table, the phases and every finding."""
    titles = ("kills", "unfinished", "acknowledged", "lost", "duplicates", "wrong", "left files")
    print(f"\n{'command':<22}" + "".join(f"{title:>13}" for title in titles))
    for name in rows:
        print(line(name, [d for d in deaths if d.task == name]))
    print(line("all", deaths))
    phases = Counter(d.phase for d in deaths)
    print("\nkilled while: " + ", ".join(f"{p} {n}" for p, n in phases.most_common()))


def main() -> None:
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--cold", type=int, default=20, help="So many of them cold processes.")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    if options.cold > options.kills:
        parser.error(f"--cold {options.cold} is more than --kills {options.kills}")
    print(f"seed {options.seed}")
    deaths: list[Death] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder, nursery = Path(temporary), Nursery()
        shares = shared_out(options.kills - options.cold, TASKS)
        starts = {task.start for task in TASKS if task.start and shares[task.name]}
        prepared = prepare_family(folder / "prepared", nursery.do, starts)
        for task in (task for task in TASKS if shares[task.name]):
            at = folder / task.name.replace(" ", "-")
            some = warm_kills(nursery, prepared, task, shares[task.name], at, options.seed)
            deaths += told(some)
        if options.cold:
            (cold,) = (task for task in TASKS if task.name == COLD)
            some = cold_kills(nursery, prepared, cold, options.cold, folder / "cold", options.seed)
            deaths += told(some, "cold process")
    show(deaths, list(dict.fromkeys(d.task for d in deaths)))
    sys.exit(any(d.findings for d in deaths))


def told(deaths: Iterator[Death], name: str | None = None) -> Iterator[Death]:
    """The same, each told as it comes."""
    for death in deaths:
        told_as = death if name is None else death.named(name)
        print(f"{told_as.task}: at {told_as.share:.3f}, {told_as.phase}", end="")
        print(f": {told_as.findings}" if told_as.findings else "")
        yield told_as


if __name__ == "__main__":
    main()
