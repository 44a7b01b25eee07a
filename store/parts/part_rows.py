"""A part: the outcomes of some models of one family, as the bytes of a Parquet file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from functools import cache
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import xxhash
from pyarrow import parquet

from ...arrays import Float32
from ...errors import StoreDamaged
from ...records import (
    LONGEST_TEXT,
    Fingerprint,
    Indexed,
    LinearSketch,
    ModelRecord,
    Outcome,
    Recipe,
    Refused,
    Slot,
    SlotStats,
)
from ..checked_fields import (
    MOST_SETTINGS,
    checked_count,
    checked_layout,
    checked_list,
    checked_match,
    checked_recipe,
    checked_text,
)
from ..model_rows import LARGEST_DIM, RECORD, check_outcome

FORMAT = 1

REMEDY = "delete it, and index that share again"

_WRITTEN_AT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,15}Z")
_ENTRY, _CHECKSUM = b"deltadex.part", b"deltadex.xxh3"

KNOWN_COLUMNS = ("id", "signature", "source", "bytes_total", "verified", "status", "code", "reason")
"""Columns of `read_known`."""

_RECORD = tuple(f.name for f in fields(ModelRecord))
_STATISTICS = (
    *("fro_norm", "relative_norm", "energy", "stable_rank", "noise_floor", "zero_share"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one lease of models gave.

    Attributes:
        lease: Which models, of which files, under which recipes: the file's name.
        base: The family's name.
        recipes: Of the run.
        revision, architecture: Of the base, if it was opened.
        layout: The blocks of the recipe that depends on them.
        base_bytes: That were fetched of the base.
        written_at: UTC, ISO 8601, to the microsecond.
    """

    lease: str
    base: str
    recipes: tuple[Recipe, ...]
    outcomes: tuple[Outcome, ...]
    revision: str | None = None
    architecture: str | None = None
    layout: tuple[tuple[str, str, int], ...] = ()
    base_bytes: int = 0
    written_at: str = ""


@cache
def _schema() -> pa.Schema:
    text, number, long, float32s = pa.string(), pa.float64(), pa.int64(), pa.list_(pa.float32())
    types = {"bytes_total": long, "downloads": long, "notes": pa.list_(text)}
    vector = pa.struct([("recipe", text), ("vector", float32s), ("norm", number)])
    slot = pa.struct(
        [("stack", text), ("layer", pa.int32()), ("role", text)]
        + [("rows", pa.int32()), ("columns", pa.int32())]
        + [(name, number) for name in _STATISTICS]
        + [("sigma", float32s), ("sketch", pa.binary())]
    )
    layer = pa.struct([("stack", text), ("layer", pa.int32()), ("numbers", float32s)])
    linear = pa.struct([("recipe", text), ("pooled", float32s), ("layers", pa.list_(layer))])
    return pa.schema(
        [(name, types.get(name, text)) for name in _RECORD]
        + [("status", text), ("code", text), ("reason", text)]
        + [("bytes_read", long), ("seconds", number)]
        + [("vectors", pa.list_(vector)), ("slots", pa.list_(slot)), ("linear", linear)]
    )


def part_bytes(part: Part) -> bytes:
    """The Parquet file of a part, with checksums of its pages and of its metadata."""
    table = pa.Table.from_pylist([_row(o) for o in part.outcomes], schema=_schema())
    about = {f.name: getattr(part, f.name) for f in fields(Part) if f.name != "outcomes"}
    about["recipes"] = [asdict(recipe) for recipe in part.recipes]
    body = json.dumps({"format": FORMAT, **about}).encode()
    checksum = xxhash.xxh3_64_hexdigest(body).encode()
    table = table.replace_schema_metadata({_ENTRY: body, _CHECKSUM: checksum})
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd", write_page_checksum=True)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def read_part(content: bytes, name: str) -> Part:
    """The part that a Parquet file holds, everything of it compared with what the catalog may hold.

    Raises:
        StoreDamaged: it is no part, of a later deltadex, or its bytes changed.
    """
    table, about = _read(pa.BufferReader(content), name, None)
    recipes = {recipe.id: recipe for recipe in about.recipes}
    try:
        outcomes = tuple(_outcome(row, recipes) for row in table.to_pylist())
        for outcome in outcomes:
            check_outcome(outcome)
        if not outcomes:
            raise ValueError("no models")
        if any(outcome.model.base != about.base for outcome in outcomes):
            raise ValueError("a model of another base")
    except (KeyError, TypeError, ValueError) as err:
        # a missing value raises the other two
        what = str(err) if isinstance(err, ValueError) else "a value is missing"
        raise StoreDamaged(f"{name}: not a usable part of an index: {what}; {REMEDY}") from None
    return replace(about, outcomes=outcomes)


def read_known(file: BinaryIO, name: str) -> list[Mapping[str, Any]]:
    """`KNOWN_COLUMNS` and `recipes`, ids, of every model of a part; reads little else.

    Raises:
        StoreDamaged: as `read_part`.
    """
    table, about = _read(file, name, KNOWN_COLUMNS)
    recipes = tuple(recipe.id for recipe in about.recipes)
    return [{**row, "recipes": recipes} for row in table.to_pylist()]


