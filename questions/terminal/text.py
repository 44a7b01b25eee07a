"""Text that is safe to print, and the streams that take it, whatever their readers do."""

from __future__ import annotations

import codecs
import csv
import io
import json
import logging
import os
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress


def duration(seconds: float) -> str:
    """90 → `2 min`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def plain(text: str) -> str:
    """The text without control and direction characters, which a terminal would obey."""
    return "".join("�" if _is_obeyed(c) else c for c in text)


def json_text(document: object) -> str:
    """The document as JSON, in which control and direction characters are escaped too."""
    text = json.dumps(document, ensure_ascii=False, indent=2, default=str)
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(json.dumps(c)[1:-1] if c != "\n" and _is_obeyed(c) else c for c in text)


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A header and one line per row, with cells as `cell_text` has them."""
    lines = io.StringIO(newline="")
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow([plain(column) for column in columns])
    writer.writerows([cell_text(value) for value in row] for row in rows)
    return lines.getvalue()


def cell_text(value: object) -> str:
    """A value in a cell of a table: nothing for None, lists as JSON."""
    if value is None:
        return ""
    if isinstance(value, list | tuple | dict):
        return plain(json.dumps(value, ensure_ascii=False, default=str))
    return plain(str(value))


class PlainFormatter(logging.Formatter):
    """Log lines that cannot control a terminal; a traceback keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return plain(super().formatMessage(record))


def _is_obeyed(character: str) -> bool:
    """Whether a terminal may act on it, or cannot be sent it."""
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def open_streams() -> None:
    """Open what the caller closed (`>&-`): no file of a catalog may get the number of a stream. An
    answer that goes to stdout is an error then, as on a full disk; stderr is dropped."""
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # takes the lowest number that is free
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def write_every_character() -> None:
    """Let both streams write a character that their encoding lacks as JSON has it (`\\u2026`)."""
    codecs.register_error("escaped", _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="escaped")


def _escaped(err: UnicodeError) -> tuple[str, int]:
    if not isinstance(err, UnicodeEncodeError):
        raise err
    return json.dumps(err.object[err.start : err.end])[1:-1], err.end


def write_no_more() -> None:
    """Drop what is still to be written: at its end, Python would complain that nobody reads it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with suppress(OSError):
                os.dup2(nowhere, stream.fileno())
