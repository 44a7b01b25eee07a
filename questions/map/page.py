"""A family with a place for each model, drawn: a picture, or the service's page with its data."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from ...errors import RequestError
from ...results import count
from ...store import write_user_file

PAGE = f"{(__package__ or '').rpartition('.')[0].rpartition('.')[0]}.service.page"
"""Where the service has its page; its text alone is read here."""

_SCRIPT = re.compile(r'<script src="static/([\w.]+)"(?: defer)?></script>\n')

_STYLE = re.compile(r'<link rel="stylesheet" href="static/([\w.]+)">\n')

_ICON = re.compile(r'<link rel="icon" href="[^"]*">\n')

MAP_ENDINGS = (".html", ".png", ".svg")


def check_map_ending(target: Path) -> None:
    """Refuse, with a `RequestError`, a file name that is not a map's."""
    if target.suffix.lower() not in MAP_ENDINGS:
        raise RequestError(f"{target}: a map's name ends in one of {', '.join(MAP_ENDINGS)}")


def encode_names(column: Sequence[str | None]) -> tuple[list[int | None], list[str]]:
    """Each entry as its place in the list of names, the most frequent first; None stays None."""
    counts = Counter(name for name in column if name is not None)
    names = sorted(counts, key=lambda name: (-counts[name], name))
    place = {name: i for i, name in enumerate(names)}
    return [None if name is None else place[name] for name in column], names


def describe(document: Mapping[str, Any], landmarks: int | None) -> str:
    """One line: which fingerprints, how many models, how they were placed, how to read it."""
    models = count(len(document["models"]), "model", form=",")
    if document["explained"] is not None:
        reading = f"PCA: two axes with {sum(document['explained']):.0%} of the variance"
    else:
        name = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP"}[document["layout"]]
        if landmarks is not None:
            name += f" of {landmarks:,}, the others placed among them"
        reading = f"{name}: near means alike, far apart means little"
    return f"{document['recipe']} fingerprints of {models} · {reading}"


def write_page(
    document: Mapping[str, Any],
    path: Path,
    *,
    title: str,
    subtitle: str = "",
    neighbours: Mapping[str, Any] = {},
) -> None:
    """Write a map document to `path`, as a page for any browser.

    The same data give the same bytes. Names are data in the page, never markup, and the
    page's own policy lets it run its one script and load nothing.

    Args:
        document: As GET map answers.
        neighbours: As `neighbourhoods` gives them.

    Raises:
        RequestError: There are no models, or there is no such folder.
        StoreFull: `path` cannot be written.
    """
    if not document["models"]:
        raise RequestError("nothing to draw: the family holds no indexed model")
    data = {"title": title, "subtitle": subtitle or None, "map": document, "clusters": None}
    write_user_file(path, _render(title, data | dict(neighbours)).encode("utf-8", "replace"))


def _render(title: str, data: Mapping[str, Any]) -> str:
    """The service's page with its style, its scripts and the data inside."""

    def part(name: str) -> str:
        return resources.files(PAGE).joinpath(name).read_text("utf-8")

    page = part("index.html")
    script = "\n".join(map(part, _SCRIPT.findall(page)))
    style = "".join(map(part, _STYLE.findall(page)))
    # JSON that cannot end the script element it stands in: ASCII, without < > or &
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    policy = (
        f"default-src 'none'; script-src '{_source_hash(script)}'; "
        f"style-src '{_source_hash(style)}'; base-uri 'none'; form-action 'none'"
    )
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{html.escape(title)}</title>\n<style>{style}</style>\n"
    )
    tail = (
        f'<script type="application/json" id="data">{text}</script>\n'
        f"<script>{script}</script>\n</body>"
    )
    for pattern in (_SCRIPT, _STYLE, _ICON):
        page = pattern.sub("", page)
    page = page.replace("<title>deltadex</title>\n", head, 1)
    return page.replace("</body>", tail, 1)


def _source_hash(text: str) -> str:
    """The content-security-policy source that admits this script or style and no other."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
