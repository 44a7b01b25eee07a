"""One name for a base, whatever its users called it."""

from __future__ import annotations

import re

_QUANTISED_TWIN = re.compile(
    r"[-_.](unsloth[-_.])?(bnb[-_.])?(4|8)[-_.]?bit$|[-_.](gptq|awq|gguf|fp8|int4|int8|nf4)$",
    re.IGNORECASE,
)
_CACHE_FOLDER = re.compile(r"models--(?P<name>[^/\\]+)", re.IGNORECASE)
_SHA = re.compile(r"^[0-9a-f]{40}$")
_STEP = re.compile(r"^(checkpoint|step|epoch)[-_]?\d+$", re.IGNORECASE)
_TUNED_SUFFIX = re.compile(r"(it|instruct|chat)$")
_HUB_ID = re.compile(r"^[\w.-]+(/[\w.-]+)?$")
_FILLER = {"", ".", "..", "snapshots", "resolve", "main", "tree", "blob"}


def base_key(name: str) -> str:
    """What is left of a base's name without owner, path, separators and quantised twins.

    `google-bert/bert-base-uncased`, `/models/bert-base-uncased/`, `D:\\nets\\bert_base_uncased`,
    a cache folder, a URL and `unsloth/bert-base-uncased-bnb-4bit` all give `bertbaseuncased`.
    """
    cached = _CACHE_FOLDER.search(name)
    if cached:
        name = cached["name"].replace("--", "/")
    parts = [p for p in re.split(r"[/\\]+", name.strip().strip("\"'")) if p not in _FILLER]
    while len(parts) > 1 and (_SHA.match(parts[-1]) or _STEP.match(parts[-1])):
        parts.pop()
    last = parts[-1] if parts else ""
    while (stripped := _QUANTISED_TWIN.sub("", last)) != last:
        last = stripped
    return re.sub(r"[^0-9a-z]", "", last.lower())


def same_base(claim: str, base: str) -> bool:
    """Whether a model that says `claim` belongs to the family of `base`.

    Besides equal names: the instruction-tuned release of a base is its descendant, so its
    adapters belong to the base's family; and a path on somebody's disk is a loose hint, so
    it may leave that suffix out. A Hub id without the suffix is another model.
    """
    claimed, wanted = base_key(claim), base_key(base)
    if not claimed or claimed == wanted:
        return claimed == wanted != ""
    if _TUNED_SUFFIX.sub("", claimed) == wanted:
        return True
    return _is_path(claim) and claimed == _TUNED_SUFFIX.sub("", wanted)


def _is_path(name: str) -> bool:
    return not _HUB_ID.match(name) or name.startswith((".", "/"))
