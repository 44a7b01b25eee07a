"""Paths and text files named by users and in models' files."""

from __future__ import annotations

from pathlib import Path

from ...errors import SourceError

MAX_BYTES = 256 << 20
"""A line for each of the Hub's models takes a third of it."""


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


def read_text_file(path: Path, what: str) -> str:
    """A file's text in UTF-8; a pipe is read too, up to the limit.

    Args:
        what: The file holds, for the message.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise SourceError(f"{path}: larger than {MAX_BYTES} bytes; is it {what}?")
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        raise SourceError(f"{path}: cannot be read as {what}: not text in UTF-8") from err
    except OSError as err:
        raise SourceError(f"{path}: cannot be read as {what}: {err.strerror}") from err
