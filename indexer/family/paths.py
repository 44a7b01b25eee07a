"""Paths that strangers wrote: any text, also what no system takes for a path."""

from __future__ import annotations

from pathlib import Path


def resolved(text: str | Path) -> Path | None:
    """The absolute path that a text means; None where it can mean none."""
    try:
        return Path(text).expanduser().resolve()
    # NUL and surrogates; an unknown user's home, a loop of links; too long a name
    except (ValueError, RuntimeError, OSError):
        return None


def folder_at(text: str | Path) -> Path | None:
    """The folder that a text means, as it was written; None where there is none."""
    try:
        path = Path(text).expanduser()
        return path if path.is_dir() else None
    except (ValueError, RuntimeError, OSError):
        return None


def storable(name: str) -> str:
    """The name as Unicode text: what is none in a file's name is spelled out (`\\udce9`)."""
    return name.encode("utf-8", "backslashreplace").decode()
