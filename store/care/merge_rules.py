"""Rules on the rows of a model that two catalogs have: which values the merged catalog gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ...errors import REASONS
from ..tables.recipes import BaseRecord

Row = Mapping[str, Any]
"""A row of `models`, by column."""

_LABEL = ("dataset", "dataset_raw", "label_source")
_MAKER = ("author", "run")
_FACTS = ("base_raw", "revision", "content_sha256", "task", "license", "downloads", "created_at")
_TRUST = ("labels", "tags", "card", "model-index", "sentence", "name", None)
"""Where labels come from, the most trusted first."""

LABELS = (*_LABEL, *_MAKER)
"""Columns that do not depend on the weights."""

FILLED = (*LABELS, *_FACTS)
"""Columns that a model of the same weights may fill."""

_SHOWN: dict[str, tuple[str, ...]] = {
    "weights": ("kind", "revision", "signature", "content_sha256", "source", "indexed_at"),
    "labels": ("dataset", "label_source", "author", "run"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Values that differ between two catalogs; the target's are kept.

    Attributes:
        model: None where it is the base itself; the name of a data set.
        source: The catalog that was to be merged.
        kept: What the target says.
        other: What the source says.
    """

    base: str
    model: str | None
    about: Literal["weights", "labels", "base", "data set"]
    source: str
    kept: Mapping[str, Any]
    other: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def conflict_of(
    about: Literal["weights", "labels"], source: str, ours: Row, theirs: Row
) -> Conflict:
    """The two rows, as far as they matter for it."""
    return Conflict(
        base=ours["base"],
        model=ours["id"],
        about=about,
        source=source,
        kept={name: ours[name] for name in _SHOWN[about]},
        other={name: theirs[name] for name in _SHOWN[about]},
    )


def supersedes(theirs: Row, ours: Row) -> bool:
    """Whether their outcome is worth more than ours, of which at most one is indexed.

    Indexed before refused, what stays refused before what may pass, the later before the
    earlier: in whichever order catalogs are merged, one and the same is left.
    """
    return _worth(theirs) > _worth(ours)


def same_files(ours: Row, theirs: Row) -> bool | None:
    """Whether two indexed models have the same weights; None where the rows do not tell."""
    if ours["content_sha256"] and theirs["content_sha256"]:
        return bool(ours["content_sha256"] == theirs["content_sha256"])
    if ours["signature"] and ours["signature"] == theirs["signature"]:
        return True
    return None


def labelled(ours: Row, theirs: Row) -> dict[str, Any]:
    """Our labels, with what they lack from theirs: a label is taken with where it came from."""
    better = theirs if _trust(theirs) < _trust(ours) else ours
    is_open = not _says(ours) or ours["dataset"] == theirs["dataset"]
    labels = {name: (better if is_open else ours)[name] for name in _LABEL}
    return labels | {name: theirs[name] if ours[name] is None else ours[name] for name in _MAKER}


def filled(ours: Row, theirs: Row) -> dict[str, Any]:
    """Our row, with what it lacks from theirs; labels only, where one has no weights."""
    row = {**ours, **labelled(ours, theirs)}
    if ours["status"] == theirs["status"] == "indexed":
        row |= {name: theirs[name] for name in _FACTS if row[name] is None}
    return row


def labels_differ(ours: Row, theirs: Row) -> bool:
    """Whether both say something, and not the same."""
    if _says(ours) and _says(theirs) and ours["dataset"] != theirs["dataset"]:
        return True
    return any(
        None not in (ours[name], theirs[name]) and ours[name] != theirs[name] for name in _MAKER
    )


def joined_base(ours: BaseRecord, theirs: BaseRecord) -> tuple[BaseRecord, dict[str, Any]]:
    """What both know of a base, and what they contradict each other in: name → (ours, theirs)."""
    differ: dict[str, Any] = {}
    for name in ("revision", "architecture"):
        pair = (getattr(ours, name), getattr(theirs, name))
        if None not in pair and pair[0] != pair[1]:
            differ[name] = pair
    for slot in sorted(ours.shapes.keys() & theirs.shapes.keys()):
        if ours.shapes[slot] != theirs.shapes[slot]:
            differ[slot] = (list(ours.shapes[slot]), list(theirs.shapes[slot]))
    joined = BaseRecord(
        base=ours.base,
        revision=ours.revision or theirs.revision,
        architecture=ours.architecture or theirs.architecture,
        shapes=dict(sorted({**theirs.shapes, **ours.shapes}.items())),
        layout=tuple(sorted({*ours.layout, *theirs.layout})),
    )
    return joined, differ


def _worth(row: Row) -> tuple[bool, bool, str, str, str]:
    reason = REASONS.get(row["code"] or "")
    return (
        row["status"] == "indexed",
        reason is not None and not reason.transient,
        str(row["indexed_at"]),
        row["code"] or "",
        row["reason"] or "",
    )


def _says(row: Row) -> bool:
    """Whether anything is known of its dataset, be it that it is unknown."""
    return row["dataset"] is not None or row["label_source"] is not None


def _trust(row: Row) -> tuple[bool, int]:
    """Lower for what is to be believed first."""
    source = row["label_source"]
    return not _says(row), _TRUST.index(source) if source in _TRUST else len(_TRUST)
