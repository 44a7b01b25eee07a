"""Text files that a user names: lists of models, labels."""

from __future__ import annotations

from pathlib import Path

from ...errors import SourceError

MAX_BYTES = 256 << 20
"""A line for each of the Hub's models takes a third of it."""


def read_text_file(path: Path, what: str) -> str:
    """A file's text in UTF-8; a pipe is read too, but not for ever.

    Args:
        what: The file holds, for the message.

    Raises:
        SourceError: it cannot be read, or is larger than `MAX_BYTES`.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise SourceError(f"{path}: larger than {MAX_BYTES} bytes; is it {what}?")
        return content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as err:
        raise SourceError(f"{path}: cannot be read as {what}: {err}") from err
