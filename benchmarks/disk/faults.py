"""One call of a run fails; then the same run again, undisturbed."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from killing import PREPARE, Contents, Nursery, Prepared, Told, check, read_contents, step_adding

from .child import Place
from .library import Fault
from .look import look
from .record import Call, Kind
from .run import COPY, INDEX, REMOVED, Recorded, run
from .simulator import reported

Steps = Sequence[Sequence[str]]

SMALL: Steps = (INDEX, ("rm", REMOVED), ("backup", "{folder}/copy.duckdb"))
STEPS: Steps = (
    INDEX,
    step_adding(4),
    (PREPARE,),
    ("find-similar", REMOVED),
    ("rm", REMOVED),
    (PREPARE,),
    ("backup", "{folder}/copy.duckdb"),
)
ERRORS: Mapping[str, tuple[int, bool]] = {
    "EIO": (errno.EIO, False),
    "ENOSPC": (errno.ENOSPC, False),
    "ENOSPC from there on": (errno.ENOSPC, True),
}
"""Which error a call gives, and whether all later calls that take space fail too."""

BROKEN = ("Traceback", "a defect in deltadex", "INTERNAL Error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """The run without a fault: its calls, what it leaves, and every model that was ever there."""

    calls: Sequence[Call]
    after: Contents
    ever: Contents


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What became of a run with a fault.

    Attributes:
        failed: The call that failed; None if the run had ended before.
        refused: Commands that ended with an error.
        wrong: What should not be.
    """

    failed: Call | None
    refused: int = 0
    wrong: list[str] = field(default_factory=list)


def whole_run(nursery: Nursery, prepared: Prepared, steps: Steps, folder: Path) -> Whole:
    """The run without a fault.

    Raises:
        RuntimeError: it fails.
    """
    done = run(nursery, prepared, steps, Place(folder / "whole"))
    kept = [step for step in steps if step[0] in ("index", "add")]
    ever = run(nursery, prepared, kept, Place(folder / "ever"))
    if done.code or ever.code:
        raise RuntimeError(f"the undisturbed run failed:\n{done.said}{ever.said}")
    return Whole(
        calls=done.calls,
        after=read_contents(done.place.db),
        ever=read_contents(ever.place.db),
    )


def n_calls(whole: Whole) -> int:
    """Calls that may fail."""
    return sum(1 for call in whole.calls if call.kind != Kind.MARK)


def run_with(
    nursery: Nursery, prepared: Prepared, steps: Steps, whole: Whole, fault: Fault, folder: Path
) -> Outcome:
    """Do the steps with a fault, look, do them again without it, look."""
    place = Place(folder)
    shutil.rmtree(folder, ignore_errors=True)
    disturbed = run(nursery, prepared, steps, place, fault=fault)
    outcome = Outcome(failed=next((call for call in disturbed.calls if call.error), None))
    _judge_messages(disturbed, steps, outcome)
    verdict = look(place, reported(disturbed.calls), whole.ever, steps)
    outcome.wrong += [*verdict.refused, *verdict.lost, *verdict.half, *verdict.wrong]
    again = [(*step, "--force") if step[0] == "backup" else step for step in steps]
    continued = run(nursery, prepared, again, place)
    if continued.code:
        outcome.wrong.append(f"the second run fails: {continued.said.strip().splitlines()[-1]}")
        return outcome
    ids = whole.after.ids
    for db in (place.db, place.db.with_name(COPY)):
        found = check(db, whole.after, there=ids, may_be=ids, searched=db == place.db)
        outcome.wrong += [f"second run: {line}" for line in (*found.lost, *found.wrong)]
    outcome.wrong += [f"left: {path.name}" for path in place.disk.rglob("*.partial*")]
    return outcome


def _judge_messages(disturbed: Recorded, steps: Steps, outcome: Outcome) -> None:
    """A command that fails says why in one line, and ends with a code of its own."""
    done, start = Told.of(reported(disturbed.calls)).done, 0
    text = disturbed.said.encode()
    for number, step in enumerate(steps):
        if number not in done:
            outcome.wrong.append(f"{step[0]} ended the process: {disturbed.said[-300:]}")
            return
        code, end = done[number]
        said = text[start:end].decode()
        start = end
        errors = [line for line in said.splitlines() if line.startswith("Error: ")]
        if any(word in said for word in BROKEN):
            outcome.wrong.append(f"{step[0]}: {said[-300:]}")
        elif code:
            outcome.refused += 1
            if len(errors) != 1 or code not in (1, 2, 3):
                outcome.wrong.append(f"{step[0]} (exit {code}): {said[-300:]}")
