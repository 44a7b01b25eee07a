"""What the catalog answers with: frozen rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..records import ModelRecord

_FIRST = ("status", "code", "reason", "dataset", "author", "run")
_LAST = ("bytes_read", "seconds", "indexed_at", "recipes")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """One model as the catalog knows it."""

    key: int
    record: ModelRecord
    status: str
    code: str | None
    reason: str | None
    bytes_read: int
    seconds: float
    indexed_at: str
    recipes: tuple[str, ...]

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def base(self) -> str:
        return self.record.base

    @property
    def dataset(self) -> str | None:
        return self.record.dataset

    @property
    def author(self) -> str | None:
        return self.record.author

    @property
    def run(self) -> str | None:
        return self.record.run

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """The keys of `to_json`."""
        record = (field.name for field in fields(ModelRecord) if field.name not in ("id", *_FIRST))
        return ("model", *_FIRST, *record, *_LAST)

    def to_json(self) -> dict[str, Any]:
        """The documented keys of `ls`, then everything else."""
        document: dict[str, Any] = {"model": self.id}
        for name in _FIRST:
            document[name] = getattr(self, name)
        for field in fields(self.record):
            if field.name != "id":
                document.setdefault(field.name, getattr(self.record, field.name))
        for name in _LAST:
            document[name] = getattr(self, name)
        return document


@dataclass(frozen=True, slots=True)
class Labelled:
    """What a model was trained on, by whom, in which run."""

    base: str
    dataset: str | None
    author: str | None
    run: str | None


@dataclass(frozen=True, slots=True)
class Stored:
    """An indexed model, as far as a search asks about it."""

    key: int
    id: str
    base: str
    kind: str
    dataset: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a second run needs to know of a model to leave it alone."""

    status: str
    code: str | None
    reason: str | None
    signature: str
    source: str
    bytes_total: int
    recipes: tuple[str, ...]

    @classmethod
    def of(cls, row: ModelRow) -> Known:
        """What of a model's row it needs."""
        return cls(
            status=row.status,
            code=row.code,
            reason=row.reason,
            signature=row.record.signature,
            source=row.record.source,
            bytes_total=row.record.bytes_total,
            recipes=row.recipes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A base and what is known of its shapes."""

    base: str
    revision: str | None
    architecture: str | None
    slots: Mapping[str, Any]
