"""Names of models, short enough for a picture's title."""

from __future__ import annotations

LONGEST = 40


def short(name: str) -> str:
    """An id as it is, a long path by its end; `$` is not to start a formula."""
    parts = name.rstrip("/").split("/")
    shown = name if len(name) <= LONGEST else "…/" + "/".join(parts[-2:])
    if len(shown) > LONGEST:
        shown = shown[: LONGEST // 2] + "…" + shown[-LONGEST // 2 :]
    return shown.replace("$", r"\$")
