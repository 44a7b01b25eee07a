"""The manifest of a published index: every file with its hash, and what a query needs to know;
vectors as they are published: half-precision numbers, or eight bits a number of longer ones.

It is read from unknown publishers: every field is checked before it is used.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np

from ...arrays import Float32, UInt8
from ...errors import BadIndex
from ...records import Recipe
from ..model_rows import (
    checked_count,
    checked_layout,
    checked_list,
    checked_match,
    checked_number,
    checked_recipe,
    checked_text,
)

LONGEST_TEXT = 512
"""Characters of an id, a label, a licence or a base's name."""

_OWN_PATH = re.compile(r"^(?:[/~\\]|\.\.(?:[/\\]|$)|[A-Za-z]:[/\\]|file:)")
_TOKEN = re.compile(r"hf_[A-Za-z0-9]{20,}|api_org_[A-Za-z0-9]{20,}")


def is_plain(text: object) -> bool:
    """Whether a text has a length that is kept, and only characters that a terminal shows."""
    return isinstance(text, str) and 0 < len(text) <= LONGEST_TEXT and text.isprintable()


def may_be_public(text: object) -> bool:
    """Whether a plain text names no place of a machine, and holds no token."""
    return is_plain(text) and not _OWN_PATH.match(str(text)) and not _TOKEN.search(str(text))


Form = Literal["float16", "int8"]

LARGEST_HALVES = 2_560
"""Numbers up to which a vector is stored in half precision: 5 KiB."""

BLOCK = 64
"""Numbers that share a scale where eight bits are kept of each."""

LENGTH_TOLERANCE = 0.02
"""By which a stored vector's length may differ from 1."""

FORMAT = 1
MANIFEST = "deltadex-index.json"
CARD = "README.md"

