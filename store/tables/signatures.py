"""The table `base_signatures`: by what a base is recognised in other models' weights."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields

from ..session import NOW, Session


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


_COLUMNS = ", ".join(column.name for column in fields(StoredSignature))


@dataclass(frozen=True, slots=True)
class Signatures:
    """The signatures of a catalog's bases."""

    session: Session

    def all(self) -> list[StoredSignature]:
        """Every signature, by the base's name."""
        rows = self.session.execute(f"SELECT {_COLUMNS} FROM base_signatures ORDER BY base")
        names = [column.name for column in fields(StoredSignature)]
        return [StoredSignature(**dict(zip(names, row, strict=True))) for row in rows]

    def save(self, signature: StoredSignature) -> None:
        """Store a signature in place of the base's last one."""
        values = astuple(signature)

        def replace(session: Session) -> None:
            session.execute("DELETE FROM base_signatures WHERE base = ?", [signature.base])
            session.execute(
                f"INSERT INTO base_signatures ({_COLUMNS}, made_at) "
                f"VALUES ({', '.join('?' * len(values))}, {NOW})",
                [*values],
            )

        self.session.write(replace)
