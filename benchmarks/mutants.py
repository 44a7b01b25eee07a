"""How many small changes of the source do the tests notice? Mutation testing of the core.

    python benchmarks/mutants.py [--mutants 400] [--folder NAME ...] [--seed 0] [--out FILE]
    python benchmarks/mutants.py --again FILE

A random sample of mutants (another operator, comparison, constant, condition or return value, an
argument less) of each folder, drawn in proportion to how many there are, at least MIN_MUTANTS. In
a copy of the tree, one mutant at a time, the tests of the folder that run the mutant's line are
run, quickest first, until one fails; tests that together take longer than `--seconds` of processor
time are left out. `--again` tries the survivors of an earlier run. Ctrl-C ends a run with the
table of what was tried: a random sample too, since mutants come in the order of the draw.
"""

from __future__ import annotations

import argparse
import pickle
import random
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mutating import FOLDERS, Mutant, Result, Tree, Trials, Verdict, table
from mutating.reach import Reach, TestsOfLines

ROOT = Path(__file__).resolve().parents[1]
MIN_MUTANTS = 20
LOADING_S = 60.0
UNREACHED = Result("unreached", "", 0.0)

Recorded = dict[tuple[str, ...], Mapping[str, Reach]]
"""What each test of a folder's tests reaches, by the tests."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The mutants of a folder that are tried.

    Attributes:
        possible: How many there are.
    """

    folder: str
    possible: int
    mutants: Sequence[Mutant]


def drawn(
    tree: Tree, names: Sequence[str], n_mutants: int, seed: int, only: str = ""
) -> list[Sample]:
    """Draw mutants from each folder, of those that contain a text as they are printed."""
    all_of: dict[str, list[Mutant]] = {}
    for name in names:
        modules = tree.modules(FOLDERS[name].modules)
        mutants = [m for module in modules for m in tree.mutants(module) if only in str(m)]
        if mutants:
            all_of[name] = mutants
    whole = sum(map(len, all_of.values()))
    samples = []
    for name, mutants in all_of.items():
        share = max(round(n_mutants * len(mutants) / whole), min(MIN_MUTANTS, n_mutants))
        # Of a larger sample with the same seed, a smaller one is the beginning.
        chosen = random.Random(f"{seed} {name}").sample(mutants, len(mutants))[:share]
        samples.append(Sample(name, len(mutants), chosen))
    return samples


def survivors(verdicts: Sequence[Verdict]) -> list[Sample]:
    """Return what survived, as samples."""
    of_folder = defaultdict(list)
    for verdict in verdicts:
        if not verdict.is_killed:
            of_folder[verdict.folder].append(verdict.mutant)
    return [Sample(name, len(mutants), mutants) for name, mutants in of_folder.items()]


def tried(
    tree: Tree, trials: Trials, samples: Sequence[Sample], max_tests_s: float, recorded: Recorded
) -> Iterator[Verdict]:
    """Yield the fate of each mutant; what tests reach is added to `recorded`."""
    for sample in samples:
        folder = FOLDERS[sample.folder]
        tests, modules = tuple(folder.tests), tree.modules(folder.modules)
        if tests not in recorded:
            sharing = [other for other in FOLDERS.values() if other.tests == folder.tests]
            watched = tree.modules(glob for other in sharing for glob in other.modules)
            recorded[tests] = trials.record(tests, watched)
        tests_of = TestsOfLines(recorded[tests], tree.path, modules)
        for mutant in sample.mutants:
            chosen = affordable(tests_of, tests_of.reaching(mutant), max_tests_s)
            result = UNREACHED
            if chosen:
                limit_s = LOADING_S + 5 * tests_of.seconds(chosen)
                result = trials.judge(mutant, chosen, limit_s)
            yield Verdict(
                folder=sample.folder,
                mutant=mutant,
                fate=result.fate,
                killer=result.killer,
                tests=len(chosen),
                seconds=result.seconds,
            )


def affordable(tests_of: TestsOfLines, tests: Sequence[str], max_s: float) -> list[str]:
    """Return the quickest tests that take so long together, at least one."""
    chosen: list[str] = []
    for test in tests:
        if chosen and tests_of.seconds([*chosen, test]) > max_s:
            break
        chosen.append(test)
    return chosen


def show(verdicts: Sequence[Verdict], samples: Sequence[Sample]) -> None:
    """Print the table and what survived."""
    print("\n" + table(verdicts, {sample.folder: sample.possible for sample in samples}))
    left = [verdict for verdict in verdicts if not verdict.is_killed]
    if left:
        print("\nsurvived:")
    for verdict in left:
        print(f"{verdict.mutant}  ({verdict.tests} tests)")


def show_idle(reaches: Mapping[str, Reach], verdicts: Sequence[Verdict]) -> None:
    """Print the slow tests that were the first to fail for no mutant."""
    kills = Counter(verdict.killer for verdict in verdicts)
    slow = [(reach.seconds, test) for test, reach in reaches.items() if reach.seconds > 1]
    for seconds, test in sorted(slow, reverse=True):
        if not kills[test]:
            print(f"no first kill, {seconds:.1f} s: {test}")


def main() -> None:
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    parser = argparse.ArgumentParser()
    parser.add_argument("--mutants", type=int, default=400, help="Of all folders together.")
    parser.add_argument("--folder", action="append", choices=FOLDERS, help="All by default.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="Of tests for a mutant, the quickest first."
    )
    parser.add_argument("--only", default="", help="Of mutants with this text: PATH:LINE, say.")
    parser.add_argument("--out", type=Path, help="A file for the verdicts.")
    parser.add_argument("--again", type=Path, help="Try what survived, of such a file.")
    parser.add_argument("--list", action="store_true", help="Only print the mutants.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        tree = Tree(ROOT, Path(temporary))
        trials = Trials(tree, Path(temporary))
        if options.again:
            samples = survivors(pickle.loads(options.again.read_bytes()))
        else:
            names = options.folder or list(FOLDERS)
            samples = drawn(tree, names, options.mutants, options.seed, options.only)
        if options.list:
            print(*(mutant for sample in samples for mutant in sample.mutants), sep="\n")
            return
        verdicts: list[Verdict] = []
        recorded: Recorded = {}
        with suppress(KeyboardInterrupt):
            for verdict in tried(tree, trials, samples, options.seconds, recorded):
                verdicts.append(verdict)
                print(f"{verdict.fate} {verdict.seconds:.1f} s {verdict.mutant} {verdict.killer}")
                if options.out:
                    options.out.write_bytes(pickle.dumps(verdicts))
    show(verdicts, samples)
    for reaches in recorded.values():
        show_idle(reaches, verdicts)


if __name__ == "__main__":
    main()
