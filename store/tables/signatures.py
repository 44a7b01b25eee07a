"""The table `base_signatures`: by what a base is recognised in other models' weights."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from ..session import Session, replace_row


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
