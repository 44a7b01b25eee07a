"""Who holds the file now, and whether the note beside it tells the truth."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...sharing import join, note_path, read_note
from .finding import Finding


@dataclass(frozen=True, slots=True)
class Holding:
    """What the note beside a catalog said before the file was opened.

    Attributes:
        note: Its bytes; None without one.
        pid: Of the process that it names; None where it cannot be read, or is of another machine.
        answers: Whether that process lets others in.
    """

    note: bytes | None
    pid: int | None
    answers: bool

    @classmethod
    def of(cls, path: Path) -> Holding:
        """As of now."""
        body, note = _body(path), read_note(path)
        guest = join(path) if note is not None else None
        if guest is not None:
            guest.close()
        return cls(body, note.pid if note else None, guest is not None)

    def told(self, path: Path) -> Finding:
        """The finding, once the file was opened or could not be."""
        if self.answers:
            return Finding("holder", "ok", f"process {self.pid} holds it and lets others in")
        if self.note is None:
            return Finding("holder", "ok", "nobody has left word of holding it")
        of_whom = f"process {self.pid}" if self.pid else "another machine, or damaged"
        left = f"a note of {of_whom}, which does not answer"
        if _body(path) != self.note:
            return Finding("holder", "repaired", f"{left}: taken away")
        return Finding("holder", "problem", left, "`deltadex doctor` without --check removes it")


def _body(path: Path) -> bytes | None:
    try:
        return note_path(path).read_bytes()
    except OSError:
        return None
