"""Text from models' files and from the Hub: shortened to be stored and shown; names of bases."""

from __future__ import annotations

import json
import os
import re
import reprlib
from collections.abc import Iterable, Sequence
from functools import cache, partial
from importlib.resources import files
from typing import Any, NamedTuple

from ..records import LONGEST_TEXT

_QUANTISED = re.compile(
    r"[-_.](unsloth[-_.])?(bnb[-_.])?(4|8)[-_.]?bit$|[-_.](gptq|awq|gguf|fp8|int4|int8|nf4)$",
    re.IGNORECASE,
)
_CACHE_FOLDER = re.compile(r"models--(?P<name>[^/\\]+)", re.IGNORECASE)
_HOST = re.compile(r"^https?://[^/]*", re.IGNORECASE)
_PATH = re.compile(r"[./~\\]|[a-z]:", re.IGNORECASE)
_SHA = re.compile(r"^[0-9a-f]{40}$")
_STEP = re.compile(r"^(checkpoint|step|epoch)[-_]?\d+$", re.IGNORECASE)
_FILLER = {"", ".", "..", "snapshots", "resolve", "main", "tree", "blob"}

NAMED = 5
"""Names that a reason gives before it only counts the rest."""

LONGEST_NAME = 120

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = LONGEST_NAME


def name_some(names: Sequence[str]) -> str:
    """Up to five names, quoted, and how many more there are."""
    short = (n if len(n) <= LONGEST_NAME else n[:LONGEST_NAME] + "…" for n in names[:NAMED])
    return ", ".join(map(repr, short)) + (
        f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    )


def shown(value: object) -> str:
    """The value's repr on one line and not too long, however deep or long it is."""
    text = _SHORT.repr(value)
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"


def distinct_texts(values: Iterable[object]) -> tuple[str, ...]:
    """The texts among the values, stripped, each once; none that is empty or too long to keep."""
    texts = (text.strip() for text in map(text_or_none, values) if text)
    return tuple(dict.fromkeys(filter(None, texts)))


def text_or_none(value: object) -> str | None:
    """A text of a length that can be kept; None for an empty one and for anything else."""
    return value if isinstance(value, str) and 0 < len(value) <= LONGEST_TEXT else None


def is_model_path(model: str) -> bool:
    """Whether a model that is not in the catalog may be a folder or a Hub id."""
    return os.path.isdir(model) or "/" in model


def base_key(name: str) -> str:
    """What is equal for spellings of one base: its name without path, separators and marks of
    quantisation, after its owner unless that is one under which others' bases, or those that had no
    owner, are published (`base_owners.json`).

    `google-bert/bert-base-uncased`, `/models/bert-base-uncased/`, `D:\\nets\\bert_base_uncased`,
    a cache folder, a URL and `unsloth/bert-base-uncased-bnb-4bit` all give `bertbaseuncased`;
    `klue/roberta-base` gives `klue/robertabase`.
    """
    owner, last = BaseName.of(name)
    return f"{owner}/{last}" if owner else last


class BaseName(NamedTuple):
    """A base as it is compared: `owner` is "" where none counts, and None where a path or a
    quantised copy does not tell it."""

    owner: str | None
    last: str

    @classmethod
    def of(cls, name: str) -> BaseName:
        name = name.strip().strip("\"'")
        if cached := _CACHE_FOLDER.search(name):
            name = cached["name"].replace("--", "/")
        plain = _HOST.sub("", name)
        parts = [part for part in re.split(r"[/\\]+", plain) if part not in _FILLER]
        is_path = plain == name and (_PATH.match(name) is not None or len(parts) > 2)
        while len(parts) > 1 and (_SHA.match(parts[-1]) or _STEP.match(parts[-1])):
            is_path |= _STEP.match(parts.pop()) is not None
        last = parts[-1] if parts else ""
        while (stripped := _QUANTISED.sub("", last)) != last:
            last, is_path = stripped, True
        owner = parts[0].lower() if len(parts) == 2 else ""
        tells_owner = not is_path and owner not in _owners()["folders"]
        if owner in _owners()["owners"]:
            owner = ""
        return cls(owner if tells_owner else None, re.sub(r"[^0-9a-z]", "", last.lower()))

    def fits(self, other: BaseName) -> bool:
        """Whether both may name one base: where one tells no owner, any fits."""
        has_owners = None not in (self.owner, other.owner)
        return self.last == other.last != "" and (self.owner == other.owner or not has_owners)


@cache
def table_of(name: str) -> dict[str, Any]:
    """One of the indexer's own tables, a JSON file beside this one."""
    data: dict[str, Any] = json.loads((files(__package__) / name).read_text(encoding="utf-8"))
    return data


_owners = partial(table_of, "base_owners.json")
