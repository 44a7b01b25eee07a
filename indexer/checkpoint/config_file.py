"""Small JSON files of strangers: bounded, and always an object."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...errors import ModelError

MAX_BYTES = 16 * 2**20


def read_json(source: Path | bytes, *, name: str = "config.json") -> dict[str, Any]:
    """The JSON object in a file, or in the bytes of one called `name`.

    Raises:
        ModelError: `bad-config`, `unreadable`.
    """
    if isinstance(source, Path):
        name = source.name
        try:
            with source.open("rb") as file:
                source = file.read(MAX_BYTES + 1)
        except OSError as err:
            raise ModelError("unreadable", f"{name}: {err.strerror}") from err
    if len(source) > MAX_BYTES:
        raise ModelError("bad-config", f"{name}: larger than {MAX_BYTES} bytes")
    try:
        value = json.loads(source.decode("utf-8-sig"))
    except (ValueError, RecursionError) as err:
        raise ModelError("bad-config", f"{name}: not JSON ({str(err).splitlines()[0]})") from err
    if not isinstance(value, dict):
        raise ModelError("bad-config", f"{name}: not a JSON object")
    return value
