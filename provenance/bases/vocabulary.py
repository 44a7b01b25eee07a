"""The row of each token, by the tokenizer files beside a model's weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...errors import ModelError
from ...indexer import read_json


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The row of each token; `n_bytes`: that were read for it."""

    rows: Mapping[str, int]
    n_bytes: int


def read_vocabulary(content: Callable[[str], bytes | None]) -> Vocabulary | None:
    """Of `_READERS`' files the first that is there and can be read; None where there is none.
    `content`: of a file by name, None where it is not there."""
    n_bytes = 0
    for name, rows in _READERS:
        try:
            if (text := content(name)) is not None:
                n_bytes += len(text)
                return Vocabulary(rows(text, name), n_bytes)
        except (ModelError, UnicodeDecodeError):
            continue
    return None


def _lines(content: bytes, name: str) -> dict[str, int]:
    lines = content.decode("utf-8").split("\n")
    return {line.rstrip("\r"): row for row, line in enumerate(lines) if line}


def _rows(content: bytes, name: str) -> dict[str, int]:
    return _integers(read_json(content, name=name))


def _tokenizer(content: bytes, name: str) -> dict[str, int]:
    """Of a `tokenizer.json` of any model: pairs by token, or a list of (token, score)."""
    tokenizer = read_json(content, name=name)
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    rows: dict[str, int] = {}
    if isinstance(vocabulary, dict):
        rows = _integers(vocabulary)
    elif isinstance(vocabulary, list):
        pieces = (entry[0] if isinstance(entry, list) and entry else None for entry in vocabulary)
        rows = {piece: row for row, piece in enumerate(pieces) if isinstance(piece, str)}
    added = tokenizer.get("added_tokens")
    for token in added if isinstance(added, list) else ():
        if isinstance(token, dict):
            rows |= _integers({str(token.get("content")): token.get("id")})
    return rows


def _integers(values: Mapping[str, object]) -> dict[str, int]:
    return {k: v for k, v in values.items() if isinstance(v, int) and not isinstance(v, bool)}


_READERS = (("vocab.txt", _lines), ("vocab.json", _rows), ("tokenizer.json", _tokenizer))
