"""Names of models, short enough for a picture's title."""

from __future__ import annotations

LONGEST = 40


def short(name: str) -> str:
    """An id as it is, a path by its end; `$` is not to start a formula."""
    shown = name.rstrip("/").rsplit("/", 1)[-1] if name.startswith(("/", ".")) else name
    if len(shown) > LONGEST:
        shown = shown[: LONGEST // 2] + "…" + shown[-LONGEST // 2 :]
    return shown.replace("$", r"\$")
