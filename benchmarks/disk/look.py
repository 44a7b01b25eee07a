"""What a state of the disk holds for somebody who opens the catalog: all that was reported?"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from killing import Contents, Findings, Told, check

from deltadex.database import doctor
from deltadex.errors import DeltadexError
from deltadex.store import Catalog

from .child import Place
from .run import COPY, STEPS
from .simulator import Moment

DOCTORED = ("tables", "recipes", "views", "keys", "vectors", "linear", "rows")
"""Checks of the doctor that must find nothing; it may find derived files that want repair."""


@dataclass(slots=True)
class Verdict:
    """What is amiss in one state.

    Attributes:
        refused: Why the catalog, or its copy, does not open.
        lost: Models that were reported as recorded, and copies that were reported as written.
        half: Models that are there without a part, or parts without their model.
        wrong: Everything else: removed models that are back, answers that depend on derived files.
    """

    KINDS: ClassVar = ("refused", "lost", "half", "wrong")

    refused: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    half: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(self.counts.values())

    @property
    def counts(self) -> dict[str, int]:
        """By kind: 1 where something of it was found."""
        return {kind: int(bool(getattr(self, kind))) for kind in self.KINDS}

    def add(self, findings: Findings) -> None:
        self.lost += findings.lost
        for line in (*findings.wrong, *(f"{name} is there twice" for name in findings.duplicates)):
            if "does not open" in line:
                self.refused.append(line)
            elif "of no model" in line or "not what was recorded" in line:
                self.half.append(line)
            else:
                self.wrong.append(line)


def write_state(files: Mapping[str, bytes | None], place: Place) -> None:
    """Put a state of the disk into a new folder."""
    place.disk.mkdir(parents=True)
    for path in sorted(files):
        content, target = files[path], place.disk / path
        if content is None:
            target.mkdir()
        else:
            target.write_bytes(content)


def look(
    place: Place,
    reported: Sequence[str],
    whole: Contents,
    steps: Sequence[Sequence[str]] = STEPS,
) -> Verdict:
    """Open the catalog, compare everything, and open its copy; where there are derived files,
    compare searches with and without them.

    Args:
        reported: Lines of the trace until the end.
        whole: Every model that may be there, as an undisturbed run records it.
    """
    told, verdict = Told.of(reported), Verdict()
    removing = {step[1] for step in steps if step[0] == "rm"} - told.gone
    there = told.there - (removing if any(s[0] == "rm" for s in _begun(steps, told)) else set())
    copies = [number for number, step in enumerate(steps) if step[0] == "backup"]
    copied = [number for number in copies if told.done.get(number, (1,))[0] == 0]
    if not place.db.exists():
        verdict.lost += sorted(there)
        # the next command makes one
        try:
            with Catalog.open(place.db) as catalog:
                verdict.wrong += [f"{row.id} is from nowhere" for row in catalog.models()]
        except DeltadexError as err:
            verdict.refused.append(f"a new catalog: {err}")
    else:
        has_derived = any(place.db.with_name(place.db.name + ".index").glob("*"))
        verdict.add(check(place.db, whole, there=there, gone=told.gone, searched=has_derived))
    copy = place.db.with_name(COPY)
    if copy.exists():
        # what the last copy that is reported must have; a later one has it too
        begun = (step for step in steps[: max(copied, default=0)] if step[0] in ("index", "add"))
        least = _models_of(list(begun)) - told.gone if copied else set()
        verdict.add(check(copy, whole, there=least & there, searched=False))
    elif copied:
        verdict.lost.append(COPY)
    return verdict


def doctored(place: Place) -> list[str]:
    """What the doctor calls a problem of the catalog itself."""
    table = doctor(place.db, check=True)
    return [f"doctor: {row['detail']}" for row in table if _is_problem(row)]


def _is_problem(row: Mapping[str, str]) -> bool:
    return row["state"] == "problem" and row["check"] in DOCTORED


def _begun(steps: Sequence[Sequence[str]], told: Told) -> Sequence[Sequence[str]]:
    return steps[: max(told.done, default=-1) + 2]


def _models_of(steps: Sequence[Sequence[str]]) -> set[str]:
    """Ids of what steps record, where they name it."""
    return {word for step in steps for word in step if word.startswith("models/m")}


def place_of(folder: Path) -> Place:
    """A place that was not there before."""
    shutil.rmtree(folder, ignore_errors=True)
    return Place(folder)


def describe(moment: Moment) -> str:
    return (
        f"after {moment.calls} calls, {moment.model}, data {moment.data}, names {moment.names}, "
        f"seed {moment.seed}"
    )
