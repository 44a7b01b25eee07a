"""Plain text: a text in each line, or in each paragraph."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby

from .table import NumberedRow, Table
from .text_file import LONGEST_LINE, TextFile

COLUMN = "text"
MIN_LINES_OF_PARAGRAPHS = 2.0
"""Lines in a mean block between blank lines, from which on a block is one text."""

PARAGRAPHS = 3


def open_lines(file: TextFile) -> Table:
    """The table in a file of plain text.

    A text is a paragraph where at least `PARAGRAPHS` blocks of lines stand between blank lines and
    have `MIN_LINES_OF_PARAGRAPHS` lines on average, as in a book; otherwise it is a line. The lines
    of a paragraph are joined by spaces.

    Raises:
        DataError: an empty file, or what `TextFile.open` refuses.
    """
    head = file.head().replace("\r\n", "\n").replace("\r", "\n").strip()
    lines = [block.count("\n") + 1 for block in re.split(r"\n\s*\n", head)]
    has_paragraphs = len(lines) >= PARAGRAPHS and sum(lines) / len(lines) >= MIN_LINES_OF_PARAGRAPHS

    def rows(columns: Collection[str]) -> Iterator[NumberedRow]:
        numbered = enumerate(file.lines(), start=1)
        if not has_paragraphs:
            yield from (_joined([line]) for line in numbered)
            return
        for is_text, block in groupby(
            numbered, lambda line: line[1] is None or not line[1].isspace()
        ):
            if is_text:
                yield _joined(block)

    unit = "paragraph" if has_paragraphs else "line"
    return Table(path=file.path, columns=(COLUMN,), rows=rows, notes=(f"a text in each {unit}",))


def _joined(lines: Iterable[tuple[int, str | None]]) -> NumberedRow:
    parts: list[str] = []
    characters = last = 0
    for number, line in lines:
        last = number
        characters += LONGEST_LINE + 1 if line is None else len(line)
        if characters <= LONGEST_LINE and line is not None:
            parts.append(line.strip())
    if characters > LONGEST_LINE:
        return last, f"more than {LONGEST_LINE:,} characters"
    return last, {COLUMN: " ".join(parts)}