LARGEST_MANIFEST = 16 << 20
LARGEST_FILE = 256 << 20
MOST_MODELS = 10_000_000
MOST_IN_A_PART = 65_536
MOST_PARTS = 100_000
LARGEST_DIM = 65_536
"""What a manifest may state at most."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAMES = {
    "models": re.compile(r"models-([0-9a-f]{16})\.parquet"),
    "means": re.compile(r"means-([0-9a-f]{16})\.parquet"),
    "removed": re.compile(r"removed-([0-9a-f]{16})\.txt"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFile:
    """A file of an index, named by its content; `models` are the rows of a part."""

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
        rate, source, datasets, queries: As of `search.family_scores.Calibration`.
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
    """The manifest in a file's content; raises `BadIndex` if it is none, of a later format, or
    states what cannot be."""
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
        # which field is at fault; nothing that the file says
        is_field = str(err).isidentifier() or isinstance(err, KeyError)
        what = str(err) if is_field else type(err).__name__
        raise BadIndex(f"{MANIFEST}: not a published index's manifest ({what})") from None


def _manifest(raw: Mapping[str, Any]) -> Manifest:
    recipe = checked_recipe(raw["recipe"], LONGEST_TEXT, LARGEST_DIM)
    if raw["recipe_id"] != recipe.id:
        raise ValueError("recipe_id")
    form = raw["vectors"]
    if form not in get_args(Form):
        raise ValueError("vectors")
    models = checked_count(raw["models"], "models", MOST_MODELS)
    parts = tuple(_file(part, "models") for part in checked_list(raw["parts"], "parts", MOST_PARTS))
    if sum(part.models for part in parts) != models or not models:
        raise ValueError("models")
    if len({part.name for part in parts}) < len(parts):
        raise ValueError("parts")
    if any(part.bytes < part.models * vector_bytes(recipe.dim, form) for part in parts):
        raise ValueError("parts")
    texts: dict[str, Any] = {}
    for name in ("created", "deltadex", "base", "base_revision", "architecture"):
        may_lack = name in ("base_revision", "architecture") and raw[name] is None
        texts[name] = None if may_lack else _text(raw[name], name)
    card = raw["card"]
    return Manifest(
        index=checked_match(raw["index"], "index", re.compile(r"[0-9a-f]{32}")),
        serial=checked_count(raw["serial"], "serial", 1 << 53),
        **texts,
        recipe=recipe,
        shapes=_shapes(raw["shapes"]),
        layout=checked_layout(raw["layout"], LONGEST_TEXT),
        vectors=form,
        models=models,
        scale=_scale(raw["scale"]),
        parts=parts,
        means=_file(raw["means"], "means"),
        removed=_file(raw["removed"], "removed"),
        card=PublishedFile(
            name=CARD,
            sha256=checked_match(card["sha256"], "card", _SHA256),
            bytes=checked_count(card["bytes"], "card", LARGEST_FILE),
        ),
    )


def _file(raw: Mapping[str, Any], kind: str) -> PublishedFile:
    sha256 = checked_match(raw["sha256"], kind, _SHA256)
    name = checked_match(raw["name"], kind, _NAMES[kind])
    if not name.startswith(f"{kind}-{sha256[:16]}."):
        raise ValueError(kind)
    return PublishedFile(
        name=name,
        sha256=sha256,
        bytes=checked_count(raw["bytes"], "bytes", LARGEST_FILE),
        models=checked_count(raw["models"], "models", MOST_IN_A_PART),
    )


def _scale(raw: Mapping[str, Any]) -> NullScale:
    kinds = tuple(_text(kind, "kinds") for kind in checked_list(raw["kinds"], "kinds", 8))
    centres = tuple(_centre(row, len(kinds)) for row in checked_list(raw["centres"], "centres", 64))
    pairs = {(one, other) for one in range(len(kinds)) for other in range(one, len(kinds))}
    if not kinds or len(set(kinds)) < len(kinds) or {row[:2] for row in centres} != pairs:
        raise ValueError("centres")
    levels = tuple(
        checked_number(x, "levels") for x in checked_list(raw["levels"], "levels", 10_000)
    )
    shares = tuple(
        checked_number(x, "shares", 0.0, 1.0) for x in checked_list(raw["shares"], "shares", 10_000)
    )
    is_sorted = list(levels) == sorted(levels) and list(shares) == sorted(shares, reverse=True)
    if len(levels) != len(shares) or not is_sorted:
        raise ValueError("levels")
    if raw["source"] not in ("labelled pairs", "the null alone"):
        raise ValueError("source")
    return NullScale(
        kinds=kinds,
        centres=centres,
        rate=checked_number(raw["rate"], "rate", 1e-3, 1e3),
        source=raw["source"],
        datasets=checked_count(raw["datasets"], "datasets", MOST_MODELS),
        queries=checked_count(raw["queries"], "queries", MOST_MODELS),
        levels=levels,
        shares=shares,
    )


def _centre(raw: Sequence[Any], n_kinds: int) -> tuple[int, int, float, float]:
    one, other, centre, spread = raw
    return (
        checked_count(one, "centres", n_kinds - 1),
        checked_count(other, "centres", n_kinds - 1),
        checked_number(centre, "centres", -1.0, 1.0),
        checked_number(spread, "centres", 1e-6, 2.0),
    )


def _shapes(raw: object) -> dict[str, tuple[int, int]]:
    if not isinstance(raw, dict) or len(raw) > 100_000:
        raise ValueError("shapes")
    most = 1 << 40
    return {
        _text(slot, "shapes"): (
            checked_count(rows, "shapes", most),
            checked_count(columns, "shapes", most),
        )
        for slot, (rows, columns) in raw.items()
    }


def _text(value: object, field: str) -> str:
    return checked_text(value, field, LONGEST_TEXT)


def removal_hash(base: str, id: str) -> str:
    """What an index remembers of a model that is left out: SHA-256 of base and id."""
    return hashlib.sha256(f"{base}\n{id}".encode("utf-8", "surrogatepass")).hexdigest()


def read_removals(content: bytes) -> frozenset[str]:
    """The hashes of the models that an index leaves out for good, from the file that lists them;
    raises `BadIndex` if it is no such list."""
    lines = content.split()
    if not all(len(line) == 64 and line.isalnum() and line.isascii() for line in lines):
        raise BadIndex("the list of removed models is not a list of hashes")
    return frozenset(line.decode() for line in lines)


def form_for(dim: int) -> Form:
    """How vectors of that length are stored."""
    return "float16" if dim <= LARGEST_HALVES else "int8"


def vector_bytes(dim: int, form: Form) -> int:
    """Bytes of one stored vector."""
    if form == "float16":
        return 2 * dim
    n_blocks = -(-dim // BLOCK)
    return n_blocks * (2 + BLOCK)


def encode_vectors(
    vectors: Float32[np.ndarray, "models dim"], form: Form
) -> UInt8[np.ndarray, "models bytes"]:
    """The bytes of unit vectors.

    In half precision a number x differs by at most 2⁻¹¹ |x| + 2⁻²⁵; with eight bits by at most
    1/250 of the largest of its `BLOCK` numbers, + 2⁻¹⁷.
    """
    if form == "float16":
        return vectors.astype("<f2").view(np.uint8)
    n, dim = vectors.shape
    blocks = np.zeros((n, -(-dim // BLOCK) * BLOCK), dtype=np.float32)
    blocks[:, :dim] = vectors
    blocks = blocks.reshape(n, -1, BLOCK)
    scales = (np.abs(blocks).max(axis=2) / 127).astype("<f2")
    divisors = np.where(scales > 0, scales, 1).astype(np.float32)[:, :, None]
    codes = np.clip(np.rint(blocks / divisors), -127, 127).astype(np.int8)
    return np.concatenate([scales.view(np.uint8), codes.reshape(n, -1).view(np.uint8)], axis=1)


def decode_vectors(
    rows: UInt8[np.ndarray, "models bytes"], dim: int, form: Form
) -> Float32[np.ndarray, "models dim"]:
    """The vectors of some rows of bytes, of unit length; raises `BadIndex` if a number is not
    finite, or a vector's length is not 1."""
    if form == "float16":
        vectors = np.ascontiguousarray(rows).view("<f2").astype(np.float32)
    else:
        n_blocks = -(-dim // BLOCK)
        scales = np.ascontiguousarray(rows[:, : 2 * n_blocks]).view("<f2").astype(np.float32)
        codes = np.ascontiguousarray(rows[:, 2 * n_blocks :]).view(np.int8)
        with np.errstate(invalid="ignore"):
            blocks = codes.reshape(len(rows), n_blocks, BLOCK) * scales[:, :, None]
        vectors = np.ascontiguousarray(blocks.reshape(len(rows), -1)[:, :dim])
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt(np.vecdot(vectors, vectors))
        is_unit = np.abs(lengths - 1.0) <= LENGTH_TOLERANCE
    if not is_unit.all():
        raise BadIndex(f"{int((~is_unit).sum())} vectors are not finite, or not of length 1")
    vectors /= lengths[:, None]
    return vectors
