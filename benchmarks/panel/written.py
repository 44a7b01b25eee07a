"""Data sets from the frames in `written.txt`: sentences with slots, under labels."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

FRAMES = Path(__file__).with_name("written.txt")
SLOT = re.compile(r"\{(\w+)\}")
TRIES = 60


def rank(*parts: object) -> int:
    """A number that depends on these alone, to draw by."""
    text = "\0".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


@dataclass(slots=True)
class FrameSet:
    """The frames of one data set by label, and its values for slots."""

    slots: dict[str, Sequence[str]]
    frames: dict[str, list[str]] = field(default_factory=dict)

    def texts(self, name: str, label: str) -> Iterator[str]:
        """Distinct texts of a label, each frame once in every round as long as it has new ones."""
        given = set()
        for attempt in range(TRIES):
            for frame in self.frames[label]:
                text = frame
                while slots := SLOT.findall(text):  # a value may have slots of its own
                    for slot in slots:
                        values = self.slots[slot]
                        value = values[rank(name, frame, slot, attempt) % len(values)]
                        text = text.replace(f"{{{slot}}}", value)
                text = text[0].upper() + text[1:] if frame[0] == "{" else text
                if text not in given:
                    given.add(text)
                    yield text


def read_frames(path: Path = FRAMES) -> Mapping[str, FrameSet]:
    """The data sets by name. `# name` starts one, `slot: a | b` names values, `[label]` a class;
    values before the first data set are for all."""
    shared: dict[str, Sequence[str]] = {}
    found: dict[str, FrameSet] = {}
    slots, frames = shared, list[str]()
    for line in filter(None, path.read_text("utf-8").splitlines()):
        if line.startswith("# "):
            current = found[line[2:]] = FrameSet(slots=dict(shared))
            slots = current.slots
        elif line.startswith("["):
            frames = current.frames[line.strip("[]")] = []
        elif " | " in line:
            slot, values = line.split(": ", 1)
            slots[slot] = values.split(" | ")
        else:
            frames.append(line)
    return found
