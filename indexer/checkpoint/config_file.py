"""Small JSON files of strangers: bounded, and always an object."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

from ...errors import ModelError

MAX_BYTES = 16 * 2**20
_SURROGATE = re.compile(r"\\ud[89a-f]", re.IGNORECASE)


def read_json(source: Path | bytes, *, name: str = "config.json") -> dict[str, Any]:
    """The JSON object in a file, or in the bytes of one called `name`.

    Raises:
        ModelError: `bad-config`, `unreadable`.
    """
    if isinstance(source, Path):
        name = source.name
        source = read_start(source, MAX_BYTES + 1)
    if len(source) > MAX_BYTES:
        raise ModelError("bad-config", f"{name}: larger than {MAX_BYTES} bytes")
    try:
        text = source.decode("utf-8-sig")
        value = json.loads(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as err:
        line = str(err).partition("\n")[0]
        raise ModelError("bad-config", f"{name}: not JSON in UTF-8 ({line[:120]})") from err
    if not isinstance(value, dict):
        raise ModelError("bad-config", f"{name}: a JSON {type(value).__name__}, not an object")
    return value


def read_start(path: Path, size: int) -> bytes:
    """At most `size` bytes of a file; never of a pipe or a device, which have no end.

    Raises:
        ModelError: `bad-config` where there is none, `unreadable`.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ModelError("unreadable", f"{path.name}: not a file")
        with path.open("rb") as file:
            return file.read(size)
    except FileNotFoundError as err:
        raise ModelError("bad-config", f"{path.name}: no such file") from err
    except OSError as err:
        raise ModelError("unreadable", f"{path.name}: {err.strerror}") from err
