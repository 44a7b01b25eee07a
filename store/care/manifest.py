"""What a backup was when it was written, in a file beside it: its models and its SHA-256."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from ..files import write_atomically


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A backup as it was written.

    Attributes:
        models: Models of every status.
        bytes: Size of the file.
        sha256: Of the file, in hexadecimal.
        commits: The catalog's commits until then: a copy that was written to has more.
        schema_version: A copy that a later deltadex has opened has a later one.
        made_at: UTC, in ISO 8601.
    """

    models: int
    bytes: int
    sha256: str
    commits: int
    schema_version: int
    made_at: str


def manifest_path(backup: Path) -> Path:
    """Where the manifest of a backup is."""
    return backup.with_name(backup.name + ".manifest.json")


def write_manifest(backup: Path, manifest: Manifest) -> None:
    """Write the manifest of a backup.

    Raises:
        StoreFull: the system refuses.
    """
    write_atomically(manifest_path(backup), json.dumps(asdict(manifest), indent=1).encode() + b"\n")


def read_manifest(backup: Path) -> Manifest | None:
    """The manifest of a file; None where there is none.

    Raises:
        ValueError: it is damaged.
    """
    try:
        document = json.loads(manifest_path(backup).read_bytes())
        return Manifest(
            models=int(document["models"]),
            bytes=int(document["bytes"]),
            sha256=str(document["sha256"]),
            commits=int(document["commits"]),
            schema_version=int(document["schema_version"]),
            made_at=str(document["made_at"]),
        )
    except FileNotFoundError:
        return None
    except (OSError, KeyError, TypeError) as err:
        raise ValueError(str(err)) from err
