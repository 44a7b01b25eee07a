"""The texts of a study, from a file or a folder, with their groups and ids; numbers over them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..arrays import Float64, Int64
from ..data.rows import Row, TextFile, errors_as, json_rows, open_named_csv
from ..errors import StudyError
from ..results import JsonRecord, agree, count

OfTokens = Int64[np.ndarray, " tokens"]
OfTexts = Float64[np.ndarray, " texts"]

TEXT_COLUMNS = ("text", "sentence", "content")
GROUP_COLUMNS = ("group", "language", "lang")
ID_COLUMNS = ("id", "idx", "index")
FLORES_ENDINGS = (".dev", ".devtest")
NOT_UNICODE = re.compile("[\ud800-\udfff]")
ENDINGS = (".txt", ".csv", ".tsv", ".jsonl", *FLORES_ENDINGS)


@dataclass(frozen=True, slots=True)
class Text:
    """One text; its `group` is a language and script (`eng_Latn`), another name, or "".

    Ids are unique within a group; parallel texts of several groups have the same id.
    """

    text: str
    group: str
    id: str


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts in file order, the place and reason of each row that could not be used, and what
    a reader may not expect of the files: another delimiter, a single text."""

    entries: tuple[Text, ...]
    broken: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        body = json.dumps([[t.text, t.group, t.id] for t in self.entries])
        return hashlib.sha256(body.encode()).hexdigest()[:16]

    def drawn(self, most: int, seed: int) -> Texts:
        """At most `most` texts, drawn at random, in their order; of equal texts only the first."""
        first = {text.text: text for text in reversed(self.entries)}
        texts = [text for text in self.entries if first[text.text] is text]
        if len(texts) > most:
            places = np.random.default_rng(seed).choice(len(texts), most, replace=False)
            texts = [texts[place] for place in sorted(places)]
        return Texts(tuple(texts), self.broken, self.notes)


def read_texts(path: Path) -> Texts:
    """The texts of a file, or of all text files of a folder.

    A `.txt` file, and a file with an unknown ending, has a text in each line. `.csv` and `.tsv`
    have a header with a column `text`, and optionally `group` and `id`; `.jsonl` has the same
    keys. FLORES files need no change: `eng_Latn.devtest`, or rows with `iso_639_3` and `iso_15924`.
    Columns may also be separated by semicolons, tabs or pipes; the header decides.

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
    notes: list[str] = []
    seen: set[tuple[str, str]] = set()
    for file in files:
        group = file.stem if len(files) > 1 or file.suffix in FLORES_ENDINGS else ""
        with errors_as(StudyError):
            rows, file_notes = _rows(file)
            notes += [f"{file.name}: {note}" for note in file_notes]
            for row, values in enumerate(rows, start=1):
                text = values if isinstance(values, str) else _entry(values, row, group)
                where = f"{file.name}:{row}"
                if isinstance(text, str):
                    broken.append(f"{where}: {text}")
                elif (text.group, text.id) in seen:
                    broken.append(f"{where}: id {text.id!r} stands twice")
                else:
                    seen.add((text.group, text.id))
                    entries.append(text)
    if not entries:
        first = f"; {broken[0]}" if broken else ""
        raise StudyError(f"{path}: no row with a text{first}")
    if path.is_dir() and len(files) == 1:
        notes.append(f"{path}: one text file in it, {files[0].name}; its name names no group")
    if len(entries) == 1:
        notes.append(f"{path}: one text only")
    copies = len(entries) - len({(entry.group, entry.text) for entry in entries})
    if copies:
        verb = agree(copies, "is a copy", "are copies")
        notes.append(
            f"{path}: {copies} of {count(len(entries), 'text')} {verb} of others; standard errors "
            "take texts for independent"
        )
    return Texts(tuple(entries), tuple(broken), tuple(notes))


def _rows(path: Path) -> tuple[Iterator[Row | str], Sequence[str]]:
    """The values of each row, or what is wrong with it, and notes about the file."""
    file = TextFile.read(path)
    if path.suffix in (".csv", ".tsv"):
        table = open_named_csv(file, TEXT_COLUMNS)
        return (_separated(row) for _, row in table.rows(table.columns)), table.notes
    if path.suffix == ".jsonl":
        return (_lowered(row) for _, row in json_rows(file)), ()
    return ({"text": line} if line else "is too long" for line in file.lines()), ()


def _separated(row: Row | str) -> Row | str:
    """A row with lines that end alike, so that a digest is the same on every system."""
    if isinstance(row, str):
        return "no text" if row == "empty" else f"has {row}"
    return {name: str(value).replace("\r\n", "\n") for name, value in row.items()}


def _lowered(row: Row | str) -> Row | str:
    if not isinstance(row, str):
        return {str(key).lower(): value for key, value in row.items()}
    other = {"empty": "not JSON", "not an object with columns": "not an object with a text"}
    return f"is {other.get(row, row)}"


def _entry(values: Row, row: int, group: str) -> Text | str:
    if any(not isinstance(values.get(name) or "", str) for name in TEXT_COLUMNS):
        return "its text is not a string"
    text = _first(values, TEXT_COLUMNS)
    if not text:
        return "no text"
    if NOT_UNICODE.search(text):
        return "is not UTF-8"
    named = _first(values, GROUP_COLUMNS)
    if not named and "iso_639_3" in values:
        named = f"{values['iso_639_3']}_{values.get('iso_15924', '')}".rstrip("_")
    return Text(text, named or group, _first(values, ID_COLUMNS) or str(row))


def _first(values: Row, names: Iterable[str]) -> str:
    return next((str(values[n]).strip() for n in names if values.get(n) is not None), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate(JsonRecord):
    """A ratio of sums over tokens, and its standard error over texts; None of a single text."""

    value: float
    standard_error: float | None


def per_token(values: np.ndarray, text: OfTokens) -> Estimate:
    counts = np.bincount(text).astype(np.float64)
    return ratio(np.bincount(text, weights=values.astype(np.float64)), counts)


def ratio(sums: OfTexts, sizes: OfTexts) -> Estimate:
    """Σ sums / Σ sizes over texts, with its linearised standard error (Cochran 1977, eq. 6.13).

    Texts are the sampled units, since the tokens of one text are not independent.
    """
    counted = sizes > 0
    sums, sizes = sums[counted], sizes[counted]
    value, n = float(sums.sum() / sizes.sum()), len(sizes)
    if n < 2:
        return Estimate(value=value, standard_error=None)
    spread = ((sums - value * sizes) ** 2).sum() * n / (n - 1)
    return Estimate(value=value, standard_error=float(np.sqrt(spread) / sizes.sum()))
