"""An evaluation by family and by dataset, as a file for papers: CSV, LaTeX or Markdown."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import RequestError
from ..store import write_user_file

COLUMNS = ("family", "dataset", "n", "purity", "low", "high", "p", "chance")
"""`low` and `high`: the 95 % interval of the purity."""

ALL = "all"
"""What the row of a whole family has in place of a dataset."""

Line = Sequence[object]


def check_table_ending(path: str | Path) -> None:
    """Refuse a file name whose ending is none of a table.

    Raises:
        RequestError: it lists the endings.
    """
    if Path(path).suffix.lower() not in _TEXT:
        raise RequestError(f"{path}: a table's name ends in one of: {', '.join(_TEXT)}")


def write_purities(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write the rows of an `EvaluationTable`; columns for recipe and way where they differ.

    Raises:
        RequestError: the ending is none of a table, or there is no such folder.
        StoreFull: the file cannot be written.
    """
    check_table_ending(path)
    varying = [key for key in ("recipe", "way") if len({row[key] for row in rows}) > 1]
    lines = [
        [*(row[key] for key in varying), row["base"], *line] for row in rows for line in _lines(row)
    ]
    text = _TEXT[path.suffix.lower()]((*varying, *COLUMNS), lines)
    write_user_file(path, text.encode("utf-8", "replace"))
    return path


def _lines(row: Mapping[str, Any]) -> list[list[object]]:
    """A family's row, then one for each of its datasets, without the family's name."""
    whole = {**row, "n": row["queries"], "purity": row["micro"]}
    groups = [(ALL, whole), *(row["by_dataset"] or {}).items()]
    return [
        [
            name,
            group["n"],
            group["purity"],
            *(group["ci95"] or (None, None)),
            group["p_value"],
            group["chance"],
        ]
        for name, group in groups
    ]


def _csv(columns: Sequence[str], lines: Sequence[Line]) -> str:
    """Numbers in full, nothing for what is unknown."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([columns, *lines])
    return text.getvalue()


def _markdown(columns: Sequence[str], lines: Sequence[Line]) -> str:
    """A table of GitHub's Markdown."""
    rule = ["---:" if column in COLUMNS[2:] else "---" for column in columns]
    rows = [[_cell(value, _escape_markdown) for value in line] for line in lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in (columns, rule, *rows))


def _latex(columns: Sequence[str], lines: Sequence[Line]) -> str:
    """A `tabular` that needs no package."""
    kinds = "".join("r" if column in COLUMNS[2:] else "l" for column in columns)
    head, *rows = (
        " & ".join(row) + r" \\"
        for row in (columns, *([_cell(value, _escape_latex) for value in line] for line in lines))
    )
    body = "\n".join([rf"\begin{{tabular}}{{{kinds}}}", r"\hline", head, r"\hline", *rows])
    return body + "\n\\hline\n\\end{tabular}\n"


_TEXT: Mapping[str, Callable[[Sequence[str], Sequence[Line]], str]] = {
    ".csv": _csv,
    ".tex": _latex,
    ".md": _markdown,
}


def _cell(value: object, escape: Callable[[str], str]) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}"
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
