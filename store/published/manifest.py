"""The manifest of a published index: every file with its hash, and what a query needs to know.

It is read from unknown publishers: every field is checked before it is used.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

from ...errors import BadIndex
from ...records import Recipe
from .plain_text import is_plain
from .vector_codes import Form, vector_bytes

FORMAT = 1
MANIFEST = "deltadex-index.json"
CARD = "README.md"

LARGEST_MANIFEST = 16 << 20
LARGEST_FILE = 256 << 20
MOST_MODELS = 10_000_000
MOST_IN_A_PART = 65_536
MOST_PARTS = 100_000
MOST_SETTINGS = 64
LARGEST_DIM = 65_536
"""What a manifest may state at most."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAMES = {
    "models": re.compile(r"models-([0-9a-f]{16})\.parquet"),
    "means": re.compile(r"means-([0-9a-f]{16})\.parquet"),
    "removed": re.compile(r"removed-([0-9a-f]{16})\.txt"),
}
_RECIPE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFile:
    """A file of an index, named by its content.

    Attributes:
        models: Rows of a part; 0 of other files.
    """

    name: str
    sha256: str
    bytes: int
    models: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NullScale:
    """What scores by vectors are normalised with, and false discovery rates computed from.

    Attributes:
        kinds: Of the models, in order.
        centres: (one kind, another, centre, spread) of strangers' cosines, by places in `kinds`.
        rate, source, datasets, queries: As of `search.scoring.evidence.Calibration`.
        levels, shares: The measured share of wrong answers from each level on.
    """

    kinds: tuple[str, ...]
    centres: tuple[tuple[int, int, float, float], ...]
    rate: float
    source: str
    datasets: int
    queries: int
    levels: tuple[float, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A published index.

    Attributes:
        index: Its own name, the same in all that is published into one folder.
        serial: How often it was published.
        created: When, in UTC, ISO 8601.
        shapes: (out, in) of the slots that a query may have.
        layout: Of the family, for recipes that depend on it.
        vectors: How they are stored.
        parts: The models, in immutable files.
        means: Each kind's mean vector.
        removed: Hashes of ids that are left out for good.
        card: The README that was written with it; not needed, and not fetched.
    """

    index: str
    serial: int
    created: str
    deltadex: str
    base: str
    base_revision: str | None
    architecture: str | None
    recipe: Recipe
    shapes: Mapping[str, tuple[int, int]]
    layout: tuple[tuple[str, str, int], ...]
    vectors: Form
    models: int
    scale: NullScale
    parts: tuple[PublishedFile, ...]
    means: PublishedFile
    removed: PublishedFile
    card: PublishedFile

    @property
    def data_files(self) -> tuple[PublishedFile, ...]:
        """All that a search needs."""
        return (*self.parts, self.means, self.removed)

    @property
    def size_bytes(self) -> int:
        """Of all files but the manifest itself."""
        return sum(file.bytes for file in (*self.data_files, self.card))

    def content(self) -> bytes:
        """The manifest's file."""
        document = {"format": FORMAT, "recipe_id": self.recipe.id, **asdict(self)}
        return json.dumps(document, ensure_ascii=True, indent=1, sort_keys=True).encode() + b"\n"


def sha256_of(data: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def parse_manifest(data: bytes) -> Manifest:
    """The manifest in a file's content.

    Raises:
        BadIndex: it is none, of a later format, or states what cannot be.
    """
    if len(data) > LARGEST_MANIFEST:
        raise BadIndex(f"{MANIFEST}: more than {LARGEST_MANIFEST} bytes")
    try:
        document = json.loads(data)
        if not isinstance(document, dict):
            raise TypeError("no object")
        form = document.get("format")
        if isinstance(form, int) and form > FORMAT:
            raise BadIndex(f"{MANIFEST}: format {form}, this deltadex reads {FORMAT}; upgrade it")
        if form != FORMAT:
            raise ValueError("format")
        return _manifest(document)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as err:
        raise BadIndex(f"{MANIFEST}: not a published index's manifest ({_what(err)})") from None


def _what(err: Exception) -> str:
    """Which field is at fault; nothing that the file says."""
    text = str(err)
    return text if text.isidentifier() or isinstance(err, KeyError) else type(err).__name__


def _manifest(raw: Mapping[str, Any]) -> Manifest:
    recipe = _recipe(raw["recipe"])
    if raw["recipe_id"] != recipe.id:
        raise ValueError("recipe_id")
    form = raw["vectors"]
    if form not in get_args(Form):
        raise ValueError("vectors")
    models = _count(raw["models"], "models", MOST_MODELS)
    parts = tuple(_file(part, "models") for part in _list(raw["parts"], "parts", MOST_PARTS))
    if sum(part.models for part in parts) != models or not models:
        raise ValueError("models")
    if len({part.name for part in parts}) < len(parts):
        raise ValueError("parts")
    if any(part.bytes < part.models * vector_bytes(recipe.dim, form) for part in parts):
        raise ValueError("parts")
    card = raw["card"]
    return Manifest(
        index=_match(raw["index"], "index", re.compile(r"[0-9a-f]{32}")),
        serial=_count(raw["serial"], "serial", 1 << 53),
        created=_text(raw["created"], "created"),
        deltadex=_text(raw["deltadex"], "deltadex"),
        base=_text(raw["base"], "base"),
        base_revision=_optional(raw["base_revision"], "base_revision"),
        architecture=_optional(raw["architecture"], "architecture"),
        recipe=recipe,
        shapes={
            _text(slot, "shapes"): _shape(shape) for slot, shape in _dict(raw["shapes"]).items()
        },
        layout=tuple(_block(block) for block in _list(raw["layout"], "layout", 10_000)),
        vectors=form,
        models=models,
        scale=_scale(raw["scale"]),
        parts=parts,
        means=_file(raw["means"], "means"),
        removed=_file(raw["removed"], "removed"),
        card=PublishedFile(
            name=CARD,
            sha256=_match(card["sha256"], "card", _SHA256),
            bytes=_count(card["bytes"], "card", LARGEST_FILE),
        ),
    )


def _recipe(raw: Mapping[str, Any]) -> Recipe:
    params = _list(raw["params"], "params", MOST_SETTINGS)
    return Recipe(
        name=_match(raw["name"], "name", _RECIPE_NAME),
        rank=_count(raw["rank"], "rank", 1 << 16),
        dim=_count(raw["dim"], "dim", LARGEST_DIM, least=1),
        seed=_count(raw["seed"], "seed", 1 << 62),
        version=_count(raw["version"], "version", 1 << 16),
        params=tuple((_text(key, "params"), _text(value, "params")) for key, value in params),
    )


def _file(raw: Mapping[str, Any], kind: str) -> PublishedFile:
    sha256 = _match(raw["sha256"], kind, _SHA256)
    name = _match(raw["name"], kind, _NAMES[kind])
    if not name.startswith(f"{kind}-{sha256[:16]}."):
        raise ValueError(kind)
    return PublishedFile(
        name=name,
        sha256=sha256,
        bytes=_count(raw["bytes"], "bytes", LARGEST_FILE),
        models=_count(raw["models"], "models", MOST_IN_A_PART),
    )


def _scale(raw: Mapping[str, Any]) -> NullScale:
    kinds = tuple(_text(kind, "kinds") for kind in _list(raw["kinds"], "kinds", 8))
    centres = tuple(_centre(row, len(kinds)) for row in _list(raw["centres"], "centres", 64))
    pairs = {(one, other) for one in range(len(kinds)) for other in range(one, len(kinds))}
    if not kinds or len(set(kinds)) < len(kinds) or {row[:2] for row in centres} != pairs:
        raise ValueError("centres")
    levels = tuple(_number(x, "levels") for x in _list(raw["levels"], "levels", 10_000))
    shares = tuple(_number(x, "shares", 0.0, 1.0) for x in _list(raw["shares"], "shares", 10_000))
    is_sorted = list(levels) == sorted(levels) and list(shares) == sorted(shares, reverse=True)
    if len(levels) != len(shares) or not is_sorted:
        raise ValueError("levels")
    if raw["source"] not in ("labelled pairs", "the null alone"):
        raise ValueError("source")
    return NullScale(
        kinds=kinds,
        centres=centres,
        rate=_number(raw["rate"], "rate", 1e-3, 1e3),
        source=raw["source"],
        datasets=_count(raw["datasets"], "datasets", MOST_MODELS),
        queries=_count(raw["queries"], "queries", MOST_MODELS),
        levels=levels,
        shares=shares,
    )


def _centre(raw: Sequence[Any], n_kinds: int) -> tuple[int, int, float, float]:
    one, other, centre, spread = raw
    return (
        _count(one, "centres", n_kinds - 1),
        _count(other, "centres", n_kinds - 1),
        _number(centre, "centres", -1.0, 1.0),
        _number(spread, "centres", 1e-6, 2.0),
    )


def _shape(raw: Sequence[Any]) -> tuple[int, int]:
    rows, columns = raw
    return _count(rows, "shapes", 1 << 40), _count(columns, "shapes", 1 << 40)


def _block(raw: Sequence[Any]) -> tuple[str, str, int]:
    stack, role, rows = raw
    return _text(stack, "layout"), _text(role, "layout"), _count(rows, "layout", 1 << 40)


def _count(value: object, field: str, most: int, *, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(field)
    return value


def _number(value: object, field: str, least: float = -1e6, most: float = 1e6) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(field)
    if not least <= value <= most:  # NaN too
        raise ValueError(field)
    return float(value)


def _text(value: object, field: str) -> str:
    if not is_plain(value):
        raise ValueError(field)
    return str(value)


def _optional(value: object, field: str) -> str | None:
    return None if value is None else _text(value, field)


def _match(value: object, field: str, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(field)
    return value


def _list(value: object, field: str, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError(field)
    return value


def _dict(value: object) -> dict[str, Any]:
    if not isinstance(value, dict) or len(value) > 100_000:
        raise ValueError("shapes")
    return value
