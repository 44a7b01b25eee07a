"""The tables `studies`, `listings`, `attachments` and `base_signatures`: JSON documents about a
model and about a walk of the Hub, the published indexes that are searched beside the models, and by
what a base is recognised in other models' weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...errors import StoreError
from ..session import NOW, Session, replace_row


@dataclass(frozen=True, slots=True)
class StudyResults:
    """The results of studies of one model."""

    session: Session
    key: int

    def save(self, study: str, settings: Mapping[str, Any], results: Mapping[str, Any]) -> None:
        """Store a study's document in place of the last with the same settings; raises `StoreError`
        if the model was removed."""
        key = {"model": self.key, "study": study, "settings": json.dumps(settings, sort_keys=True)}

        def replace(session: Session) -> None:
            if not session.execute("SELECT 1 FROM models WHERE key = ?", [self.key]):
                raise StoreError("the model was removed or re-indexed during this call")
            row = key | {"results": json.dumps(results)}
            replace_row(session, "studies", row, [*key], at="made_at")

        self.session.write(replace)

    def load(self, study: str, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """The newest document of a study with these settings."""
        rows = self.session.execute(
            "SELECT results FROM studies WHERE model = ? AND study = ? AND settings = ? "
            "ORDER BY made_at DESC LIMIT 1",
            [self.key, study, json.dumps(settings, sort_keys=True)],
        )
        return json.loads(rows[0][0]) if rows else None


@dataclass(frozen=True, slots=True)
class StudyResult:
    """A stored study of one model.

    Attributes:
        settings: JSON; equal for studies whose numbers may be compared.
        made_at: Later ones are greater.
    """

    base: str
    model: str
    settings: str
    document: dict[str, Any]
    made_at: str


MAX_LISTING_AGE_HOURS = 24
"""A walk that goes on later lists the Hub again: models may have been added or changed."""


@dataclass(frozen=True, slots=True)
class Listings:
    """A walk of the Hub from one base, planned or unfinished: the children of each parent."""

    session: Session
    base: str

    def save(self, parent: str, models: list[dict[str, Any]]) -> None:
        """Store the children of `parent`, unless the catalog is only read."""
        row = {"base": self.base, "parent": parent, "models": json.dumps(models)}
        if not self.session.read_only:
            self.session.write(
                lambda s: replace_row(s, "listings", row, ("base", "parent"), at="listed_at")
            )

    def load(self, parent: str) -> list[dict[str, Any]] | None:
        """The children of `parent`, unless they were listed too long ago."""
        rows = self.session.execute(
            "SELECT models FROM listings WHERE base = ? AND parent = ? "
            f"AND listed_at > {NOW} - INTERVAL {MAX_LISTING_AGE_HOURS} HOUR",
            [self.base, parent],
        )
        return json.loads(rows[0][0]) if rows else None

    def clear(self) -> None:
        """Delete the walk once it is finished: the next one lists the Hub again."""
        self.session.write(lambda s: s.execute("DELETE FROM listings WHERE base = ?", [self.base]))


@dataclass(frozen=True, slots=True)
class Attachment:
    """An attached index.

    Attributes:
        source: A folder, an `https://` address or `hf://datasets/OWNER/NAME`.
        recipe: The recipe's id.
        index_id, serial: Of its manifest.
        manifest: The manifest's SHA-256.
        bytes: Of all its files.
    """

    name: str
    source: str
    base: str
    recipe: str
    index_id: str
    serial: int
    manifest: str
    models: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Attachments:
    """The attached indexes of a catalog."""

    session: Session

    def all(self) -> list[tuple[Attachment, str]]:
        """Every attached index and when it was attached or refreshed, by name."""
        rows = self.session.execute(
            "SELECT * REPLACE (strftime(attached_at, '%Y-%m-%dT%H:%M:%SZ') AS attached_at) "
            "FROM attachments ORDER BY name"
        )
        return [(Attachment(*columns), at) for *columns, at in rows]

    def save(self, attachment: Attachment) -> None:
        """Register an index in place of one of its name."""
        row = asdict(attachment)
        self.session.write(
            lambda s: replace_row(s, "attachments", row, ("name",), at="attached_at")
        )

    def delete(self, name: str) -> None:
        """Forget the index of a name."""
        self.session.write(lambda s: s.execute("DELETE FROM attachments WHERE name = ?", [name]))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSignature:
    """A row; `version`: of the form of the blobs; `facts` and `matrices`: JSON."""

    base: str
    version: int
    registered: bool
    source: str
    revision: str | None
    facts: str
    matrices: str
    runs: bytes
    invariants: bytes


@dataclass(frozen=True, slots=True)
class Signatures:
    """The signatures of a catalog's bases."""

    session: Session

    def all(self, base: str | None = None) -> list[StoredSignature]:
        """Every signature, by the base's name; or that of one base."""
        rows = self.session.rows(
            "SELECT * EXCLUDE (made_at) FROM base_signatures "
            "WHERE base = coalesce(?, base) ORDER BY base",
            [base],
        )
        return [StoredSignature(**row) for row in rows]

    def models(self) -> dict[str, int]:
        """How many models the catalog has of each base."""
        return dict(self.session.execute("SELECT base, count(*) FROM models GROUP BY base"))

    def save(self, signature: StoredSignature) -> None:
        """Store a signature in place of the base's last one."""
        self.session.write(lambda session: replace_signature(session, signature))


def replace_signature(session: Session, signature: StoredSignature) -> None:
    """The same within a transaction."""
    replace_row(session, "base_signatures", asdict(signature), ("base",), at="made_at")


RUN_WIDTH = {"F64": 4, "F32": 4, "F16": 2, "BF16": 2}
"""Bytes of an entry of a run, by the type that its tensor is stored in."""
