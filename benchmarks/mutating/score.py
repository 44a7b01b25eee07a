"""What became of the mutants, as a table with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .mutants import Mutant

Z = 1.959964
"""Of a normal deviate, for 95 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A mutant's fate.

    Attributes:
        fate: "killed", "timeout", "survived", or "unreached" if no test runs its line.
        killer: The first test that failed.
        tests: How many tests were run at most.
    """

    folder: str
    mutant: Mutant
    fate: str
    killer: str
    tests: int
    seconds: float

    @property
    def is_killed(self) -> bool:
        """Whether a test fails or hangs: a hanging test does not pass."""
        return self.fate in ("killed", "timeout")


def interval(killed: int, mutants: int) -> tuple[float, float]:
    """Return a 95 % interval of a share: Wilson 1927, JASA 22, 209-212."""
    share, z_sq = killed / mutants, Z**2
    middle = (share + z_sq / (2 * mutants)) / (1 + z_sq / mutants)
    spread = math.sqrt(share * (1 - share) / mutants + z_sq / (4 * mutants**2))
    half = Z * spread / (1 + z_sq / mutants)
    return middle - half, middle + half


def table(verdicts: Sequence[Verdict], places: Mapping[str, int]) -> str:
    """Return a row a folder: the mutants there are, those tried, and what became of them.

    The last row weighs folders by the mutants there are; its interval is the stratified one,
    Cochran 1977, Sampling Techniques, eq. 5.7.
    """
    rows = [
        "| folder | possible | tried | killed | of them hung | survived | score | 95 % |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    by_folder = {
        folder: [verdict for verdict in verdicts if verdict.folder == folder] for folder in places
    }
    tried = {folder: own for folder, own in by_folder.items() if own}
    whole, mean, variance = sum(places[folder] for folder in tried), 0.0, 0.0
    for folder, own in tried.items():
        possible = places[folder]
        killed = sum(verdict.is_killed for verdict in own)
        low, high = interval(killed, len(own))
        rows.append(_row(folder, possible, own, killed / len(own), low, high))
        # Agresti & Coull's estimate: no folder is without variance.
        share, weight = (killed + 2) / (len(own) + 4), possible / whole
        mean += weight * killed / len(own)
        variance += weight**2 * share * (1 - share) / len(own)
    half = Z * math.sqrt(variance)
    rows.append(_row("all, weighted", whole, verdicts, mean, mean - half, min(mean + half, 1.0)))
    return "\n".join(rows)


def _row(
    name: str, possible: int, own: Sequence[Verdict], share: float, low: float, high: float
) -> str:
    killed = sum(verdict.is_killed for verdict in own)
    hung = sum(verdict.fate == "timeout" for verdict in own)
    return (
        f"| {name} | {possible} | {len(own)} | {killed} | {hung} | {len(own) - killed} "
        f"| {share:.1%} | {low:.0%}–{high:.0%} |"
    )
