"""Plain text: a text in each line, or in each paragraph."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from ...errors import DataError
from ...text_files.text_stream import LONGEST_LINE, open_text
from .table import NumberedRow

HEAD_CHARACTERS = 1 << 20
COLUMN = "text"
MIN_LINES_OF_PARAGRAPHS = 2.0
"""Lines in a mean block between blank lines, from which on a block is one text."""

PARAGRAPHS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LineTable:
    """A file of texts.

    Attributes:
        has_paragraphs: Whether blank lines separate the texts, whose lines are joined by spaces.
    """

    path: Path
    encoding: str
    has_paragraphs: bool
    notes: tuple[str, ...]
    columns: tuple[str, ...] = (COLUMN,)
    unit: str = "line"
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.path.name

    def rows(self, columns: Collection[str]) -> Iterator[NumberedRow]:
        """The texts. Peak: one of at most `LONGEST_LINE` characters."""
        with open_text(self.path, self.encoding) as stream:
            lines = enumerate(stream.lines(), start=1)
            yield from _paragraphs(lines) if self.has_paragraphs else _texts(lines)


def open_lines(path: Path, encoding: str) -> LineTable:
    """The table in a file of plain text.

    A text is a paragraph where at least `PARAGRAPHS` blocks of lines stand between blank lines and
    have `MIN_LINES_OF_PARAGRAPHS` lines on average, as in a book; otherwise it is a line.

    Raises:
        DataError: an empty file, or what `open_text` refuses.
    """
    with open_text(path, encoding) as stream:
        head = stream.characters.read(HEAD_CHARACTERS)
        used = stream.encoding
    if not head.strip():
        raise DataError(f"{path}: the file is empty")
    blocks = re.split(r"\n\s*\n", head.replace("\r\n", "\n").replace("\r", "\n").strip())
    lines = [block.count("\n") + 1 for block in blocks]
    has_paragraphs = len(lines) >= PARAGRAPHS and (
        sum(lines) / len(lines) >= MIN_LINES_OF_PARAGRAPHS
    )
    unit = "paragraph" if has_paragraphs else "line"
    return LineTable(
        path=path,
        encoding=used,
        has_paragraphs=has_paragraphs,
        notes=(f"a text in each {unit}",),
    )


def _texts(lines: Iterator[tuple[int, str | None]]) -> Iterator[NumberedRow]:
    for number, line in lines:
        if line is None:
            yield number, f"more than {LONGEST_LINE:,} characters"
        else:
            yield number, {COLUMN: line}


def _paragraphs(lines: Iterator[tuple[int, str | None]]) -> Iterator[NumberedRow]:
    for is_text, block in groupby(lines, key=lambda line: line[1] is None or not line[1].isspace()):
        if is_text:
            yield _joined(block)


def _joined(block: Iterator[tuple[int, str | None]]) -> NumberedRow:
    parts: list[str] = []
    characters = last = 0
    for number, line in block:
        last = number
        characters += LONGEST_LINE + 1 if line is None else len(line)
        if characters <= LONGEST_LINE and line is not None:
            parts.append(line.strip())
    if characters > LONGEST_LINE:
        return last, f"more than {LONGEST_LINE:,} characters"
    return last, {COLUMN: " ".join(parts)}
