"""A model's tokenizer as one `tokenizer.json`, whatever files it is stored in."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

from ..errors import ModelError
from .checkpoint.files import read_json

LARGEST_TOKENIZER = 64 << 20
"""Bytes of a tokenizer's file: one of 256,000 tokens has 34 MB."""

SPECIAL: tuple[str, ...] = ("[UNK]", "[SEP]", "[CLS]", "[PAD]", "[MASK]")
"""Tokens of BERT that stand for no text."""

LEFT_OUT = ("truncation", "padding", "post_processor")
"""Settings that say nothing of the vocabulary and differ between saves."""

Content = Callable[[str], bytes | None]
"""A file's bytes by its name; None where it is not there."""


def read_tokenizer(content: Content) -> bytes | None:
    """The tokenizer's JSON, without settings that differ between saves; None where there are no
    files that tell it.

    Raises `ModelError` (`bad-config`) for files that are there and cannot be read.
    """
    for files, (beside, _) in _BUILDERS.items():
        texts = [content(name) for name in files]
        if all(text is not None for text in texts):
            return _made(files, *texts, *(content(name) for name in beside))
    return None


@lru_cache(maxsize=2)  # models of a family have the base's files, or those of one other save
def _made(files: tuple[str, ...], *texts: bytes | None) -> bytes:
    try:
        whole = _BUILDERS[files][1](*texts)
    except ModelError:
        raise
    # of the library's own, which has no other class
    except Exception as err:
        raise ModelError("bad-config", f"{files[0]}: no tokenizer can be made of it") from err
    return json.dumps(
        {key: value for key, value in whole.items() if key not in LEFT_OUT},
        ensure_ascii=False,
        sort_keys=True,
        separators=(",", ":"),
    ).encode()


def files_of(names: Collection[str]) -> list[str]:
    """The files that `read_tokenizer` reads where these are there."""
    for files, (beside, _) in _BUILDERS.items():
        if set(files) <= set(names):
            return [*files, *(name for name in beside if name in names)]
    return []


def difference(own: bytes, base_hash: str, base: bytes) -> bytes:
    """The tokenizer's JSON, or only what it adds where it is the base's with other added tokens."""
    mine, theirs = json.loads(own), json.loads(base)
    added = mine.pop("added_tokens", [])
    theirs.pop("added_tokens", None)
    if mine != theirs:
        return own
    return json.dumps({"extends": base_hash, "added_tokens": added}, ensure_ascii=False).encode()


def _wordpiece(vocabulary: bytes, config: bytes | None) -> dict[str, Any]:
    from tokenizers import BertWordPieceTokenizer

    lines = _text(vocabulary, "vocab.txt").split("\n")
    rows = {line.rstrip("\r"): row for row, line in enumerate(lines) if line}
    settings: Mapping[str, Any] = {}
    if config is not None:
        with suppress(ModelError):
            settings = read_json(config, name="tokenizer_config.json")
    made = BertWordPieceTokenizer(
        rows, lowercase=bool(settings.get("do_lower_case", True)), unk_token="[UNK]"
    )
    made.add_special_tokens([name for name in SPECIAL if name in rows])
    return read_json(made.to_str().encode(), name="vocab.txt", most_bytes=LARGEST_TOKENIZER)


def _byte_pairs(vocabulary: bytes, merges: bytes) -> dict[str, Any]:
    from tokenizers import ByteLevelBPETokenizer

    rows = read_json(vocabulary, name="vocab.json", most_bytes=LARGEST_TOKENIZER)
    lines = _text(merges, "merges.txt").split("\n")
    pairs = [tuple(line.split()) for line in lines if line and not line.startswith("#version")]
    known = {str(k): v for k, v in rows.items() if isinstance(v, int)}
    made = ByteLevelBPETokenizer(known, [p for p in pairs if len(p) == 2])
    return read_json(made.to_str().encode(), name="vocab.json", most_bytes=LARGEST_TOKENIZER)


Beside = tuple[str, ...]
"""Files that say more where they are there."""

_BUILDERS: Mapping[tuple[str, ...], tuple[Beside, Callable[..., dict[str, Any]]]] = {
    ("tokenizer.json",): (
        (),
        partial(read_json, name="tokenizer.json", most_bytes=LARGEST_TOKENIZER),
    ),
    ("vocab.txt",): (("tokenizer_config.json",), _wordpiece),
    ("vocab.json", "merges.txt"): ((), _byte_pairs),
}


def _text(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as err:
        raise ModelError("bad-config", f"{name}: not text in UTF-8") from err
