"""Texts of a study: from a file or a folder, each with its group and id; broken rows named."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import StudyError

TEXT_COLUMNS = ("text", "sentence", "content")
GROUP_COLUMNS = ("group", "language", "lang")
ID_COLUMNS = ("id", "idx", "index")
FLORES_ENDINGS = (".dev", ".devtest")
NOT_UTF8 = re.compile("[\udc80-\udcff]")
ENDINGS = (".txt", ".csv", ".tsv", ".jsonl", *FLORES_ENDINGS)


@dataclass(frozen=True, slots=True)
class Text:
    """One text.

    Attributes:
        group: Its language and script (`eng_Latn`), or whatever groups it; "" if nothing does.
        id: Unique within the group; parallel texts of several groups share it.
    """

    text: str
    group: str
    id: str


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts in file order.

    Attributes:
        broken: A line for each row that could not be used: where, and why.
    """

    entries: tuple[Text, ...]
    broken: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Of the texts, their groups and ids."""
        body = json.dumps([[t.text, t.group, t.id] for t in self.entries])
        return hashlib.sha256(body.encode()).hexdigest()[:16]

    def drawn(self, most: int, seed: int) -> Texts:
        """At most so many of them, at random, in their order; of equal ones only the first."""
        first = list({text.text: text for text in reversed(self.entries)}.values())[::-1]
        if len(first) > most:
            places = np.random.default_rng(seed).choice(len(first), most, replace=False)
            first = [first[place] for place in sorted(places)]
        return Texts(tuple(first), self.broken)

    @property
    def groups(self) -> tuple[str, ...]:
        """In order of appearance."""
        return tuple(dict.fromkeys(t.group for t in self.entries))


def read_texts(path: Path) -> Texts:
    """The texts of a file, or of all text files of a folder.

    A `.txt` file, and one of another ending, has one text a line; `.csv` and `.tsv` have a
    header with a column `text` and perhaps `group` and `id`; `.jsonl` has the same keys. FLORES
    files are read as they come: `eng_Latn.devtest`, or rows with `iso_639_3` and `iso_15924`.

    Raises:
        StudyError: nothing to read, or no usable row.
    """
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in ENDINGS)
        if not files:
            raise StudyError(f"{path}: no text files in it ({', '.join(ENDINGS)})")
    elif path.exists():
        files = [path]
    else:
        raise StudyError(f"{path}: no such file")
    entries: list[Text] = []
    broken: list[str] = []
    seen: set[tuple[str, str]] = set()
    for file in files:
        for row, found in _rows(file):
            where = f"{file.name}:{row}"
            if isinstance(found, str):
                broken.append(f"{where}: {found}")
            elif (found.group, found.id) in seen:
                broken.append(f"{where}: id {found.id!r} stands twice")
            else:
                seen.add((found.group, found.id))
                entries.append(found)
    if not entries:
        first = f"; {broken[0]}" if broken else ""
        raise StudyError(f"{path}: no row with a text{first}")
    return Texts(tuple(entries), tuple(broken))


def _rows(file: Path) -> Iterator[tuple[int, Text | str]]:
    """(row from 1, its text or what is wrong with it)."""
    lines = _lines(file)
    if file.suffix in (".csv", ".tsv"):
        yield from _table(lines, file)
    elif file.suffix == ".jsonl":
        yield from _json_lines(lines)
    else:
        group = file.name.removesuffix(file.suffix) if file.suffix in FLORES_ENDINGS else ""
        for row, line in enumerate(lines, start=1):
            yield row, _entry({"text": line, "group": group}, row)


def _lines(file: Path) -> list[str]:
    """The file line by line; bytes that are not UTF-8 as surrogates."""
    try:
        data = file.read_bytes()
    except OSError as err:
        raise StudyError(f"{file}: {err.strerror}") from err
    lines = data.removeprefix(b"\xef\xbb\xbf").splitlines()
    return [line.decode("utf-8", "surrogateescape") for line in lines]


def _table(lines: Sequence[str], file: Path) -> Iterator[tuple[int, Text | str]]:
    delimiter = "\t" if file.suffix == ".tsv" else ","
    reader = csv.DictReader(io.StringIO("\n".join(lines)), delimiter=delimiter)
    names = [name.strip().lower() for name in reader.fieldnames or ()]
    if not set(TEXT_COLUMNS) & set(names):
        raise StudyError(
            f"{file}: no column 'text' in its header, only {', '.join(names) or 'nothing'}"
        )
    reader.fieldnames = names
    for row, values in enumerate(reader, start=1):
        if None in values or None in values.values():
            yield row, f"has {'more' if None in values else 'fewer'} fields than the header"
        else:
            yield row, _entry(values, row)


def _json_lines(lines: Sequence[str]) -> Iterator[tuple[int, Text | str]]:
    for row, line in enumerate(lines, start=1):
        try:
            values = json.loads(line)
        except ValueError:
            yield row, "is not JSON"
            continue
        if isinstance(values, dict):
            yield row, _entry({str(k).lower(): v for k, v in values.items()}, row)
        else:
            yield row, "is not an object with a text"


def _entry(values: Mapping[str, object], row: int) -> Text | str:
    """A row by its columns' names."""
    text = _first(values, TEXT_COLUMNS)
    if not text:
        return "no text"
    if NOT_UTF8.search(text):
        return "is not UTF-8"
    group = _first(values, GROUP_COLUMNS)
    if not group and "iso_639_3" in values:
        group = f"{values['iso_639_3']}_{values.get('iso_15924', '')}".rstrip("_")
    return Text(text, group, _first(values, ID_COLUMNS) or str(row))


def _first(values: Mapping[str, object], names: Iterable[str]) -> str:
    return next((str(values[n]).strip() for n in names if values.get(n) is not None), "")
