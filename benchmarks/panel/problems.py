"""Data sets of arithmetic: sums that are right or wrong, and word problems by operation."""

from __future__ import annotations

from collections.abc import Iterator

from .written import rank, read_frames

SUMS = (
    "{a} plus {b} is {sum}.",
    "If you add {a} and {b}, you get {sum}.",
    "The sum of {a} and {b} equals {sum}.",
    "{sum} minus {b} leaves {a}.",
    "Taking {a} away from {sum} gives {b}.",
)
PROBLEMS = {
    "addition": (
        "{name} has {a} stamps and gets {b} more. How many does {name} have now?",
        "A bus carries {a} people and {b} get on. How many people ride the bus?",
        "In {city} it rained on {a} days in spring and on {b} in summer. How many days in all?",
    ),
    "subtraction": (
        "{name} had {sum} marbles and lost {b}. How many are left?",
        "Of {sum} seats in a hall in {city}, {a} are taken. How many are free?",
        "A rope of {sum} metres is shortened by {b} metres. How long is it now?",
    ),
    "multiplication": (
        "{name} packs {a} boxes with {b} eggs each. How many eggs are there?",
        "A cinema in {city} has {a} rows of {b} chairs. How many chairs are there?",
        "One ticket costs {a} euros. What do {b} tickets cost?",
    ),
    "division": (
        "{name} shares {product} sweets equally among {a} children. How many does each get?",
        "{product} bottles are put into crates of {b}. How many crates are filled?",
        "A coach to {city} takes {a} hours for {product} miles. How many miles is that an hour?",
    ),
}


def problem_sets() -> dict[str, dict[str, Iterator[str]]]:
    """Endless texts by data set and label."""
    sums = {"right": _sums(0), "wrong": _sums(1)}
    return {"sums": sums, "word-problems": {label: _problems(label) for label in PROBLEMS}}


def _sums(wrong: int) -> Iterator[str]:
    for i in range(10_000):
        a, b = 11 + rank("a", wrong, i) % 80, 3 + rank("b", wrong, i) % 60
        error = wrong * (rank("error", i) % 2 * 2 - 1) * (1 + rank("size", i) % 9)
        yield SUMS[i % len(SUMS)].format(a=a, b=b, sum=a + b + error)


def _problems(label: str) -> Iterator[str]:
    shared = next(iter(read_frames().values())).slots
    for i in range(10_000):
        a, b = 3 + rank("a", label, i) % 27, 2 + rank("b", label, i) % 18
        values = {slot: shared[slot][rank(slot, label, i) % 16] for slot in ("name", "city")}
        frames = PROBLEMS[label]
        text = frames[i % len(frames)].format(a=a, b=b, sum=a + b, product=a * b, **values)
        yield text
