"""Numbers and strangers' names as text that is safe to print."""

from __future__ import annotations

import unicodedata


def size(n_bytes: int) -> str:
    """1536 → `1.5 KiB`."""
    value = float(n_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def plain(text: str) -> str:
    """The text without control and direction characters, which a terminal would obey."""
    return "".join(
        c if unicodedata.category(c) not in ("Cc", "Cf", "Zl", "Zp") else "�" for c in text
    )


def share(value: float | None) -> str:
    """0.875 → `0.875`; nothing for None."""
    return "–" if value is None else f"{value:.3f}"
