"""Results of a study that is not finished, in a file, so that the same study continues there."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from .subset_predictions import Make, SubsetResult

log = logging.getLogger(__name__)

FORGOTTEN_S = 30 * 24 * 3600.0
"""Seconds after which a journal that nobody continued is removed."""

Key = tuple[str, str]


@dataclass(slots=True)
class Journal:
    """A `Keep` that writes every result to a file of JSON lines as soon as it is made.

    Attributes:
        path: None where nothing can be written; then nothing is kept.
        known: What earlier runs left.
    """

    path: Path | None
    known: dict[Key, SubsetResult] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path, settings: Mapping[str, Any]) -> Journal:
        """The journal in a folder of whatever these settings decide, with what it holds.

        A line that an interruption cut is left out. Forgotten journals of the folder are removed.
        """
        text = json.dumps(settings, sort_keys=True)
        path = folder / f"ablation-{sha256(text.encode()).hexdigest()[:16]}.jsonl"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _remove_forgotten(folder)
            lines = path.read_bytes().splitlines() if path.exists() else []
        except OSError as err:
            log.warning("%s: progress cannot be kept: %s", folder, err.strerror)
            return cls(None)
        return cls(path, dict(filter(None, map(_read, lines))))

    def __call__(self, measure: str, subset: str, make: Make) -> SubsetResult:
        """The result that is known, or the one that is made now and then kept."""
        key = (measure, subset)
        if key not in self.known:
            self.known[key] = make()
            self._append(key, self.known[key])
        return self.known[key]

    def remove(self) -> None:
        """Forget everything: the study is finished."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _append(self, key: Key, result: SubsetResult) -> None:
        if self.path is None:
            return
        line = {
            "measure": key[0],
            "subset": key[1],
            "learning_rate": result.learning_rate,
            "predicted": result.predicted.tolist(),
        }
        try:
            with self.path.open("a", encoding="utf-8") as file:
                # the line before may have been cut
                file.write("\n" + json.dumps(line) + "\n")
        except OSError as err:
            log.warning("%s: progress is not kept any more: %s", self.path, err.strerror)
            self.path = None


def _read(line: bytes) -> tuple[Key, SubsetResult] | None:
    """One line's result; None for an empty or cut line."""
    try:
        entry = json.loads(line)
        predicted = np.array(entry["predicted"], dtype=np.int64)
        if predicted.ndim != 2:
            return None
        return (entry["measure"], entry["subset"]), SubsetResult(predicted, entry["learning_rate"])
    except (ValueError, KeyError, TypeError):
        return None


def _remove_forgotten(folder: Path) -> None:
    for path in folder.glob("ablation-*.jsonl"):
        if time.time() - path.stat().st_mtime > FORGOTTEN_S:
            path.unlink(missing_ok=True)
