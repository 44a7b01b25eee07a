"""Tables as text: which character separates the columns, decided by the header alone."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Sequence

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "pipes"}
"""By character, what a message calls it; tried in this order."""

LONGEST_FIELD = 1 << 30


def choose_delimiter(header: str, columns: Collection[str], own: str) -> str:
    """The character under which a header has one of these columns.

    `own`, the one that the file's ending stands for, is tried first; where the columns are under
    none, the answer is the one that makes most columns of the header, `own` among equals.
    """
    tried = dict.fromkeys((own, *DELIMITERS))
    for delimiter in tried:
        if set(columns) & set(column_names(header, delimiter)):
            return delimiter
    return max(tried, key=lambda delimiter: len(column_names(header, delimiter)))


def column_names(header: str, delimiter: str) -> list[str]:
    """The names in a header, in lower case; all of it is one name where its quotes are broken."""
    try:
        fields = next(csv.reader([header], delimiter=delimiter), [])
    except csv.Error:
        fields = [header]
    return [name.strip().lower() for name in fields]


def split_rows(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    """The fields of each row; where a quote is never closed, quotes are plain characters."""
    csv.field_size_limit(LONGEST_FIELD)
    try:
        return list(csv.reader(io.StringIO("\n".join(lines)), delimiter=delimiter, strict=True))
    except csv.Error:
        return list(csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE))


def decoded_lines(data: bytes) -> list[str]:
    """The lines of a file; bytes that are not UTF-8 become surrogates."""
    encoded = data.removeprefix(b"\xef\xbb\xbf").splitlines()
    return [line.decode("utf-8", "surrogateescape") for line in encoded]
