"""The table `attachments`: published indexes that are searched beside the models."""

from __future__ import annotations

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


def select_attachments(session: Session) -> list[tuple[Attachment, str]]:
    """Every attached index and when it was attached or refreshed, by name."""
    rows = session.execute(
        f"SELECT {_COLUMNS}, strftime(attached_at, '%Y-%m-%dT%H:%M:%SZ') FROM attachments "
        "ORDER BY name"
    )
    names = _COLUMNS.split(", ")
    return [(Attachment(**dict(zip(names, row, strict=False))), row[-1]) for row in rows]


def replace_attachment(session: Session, attachment: Attachment) -> None:
    """Register an index in place of one of its name."""
    delete_attachment(session, attachment.name)
    marks = ", ".join("?" for _ in astuple(attachment))
    session.execute(
        f"INSERT INTO attachments ({_COLUMNS}, attached_at) VALUES ({marks}, {NOW})",
        list(astuple(attachment)),
    )


def delete_attachment(session: Session, name: str) -> None:
    """Forget the index of a name."""
    session.execute("DELETE FROM attachments WHERE name = ?", [name])
