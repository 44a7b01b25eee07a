"""Tables as files: CSV, Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ...errors import RequestError
from ...options import Place
from ...results import Section, Table
from ...store import write_user_file
from .text import csv_text

Line = Sequence[object]


def save_table(table: Table, path: str | Path) -> Path:
    """Write what a table shows, and into .csv all columns; the ending chooses .csv, .md or .tex.

    Raises:
        RequestError: another ending.
        StoreFull: the file cannot be written.
    """
    everything = Path(path).suffix.lower() == ".csv"
    return save_sections(table.sections(everything=everything), Path(path))


class SavedTable(Table):
    """A table that writes itself into a file."""

    def save(self, path: str | Path) -> Path:
        """Write the table; the ending chooses .csv, .tex or .md.

        Raises:
            RequestError: another ending.
            StoreFull: the file cannot be written.
        """
        return save_table(self, path)


def save_sections(sections: Iterable[Section], target: Path) -> Path:
    """Write tables one after the other, each below its title; raises as `save_table`."""
    check_table_ending(target)
    as_text, comment = _FORMS[target.suffix.lower()]
    texts = []
    for section in sections:
        columns = [str(column) for column in section.columns]
        title = f"{comment} {' '.join(section.title.split())}\n" if section.title else ""
        if section.rows or not title:
            texts.append(title + as_text(columns, section.rows))
    write_user_file(target, "\n".join(texts).encode("utf-8", "replace"))
    return target


def check_ending(path: str | Path, check: Callable[[Path], None]) -> None:
    """Raises `RequestError` for a file name without the ending of a table or a picture.

    Args:
        check: Raises `RequestError` for one that no picture can have.
    """
    if not is_table_file(path):
        try:
            check(Path(path))
        except RequestError as err:
            raise RequestError(f"{err}; a table's in one of {', '.join(_FORMS)}") from err


def check_picture_ending(path: Place) -> None:
    """Raises `RequestError` for a file name of no table, and no picture of a study."""
    from ... import figures

    check_ending(path, figures.check_ending)


def is_table_file(path: str | Path) -> bool:
    """Whether a file's name has the ending of a table."""
    return Path(path).suffix.lower() in _FORMS


def check_table_ending(path: str | Path) -> None:
    """Raises `RequestError` for a file name without the ending of a table."""
    if not is_table_file(path):
        raise RequestError(f"{path}: a table's name ends in one of: {', '.join(_FORMS)}")


def _markdown(columns: Sequence[str], lines: Sequence[Line]) -> str:
    rule = ["---:" if is_number else "---" for is_number in _numbers(columns, lines)]
    rows = [[_cell(value, _escape_markdown) for value in line] for line in lines]
    heads = [_cell(column, _escape_markdown) for column in columns]
    return "".join(f"| {' | '.join(row)} |\n" for row in (heads, rule, *rows))


def _latex(columns: Sequence[str], lines: Sequence[Line]) -> str:
    """A `tabular` that needs no package."""
    kinds = "".join("r" if is_number else "l" for is_number in _numbers(columns, lines))
    head, *rows = (
        " & ".join(_cell(value, _escape_latex) for value in line) + r" \\"
        for line in (columns, *lines)
    )
    body = "\n".join([rf"\begin{{tabular}}{{{kinds}}}", r"\hline", head, r"\hline", *rows])
    return body + "\n\\hline\n\\end{tabular}\n"


def _numbers(columns: Sequence[str], lines: Sequence[Line]) -> list[bool]:
    """Which columns hold numbers, or nothing."""
    return [
        any(line[place] is not None for line in lines)
        and all(isinstance(line[place], int | float | None) for line in lines)
        for place in range(len(columns))
    ]


_FORMS: Mapping[str, tuple[Callable[[Sequence[str], Sequence[Line]], str], str]] = {
    ".csv": (csv_text, "#"),
    ".tex": (_latex, "%"),
    ".md": (_markdown, "###"),
}
"""By ending what writes a table, and what a title begins with."""


def _cell(value: object, escape: Callable[[str], str]) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}" if value == 0 or abs(value) >= 5e-4 else f"{value:.1e}"
    if isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    return escape("".join(c if c.isprintable() else "?" for c in str(value)))


def _escape_markdown(text: str) -> str:
    """What Markdown may read as markup, with a backslash before it."""
    return re.sub(r"([\\`*_{}\[\]<>&|~$#:@^])", r"\\\1", text)


_LATEX = {
    **{character: rf"\{character}" for character in "#$%&_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    # after a line break they would be its option and its star
    "[": "{[}",
    "*": "{*}",
}


def _escape_latex(text: str) -> str:
    escaped = "".join(_LATEX.get(character, character) for character in text)
    return escaped.replace("--", "-{}-").replace("--", "-{}-")  # no dashes of hyphens
