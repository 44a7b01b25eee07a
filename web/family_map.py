"""A family's map as one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from math import isfinite
from pathlib import Path

from ..errors import RequestError

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class MapPoint:
    """One model on the map.

    Attributes:
        dataset: None = unlabelled, drawn grey.
        kind: `full` is drawn filled, anything else hollow.
        neighbours: Ids of its nearest, nearest first, each with its cosine.
    """

    model: str
    x: float
    y: float
    dataset: str | None = None
    author: str | None = None
    kind: str = "full"
    neighbours: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        if not (isfinite(self.x) and isfinite(self.y)):
            raise ValueError(f"{self.model}: no place on a map at ({self.x}, {self.y})")


def write_map(points: Sequence[MapPoint], path: Path, *, title: str, subtitle: str = "") -> None:
    """Write the map to `path`: a scatter coloured by dataset, for any browser.

    The same points give the same bytes. Names are data in the page, never markup, and the
    page's own policy lets it run its one script and load nothing.

    Raises:
        RequestError: There are no points, or `path` cannot be written.
    """
    if not points:
        raise RequestError("nothing to draw: the family holds no indexed model")
    page = render_map(points, title=title, subtitle=subtitle)
    try:
        path.write_bytes(page.encode("utf-8", "replace"))
    except OSError as err:
        raise RequestError(f"cannot write the map to {path}: {err.strerror or err}") from err


def render_map(points: Sequence[MapPoint], *, title: str, subtitle: str = "") -> str:
    """The page that `write_map` writes."""
    script = _part("family_map_script.html")
    values = {
        "title": html.escape(title),
        "subtitle": html.escape(subtitle),
        "count": "1 model" if len(points) == 1 else f"{len(points)} models",
        "payload": _script_safe(_payload(points)),
        "style": _part("family_map_style.html"),
        "script": script,
        "script_hash": _script_hash(script),
    }
    template = _part("family_map.html")
    return _PLACEHOLDER.sub(lambda match: values[match.group(1)], template)


def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def _payload(points: Sequence[MapPoint]) -> dict[str, object]:
    """What the page's script draws: datasets by size, models naming them by place."""
    counts = Counter(point.dataset for point in points if point.dataset is not None)
    datasets = sorted(counts, key=lambda name: (-counts[name], name))
    place = {name: i for i, name in enumerate(datasets)}
    return {
        "datasets": datasets,
        "models": [
            {
                "model": point.model,
                "x": round(point.x, 6),
                "y": round(point.y, 6),
                "dataset": None if point.dataset is None else place[point.dataset],
                "author": point.author,
                "kind": point.kind,
                "neighbours": [[name, round(score, 4)] for name, score in point.neighbours],
            }
            for point in points
        ],
    }


def _script_safe(payload: dict[str, object]) -> str:
    """JSON that cannot end the script element it stands in: ASCII, without < > or &."""
    text = json.dumps(payload, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _script_hash(part: str) -> str:
    """The content-security-policy source that admits this script and no other."""
    script = _SCRIPT.search(part)
    assert script is not None, "the part is one inline script"
    digest = hashlib.sha256(script.group(1).encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
