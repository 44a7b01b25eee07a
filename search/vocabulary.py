"""A tokenizer's vocabulary: the text of each token, and the tokens of texts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..arrays import Bool, Float64, Int64
from ..errors import RequestError

MARKED = re.compile(r"\[.*\]|<.*>", re.DOTALL)
"""Tokens of no text, as tokenizers write them."""

UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]"
)
"""Characters of scripts without spaces between words: Thai, Lao, Burmese, Khmer, Chinese, Japanese;
a token of them is taken for a word."""

MOST_TOKENS = 1 << 22

CHARACTERS = 1e-4
"""Frequency of a single character beside the commonest token's: most are of other scripts."""

ZIPF_OFFSET = 2.7
"""Of ranks (Mandelbrot 1953)."""

BATCH = 2000

LETTERS = 3
"""Of a word of a language that is written in Latin letters."""

UNREADABLE = "its tokenizer cannot be read: {}"


@dataclass(frozen=True, slots=True)
class Piece:
    """A token's text. `starts`: whether it begins a word; `is_special`: it stands for no text."""

    text: str
    starts: bool
    is_special: bool


class Vocabulary:
    """Of a `tokenizer.json`; the library that tokenizes texts is loaded when it is needed."""

    def __init__(self, content: bytes) -> None:
        """Raises `RequestError` for a tokenizer of a kind that is not known."""
        self._content = content
        try:
            self.pieces = _pieces(json.loads(content))
        except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as err:
            raise RequestError(UNREADABLE.format("it is not of a form that is known")) from err

    def __len__(self) -> int:
        return len(self.pieces)

    @cached_property
    def special(self) -> Bool[np.ndarray, " tokens"]:
        return np.array([piece.is_special for piece in self.pieces], dtype=bool)

    @cached_property
    def words(self) -> dict[str, int]:
        """Tokens that are whole words of letters, lower-cased: the first token of each."""
        words: dict[str, int] = {}
        for number, piece in enumerate(self.pieces):
            text = piece.text.casefold()
            if piece.starts and not piece.is_special and len(text) > 1 and text.isalpha():
                words.setdefault(text, number)
        return words

    def frequent_words(self) -> dict[str, int]:
        """Words of at least three letters, or of another script, the most frequent first."""
        long = [(w, t) for w, t in self.words.items() if len(w) >= LETTERS or not w.isascii()]
        return dict(sorted(long, key=lambda one: (-self.frequencies[one[1]], one[1])))

    @cached_property
    def frequencies(self) -> Float64[np.ndarray, " tokens"]:
        """Of each token in general text, up to a factor: by its rank (Zipf), since vocabularies are
        in the order of frequency; 0 of special tokens."""
        ranked = [not p.is_special and len(p.text.strip()) > 1 for p in self.pieces]
        ranks = np.cumsum(ranked) + ZIPF_OFFSET
        single = [not p.is_special and len(p.text.strip()) <= 1 for p in self.pieces]
        return np.where(ranked, 1 / ranks, np.where(single, CHARACTERS, 0.0))

    def counts(self, texts: Sequence[str]) -> Int64[np.ndarray, " tokens"]:
        """In how many texts each token occurs, as they are, in lower case, and as the
        continuation of another text; the largest of the three."""
        spellings = [self._counted(texts, str)]
        if self._folds_case is False:
            spellings.append(self._counted(texts, str.lower))
        if self._knows_spaces:
            spellings.append(self._counted(texts, " {}".format))
        return np.asarray(np.max(spellings, axis=0))

    def _counted(
        self, texts: Sequence[str], spell: Callable[[str], str]
    ) -> Int64[np.ndarray, " tokens"]:
        counts = np.zeros(len(self.pieces), dtype=np.int64)
        for first in range(0, len(texts), BATCH):
            spelt = [spell(text) for text in texts[first : first + BATCH]]
            encoded = self._encoded(spelt)
            ids = np.concatenate([np.array([*set(e.ids)], dtype=np.int64) for e in encoded])
            counts += np.bincount(ids, minlength=len(counts))[: len(counts)]
        return counts

    def _encoded(self, texts: Sequence[str]) -> Sequence[Any]:
        try:
            return self._tokenizer.encode_batch(texts, add_special_tokens=False)  # type: ignore[no-any-return]
        # of the library's own, which has no other class
        except Exception as err:
            raise RequestError(UNREADABLE.format(str(err)[:100])) from err

    @cached_property
    def _folds_case(self) -> bool:
        upper, lower = self._encoded(["Word", "word"])
        return bool(upper.ids == lower.ids)

    @cached_property
    def _knows_spaces(self) -> bool:
        behind, alone = self._encoded([" word", "word"])
        return bool(behind.ids != alone.ids)

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        return Tokenizer.from_str(self._content.decode())


def _pieces(settings: Mapping[str, Any]) -> list[Piece]:
    model = settings.get("model")
    model = model if isinstance(model, Mapping) else {}
    rows = _rows(model)
    if not rows:
        raise RequestError("its tokenizer has no vocabulary that is known")
    special: set[int] = set()
    for token in settings.get("added_tokens") or ():
        rows[int(token["id"])] = str(token["content"])
        if token.get("special"):
            special.add(int(token["id"]))
    if min(rows) < 0 or max(rows) >= MOST_TOKENS:
        raise RequestError(UNREADABLE.format("its tokens have numbers that no vocabulary has"))
    decode = _decoder(settings, model)
    pieces = [Piece("", False, True)] * (max(rows) + 1)
    for number, token in rows.items():
        if number in special or MARKED.fullmatch(token):
            pieces[number] = Piece(token, True, True)
        else:
            pieces[number] = decode(token)
    return pieces


def _rows(model: Mapping[str, Any]) -> dict[int, str]:
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, Mapping):
        return {int(number): str(token) for token, number in vocabulary.items()}
    if isinstance(vocabulary, list):  # Unigram: pairs of token and score
        return {number: str(pair[0]) for number, pair in enumerate(vocabulary)}
    return {}


def _decoder(settings: Mapping[str, Any], model: Mapping[str, Any]) -> Callable[[str], Piece]:
    """How a token's text is read, by the kinds of marks that tokenizers use."""
    kinds = json.dumps([settings.get("pre_tokenizer"), settings.get("decoder")], ensure_ascii=False)
    if '"ByteLevel"' in kinds:
        return _byte_level
    if model.get("type") == "WordPiece" or model.get("continuing_subword_prefix"):
        prefix = str(model.get("continuing_subword_prefix") or "##")
        return lambda token: Piece(token.removeprefix(prefix), not token.startswith(prefix), False)
    if "▁" in kinds or '"Metaspace"' in kinds:
        return _metaspace
    return lambda token: Piece(token, True, False)


def _metaspace(token: str) -> Piece:
    if re.fullmatch(r"<0x[0-9A-F]{2}>", token):
        return Piece("", False, True)
    text = token.replace("▁", " ").strip()
    return Piece(text, token.startswith("▁") or _is_unspaced(text), False)


def _byte_level(token: str) -> Piece:
    text = bytes(_BYTES[c] for c in token if c in _BYTES).decode("utf-8", "replace")
    return Piece(text.strip() or text, text.startswith(" ") or _is_unspaced(text), False)


def _is_unspaced(text: str) -> bool:
    return bool(UNSPACED.match(text))


def _bytes_of_characters() -> dict[str, int]:
    """The bytes that byte-level tokenizers write as other characters (Radford et al. 2019)."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(b): b for b in shown} | {chr(256 + n): b for n, b in enumerate(hidden)}


_BYTES = _bytes_of_characters()
