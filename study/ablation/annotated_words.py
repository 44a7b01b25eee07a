"""Words in texts with a label each: of a file, tags by a word's shape, pseudo-words' senses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...data.rows import Row, TextFile, errors_as, json_rows, open_named_csv
from ...errors import StudyError
from ..texts import NOT_UNICODE

TEXT_KEYS = ("text", "sentence")
WORDS_AND_SIGNS = re.compile(r"\w+|[^\w\s]+")
LETTERS = re.compile(r"[^\W\d_]+")
SHORTEST = 3
"""Letters of a word."""
FEWEST_TEXTS = 12
"""Texts that a word stands in: of so many, about ten are trained on."""
MOST_TEXTS = 40
"""Texts of each sense that are used."""
WIDESPREAD = 0.1
"""Words in more than this share of texts are left out: they are function words."""
MOST_WORDS = 40
"""Pseudo-words; those of the commonest words are made first."""
ALIKE = 3
"""Words that start with the same letters, so many, may be forms of one word: they are no pair."""


class AnnotatedWord(NamedTuple):
    """A word with a label, a sense or a tag; senses are compared within a lemma only.

    Attributes:
        text: The place of its text.
        origin: That of the text that it is from, where texts stand several times with changes; for
            the split.
        span: Its first character and the one behind its last.
    """

    text: int
    origin: int
    span: tuple[int, int]
    label: str
    lemma: str = ""


@dataclass(frozen=True, slots=True)
class AnnotatedWords:
    """Words with a label each, and the texts that they stand in, which the network reads; what is
    wrong with each row that could not be used; the digest of a file, if they are of one."""

    texts: tuple[str, ...]
    words: tuple[AnnotatedWord, ...]
    broken: tuple[str, ...] = ()
    digest: str = ""

    def drawn(self, most: int, seed: int) -> AnnotatedWords:
        """At most `most` words, drawn at random; where there are lemmas, whole lemmas."""
        if len(self.words) <= most:
            return self
        units = np.arange(len(self.words))
        if self.words[0].lemma:
            units = np.unique([word.lemma for word in self.words], return_inverse=True)[1]
        sizes = np.bincount(units)
        order = np.random.default_rng(seed).permutation(len(sizes))
        taken = order[np.cumsum(sizes[order]) <= most]
        words = [self.words[place] for place in np.flatnonzero(np.isin(units, taken)).tolist()]
        places = {text: place for place, text in enumerate(sorted({w.text for w in words}))}
        return replace(
            self,
            texts=tuple(self.texts[text] for text in places),
            words=tuple(word._replace(text=places[word.text]) for word in words),
        )


def read_senses(path: Path) -> AnnotatedWords:
    """Words in their senses: JSON lines, CSV or TSV with `text`, `lemma`, `sense`, and where.

    Columns may also be separated by semicolons, tabs or pipes; the header decides.
    Where is `start` and `end` (characters, from 0, `end` behind the last), or `word` (its place
    among the words between blanks, from 0). `sentence` is another name for `text`.

    Raises:
        StudyError: nothing to read, or no usable row.
    """
    texts: dict[str, int] = {}
    words: list[AnnotatedWord] = []
    broken = []
    with errors_as(StudyError):
        file = TextFile.read(path)
        if path.suffix.lower() in (".csv", ".tsv"):
            table = open_named_csv(file, TEXT_KEYS)
            read = list(table.rows(table.columns))
        else:
            read = list(json_rows(file))
    rows = (row for _, row in read if row != "empty")
    for number, row in enumerate(rows, start=1):
        word = _sense(row)
        if isinstance(word, str):
            broken.append(f"{path.name}:{number}: {word}")
        else:
            text, span, lemma, sense = word
            place = texts.setdefault(text, len(texts))
            words.append(AnnotatedWord(place, place, span, sense, lemma))
    if not words:
        raise StudyError(f"{path}: no row with a sense{f'; {broken[0]}' if broken else ''}")
    return AnnotatedWords(tuple(texts), tuple(words), tuple(broken), file.digest)


def read_tags(path: Path) -> AnnotatedWords:
    """Tagged words in CoNLL's columns: a word a line, its tag last, an empty line after each text.

    Of more than two columns the first and the last count. `-DOCSTART-` lines are left out.

    Raises:
        StudyError: nothing to read, or no line with two columns.
    """
    broken: list[str] = []
    sentences: list[list[tuple[str, str]]] = [[]]
    with errors_as(StudyError):
        file = TextFile.read(path)
        lines = [line or "" for line in file.lines()]
    for number, line in enumerate(lines, start=1):
        columns = line.split("\t") if "\t" in line else line.split()
        if not line.strip() or columns[0] == "-DOCSTART-":
            sentences.append([])
        elif len(columns) < 2 or not columns[0].strip() or not columns[-1].strip():
            broken.append(f"{path.name}:{number}: not a word and its tag")
        elif NOT_UNICODE.search(line):
            broken.append(f"{path.name}:{number}: is not UTF-8")
        else:
            sentences[-1].append((columns[0].strip(), columns[-1].strip()))
    sentences = [sentence for sentence in sentences if sentence]
    if not sentences:
        raise StudyError(f"{path}: no word with a tag{f'; {broken[0]}' if broken else ''}")
    # the same sentence twice must not be in two parts of the split
    origins: dict[tuple[tuple[str, str], ...], int] = {}
    words: list[AnnotatedWord] = []
    for place, sentence in enumerate(sentences):
        start, origin = 0, origins.setdefault(tuple(sentence), place)
        for word, tag in sentence:
            words.append(AnnotatedWord(place, origin, (start, start + len(word)), tag))
            start += len(word) + 1
    texts = tuple(" ".join(word for word, _ in sentence) for sentence in sentences)
    return AnnotatedWords(texts, tuple(words), tuple(broken), file.digest)


def word_shapes(texts: Sequence[str]) -> AnnotatedWords:
    """Every word and sign of the texts, tagged with its shape."""
    found = tuple(
        AnnotatedWord(place, place, match.span(), shape(match.group()))
        for place, text in enumerate(texts)
        for match in WORDS_AND_SIGNS.finditer(text)
    )
    if not found:
        raise StudyError("tagging: no word in the texts")
    return AnnotatedWords(tuple(texts), found)


def shape(word: str) -> str:
    """What a word looks like: `number`, `sign`, `upper`, `capital`, `lower`, or `other`."""
    if any(c.isdigit() for c in word):
        return "number"
    if not any(c.isalpha() for c in word):
        return "sign"
    if word.islower():
        return "lower"
    if word.isupper() and len(word) > 1:
        return "upper"
    return "capital" if word[0].isupper() else "other"


def _sense(row: Row | str) -> tuple[str, tuple[int, int], str, str] | str:
    """(text, span, lemma, sense) of a row, or what is wrong with it."""
    if isinstance(row, str):
        return "is not a row with a text"
    text = next((row[key] for key in TEXT_KEYS if isinstance(row.get(key), str)), None)
    if not isinstance(text, str) or not text.strip():
        return "no text"
    if NOT_UNICODE.search(text):
        return "is not UTF-8"
    lemma, sense = (str(row.get(key) or "").strip() for key in ("lemma", "sense"))
    if not lemma or not sense:
        return f"no {'sense' if lemma else 'lemma'}"
    try:
        if row.get("start") not in (None, ""):
            span = (int(str(row["start"])), int(str(row["end"])))
        else:
            words = [match.span() for match in re.finditer(r"\S+", text)]
            place = int(str(row["word"]))
            span = words[place] if 0 <= place < len(words) else (0, 0)
    except (KeyError, ValueError):
        return "needs start and end, or word: whole numbers"
    if not 0 <= span[0] < span[1] <= len(text):
        return "its word is not in its text"
    return text, span, lemma, sense


def pseudo_words(texts: Sequence[str], *, most_items: int, seed: int) -> AnnotatedWords:
    """Pseudo-words of two words of about the same frequency, in as many texts each.

    A pseudo-word joins two unrelated words, and which of them stood there is its sense (Gale,
    Church & Yarowsky 1992; Schütze 1992). Both senses have the same form, `winter-doctor`, so that
    only its context tells them apart.

    A text is used for a pseudo-word if exactly one of its two words stands in it, and once. It is
    fed with the pseudo-word in place of that word.

    Raises:
        StudyError: no two words stand in enough texts.
    """
    places = [_words_of(text) for text in texts]
    holders: dict[str, list[int]] = {}
    for number, words in enumerate(places):
        for word, span in words.items():
            if span is not None:
                holders.setdefault(word, []).append(number)
    common = {
        word: numbers
        for word, numbers in holders.items()
        if len(word) >= SHORTEST
        and FEWEST_TEXTS <= len(numbers) <= max(WIDESPREAD * len(texts), 2 * FEWEST_TEXTS)
    }
    rng = np.random.default_rng(seed)
    fed: list[str] = []
    made: list[AnnotatedWord] = []
    for first, second in _pairs(common):
        pair = ((first, second), (second, first))
        both = [[n for n in common[w] if o not in places[n]] for w, o in pair]
        size = min(MOST_TEXTS, *map(len, both))
        if size < FEWEST_TEXTS:
            continue
        if len(made) + 2 * size > most_items:
            break
        form = f"{first}-{second}"
        for word, numbers in zip((first, second), both, strict=True):
            for number in np.sort(rng.choice(numbers, size=size, replace=False)).tolist():
                start, end = places[number][word] or (0, 0)
                made.append(AnnotatedWord(len(fed), number, (start, start + len(form)), word, form))
                fed.append(texts[number][:start] + form + texts[number][end:])
    if not made:
        raise StudyError(
            f"word senses: no two words stand in {FEWEST_TEXTS} texts each; give more texts, or "
            "--senses"
        )
    return AnnotatedWords(tuple(fed), tuple(made))


def _words_of(text: str) -> dict[str, tuple[int, int] | None]:
    """The words of a text in small letters, and where they stand; None where they stand twice."""
    places: dict[str, tuple[int, int] | None] = {}
    for match in LETTERS.finditer(text):
        word = match.group().lower()
        places[word] = None if word in places else match.span()
    return places


def _pairs(holders: Mapping[str, Sequence[int]]) -> list[tuple[str, str]]:
    """Neighbours in the order of frequency that do not start alike, each word once."""
    waiting = sorted(holders, key=lambda word: (-len(holders[word]), word))
    pairs: list[tuple[str, str]] = []
    while waiting and len(pairs) < MOST_WORDS:
        first = waiting.pop(0)
        second = next((w for w in waiting if w[:ALIKE] != first[:ALIKE]), None)
        if second is None:
            break
        waiting.remove(second)
        pairs.append((first, second))
    return pairs
