"""Standard output and standard error: any character, and readers that leave."""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
from contextlib import suppress


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