def _read(
    file: BinaryIO | pa.NativeFile, name: str, columns: Sequence[str] | None
) -> tuple[pa.Table, Part]:
    """Rows, and the part without its outcomes."""
    try:
        table = parquet.read_table(
            file,
            columns=None if columns is None else list(columns),
            page_checksum_verification=True,
        )
    except (pa.ArrowException, OSError, ValueError):
        raise StoreDamaged(f"{name}: not a readable Parquet file, or cut short; {REMEDY}") from None
    metadata = table.schema.metadata or {}
    body = metadata.get(_ENTRY, b"")
    if not body or xxhash.xxh3_64_hexdigest(body).encode() != metadata.get(_CHECKSUM):
        raise StoreDamaged(f"{name}: not a part that `deltadex index --parts` wrote")
    try:
        about = _about(body, name)
        wanted = _schema() if columns is None else [_schema().field(c) for c in columns]
        types = {field.name: field.type for field in wanted}
        if {field.name: field.type for field in table.schema} != types:
            raise ValueError("columns")
    except (KeyError, TypeError, ValueError, RecursionError) as err:
        field = str(err).strip("'")
        what = field if field.isidentifier() else "metadata"
        line = f"{name}: not a usable part of an index: its {what} cannot be used; {REMEDY}"
        raise StoreDamaged(line) from None
    return table, about


def _about(body: bytes, name: str) -> Part:
    """The part that metadata describe, without its outcomes; raises as the checks of its fields."""
    about = json.loads(body)
    if not isinstance(about, dict):
        raise ValueError("metadata")
    if checked_count(about["format"], "format", 1 << 31) > FORMAT:
        raise StoreDamaged(f"{name}: written by a later deltadex; upgrade this one")
    texts = {
        field: checked_text(about[field], field, LONGEST_TEXT)
        for field in ("lease", "revision", "architecture", "written_at")
        if about[field] is not None or field not in ("revision", "architecture")
    }
    datetime.fromisoformat(checked_match(texts["written_at"], "written_at", _WRITTEN_AT))
    if not RECORD["base"].holds(about["base"]):
        raise ValueError("base")
    return Part(
        **texts,
        base=about["base"],
        recipes=tuple(
            checked_recipe(recipe, LONGEST_TEXT, LARGEST_DIM)
            for recipe in checked_list(about["recipes"], "recipes", MOST_SETTINGS)
        ),
        outcomes=(),
        layout=checked_layout(about["layout"], LONGEST_TEXT),
        base_bytes=checked_count(about["base_bytes"], "base_bytes", 1 << 62),
    )


def _row(outcome: Outcome) -> dict[str, Any]:
    refused = outcome if isinstance(outcome, Refused) else None
    row = {name: getattr(outcome.model, name) for name in _RECORD} | {
        "status": outcome.status,
        "code": refused.code if refused else None,
        "reason": refused.reason if refused else None,
        "bytes_read": outcome.bytes_read,
        "seconds": outcome.seconds,
    }
    if isinstance(outcome, Indexed):
        row["vectors"] = [
            {"recipe": f.recipe.id, "vector": f.vector.tolist(), "norm": f.norm}
            for f in outcome.fingerprints
        ]
        row["slots"] = [_slot_row(stats) for stats in outcome.slots]
        row["linear"] = outcome.linear and _linear_row(outcome.linear)
    return row


def _slot_row(stats: SlotStats) -> dict[str, Any]:
    slot, (rows, columns) = stats.slot, stats.shape
    return {name: getattr(stats, name) for name in _STATISTICS} | {
        "stack": slot.stack,
        "layer": slot.layer,
        "role": slot.role,
        "rows": rows,
        "columns": columns,
        "sigma": stats.sigma.tolist(),
        "sketch": stats.sketch,
    }


def _linear_row(linear: LinearSketch) -> dict[str, Any]:
    layers = [
        {"stack": stack, "layer": layer, "numbers": numbers.tolist()}
        for (stack, layer), numbers in linear.layers.items()
    ]
    return {"recipe": linear.recipe, "pooled": linear.pooled.tolist(), "layers": layers}


def _outcome(row: Mapping[str, Any], recipes: Mapping[str, Recipe]) -> Outcome:
    record = {name: row[name] for name in _RECORD}
    model = ModelRecord(**{**record, "notes": tuple(record["notes"] or ())})
    code = row["code"]
    if code is not None:
        return Refused(
            model=model,
            code=code,
            reason=row["reason"],
            bytes_read=row["bytes_read"],
            seconds=row["seconds"],
        )
    return Indexed(
        model=model,
        fingerprints=tuple(
            Fingerprint(
                recipe=recipes[entry["recipe"]],
                vector=_numbers(entry["vector"]),
                norm=entry["norm"],
            )
            for entry in row["vectors"]
        ),
        slots=tuple(_slot_stats(entry) for entry in row["slots"]),
        bytes_read=row["bytes_read"],
        seconds=row["seconds"],
        linear=row["linear"] and _linear(row["linear"]),
    )


def _slot_stats(entry: Mapping[str, Any]) -> SlotStats:
    return SlotStats(
        slot=Slot(entry["stack"], entry["layer"], entry["role"]),
        shape=(entry["rows"], entry["columns"]),
        sigma=_numbers(entry["sigma"]),
        sketch=entry["sketch"] or b"",
        **{name: entry[name] for name in _STATISTICS},
    )


def _linear(entry: Mapping[str, Any]) -> LinearSketch:
    return LinearSketch(
        recipe=entry["recipe"],
        pooled=_numbers(entry["pooled"]),
        layers={(e["stack"], e["layer"]): _numbers(e["numbers"]) for e in entry["layers"]},
    )


def _numbers(values: Sequence[float]) -> Float32[np.ndarray, " numbers"]:
    numbers: Float32[np.ndarray, " numbers"] = np.array(values, dtype=np.float32)
    numbers.flags.writeable = False
    return numbers
