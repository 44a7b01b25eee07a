"""JSON objects in small files, and the operating system's errors as refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ...errors import ModelError

Config = Mapping[str, object]
"""The object in a JSON file such as config.json; its values may be of any kind."""

MAX_BYTES = 16 * 2**20
_SURROGATE = re.compile(r"\\ud[89a-f]", re.IGNORECASE)


def read_json(content: bytes, *, name: str = "config.json") -> dict[str, object]:
    """The JSON object in the bytes of a file called `name`; a refusal quotes nothing of them."""
    if len(content) > MAX_BYTES:
        raise ModelError("bad-config", f"{name}: larger than {MAX_BYTES} bytes")
    try:
        text = content.decode("utf-8-sig")
        value = json.loads(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as err:
        line = "not JSON in UTF-8; `python -m json.tool FILE` shows where"
        raise ModelError("bad-config", f"{name}: {line}") from err
    if not isinstance(value, dict):
        raise ModelError("bad-config", f"{name}: a JSON {type(value).__name__}, not an object")
    return value


@contextmanager
def reading(name: object) -> Iterator[None]:
    """Make an error of the operating system in the block an `unreadable` of `name`."""
    try:
        yield
    except OSError as err:
        raise ModelError("unreadable", f"{name}: {err.strerror}") from err
