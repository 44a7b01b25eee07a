"""The table `attachments`: published indexes that are searched beside the models."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import astuple, dataclass

from ..session import NOW, Session

_COLUMNS = "name, source, base, recipe, index_id, serial, manifest, models, bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
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


class Attachments:
    """The attached indexes of a catalog."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def all(self) -> list[tuple[Attachment, str]]:
        """Every attached index and when it was attached or refreshed, by name."""
        rows = self._session.execute(
            f"SELECT {_COLUMNS}, strftime(attached_at, '%Y-%m-%dT%H:%M:%SZ') FROM attachments "
            "ORDER BY name"
        )
        names = _COLUMNS.split(", ")
        return [(Attachment(**dict(zip(names, row, strict=False))), row[-1]) for row in rows]

    def removed(self, index_id: str) -> frozenset[str]:
        """Hashes of the models that an index is known to have removed, in any of its copies."""
        rows = self._session.execute(
            "SELECT DISTINCT hash FROM attached_removals WHERE index_id = ?", [index_id]
        )
        return frozenset(hash for (hash,) in rows)

    def save(self, attachment: Attachment, removed: Collection[str]) -> None:
        """Register an index in place of one of its name, and remember what it has removed."""
        marks = ", ".join("?" for _ in astuple(attachment))

        def change(session: Session) -> None:
            _delete(session, attachment.name)
            session.execute(
                f"INSERT INTO attachments ({_COLUMNS}, attached_at) VALUES ({marks}, {NOW})",
                list(astuple(attachment)),
            )
            session.execute(
                "INSERT INTO attached_removals SELECT ?, hash FROM unnest(?::VARCHAR[]) t(hash) "
                "ANTI JOIN attached_removals r ON r.index_id = ? AND r.hash = t.hash",
                [attachment.index_id, sorted(removed), attachment.index_id],
            )

        self._session.write(change)

    def delete(self, name: str) -> None:
        """Forget the index of a name, but not what it has removed."""
        self._session.write(lambda session: _delete(session, name))


def _delete(session: Session, name: str) -> None:
    session.execute("DELETE FROM attachments WHERE name = ?", [name])
