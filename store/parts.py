"""Models that were read elsewhere: their outcomes as immutable Parquet files with manifests in a
folder, here or at any address that fsspec opens, and their way into a catalog."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from pyarrow import parquet

from .. import records
from ..errors import REASONS, StoreDamaged, StoreError, StoreFull, StoreLocked
from . import exchange
from .catalog import Catalog
from .files import make_folder, refused_as, write_atomically
from .tables import models
from .tables.footprints import footprint_of, footprint_row
from .tables.outcomes import STATISTICS, fixed, slot_row, slot_stats
from .tables.recipes import BaseRecord

log = logging.getLogger(__name__)

MOST_RECIPES = 64
"""Of a part."""

LONGEST_NAME = 120
"""Characters of a folder's name: file systems take 255 bytes."""

REMEDY = "delete it, and index that share again"

_WRITTEN_AT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,15}Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one lease of models gave.

    Attributes:
        lease: Which models, of which files, under which recipes: the manifest's name.
        revision, architecture: Of the base, if it was opened.
        layout: The blocks of the recipe that depends on them.
        base_bytes: That were fetched of the base.
        written_at: UTC, ISO 8601, to the microsecond.
    """

    lease: str
    base: str
    recipes: tuple[records.Recipe, ...]
    outcomes: tuple[records.Outcome, ...]
    revision: str | None = None
    architecture: str | None = None
    layout: tuple[tuple[str, str, int], ...] = ()
    base_bytes: int = 0
    written_at: str = ""


@cache
def _schema() -> pa.Schema:
    text, number, long, float32s = pa.string(), pa.float64(), pa.int64(), pa.list_(pa.float32())
    counts = ("bytes_read", "bytes_total", "downloads", "layers", "vocabulary")
    types = {**dict.fromkeys(counts, long), "notes": pa.list_(text), "seconds": number}
    vector = pa.struct([("recipe", text), ("vector", float32s), ("norm", number)])
    slot = pa.struct(
        [("stack", text), ("layer", pa.int32()), ("role", text)]
        + [("rows", pa.int32()), ("columns", pa.int32())]
        + [(name, number) for name in STATISTICS]
        + [("sigma", float32s), ("sketch", pa.binary())]
    )
    layer = pa.struct([("stack", text), ("layer", pa.int32()), ("numbers", float32s)])
    linear = pa.struct([("recipe", text), ("pooled", float32s), ("layers", pa.list_(layer))])
    footprint = pa.struct(
        [
            *(("kind", text), ("vocabulary", long), ("touched", long), ("share", number)),
            *(("tokenizer", text), ("note", text)),
            *(("tokens", pa.binary()), ("own_tokenizer", pa.binary())),
        ]
    )
    return pa.schema(
        [(name, types.get(name, text)) for name in models.OUTCOME_COLUMNS]
        + [("vectors", pa.list_(vector)), ("slots", pa.list_(slot)), ("linear", linear)]
        + [("footprint", footprint)]
    )


def _table(content: bytes, columns: list[str] | None) -> pa.Table:
    """The rows of a part's file; `ValueError` where they are no rows of a part."""
    try:
        table = parquet.read_table(pa.BufferReader(content), columns=columns)
    except (pa.ArrowException, OSError, ValueError):
        raise ValueError("not a readable Parquet file") from None
    wanted = _schema() if columns is None else [_schema().field(c) for c in columns]
    if {field.name: field.type for field in table.schema} != {f.name: f.type for f in wanted}:
        raise ValueError("other columns")
    return table


def _unusable(name: str, what: str) -> StoreDamaged:
    return StoreDamaged(f"{name}: not a usable part of an index: {what}; {REMEDY}")


def _about(raw: Mapping[str, Any]) -> tuple[Part, exchange.ListedFile]:
    """The part that a manifest describes, without its outcomes, and the file that has them; raises
    as the checks of its fields."""
    texts = {
        field: exchange.checked_text(raw[field], field, records.LONGEST_TEXT)
        for field in ("lease", "revision", "architecture", "written_at")
        if raw[field] is not None or field not in ("revision", "architecture")
    }
    datetime.fromisoformat(exchange.checked_match(texts["written_at"], "written_at", _WRITTEN_AT))
    if not isinstance(raw["base"], str) or not 0 < len(raw["base"]) <= records.LONGEST_TEXT:
        raise ValueError("base")
    part = Part(
        **texts,
        base=raw["base"],
        recipes=tuple(
            exchange.checked_recipe(recipe, records.LONGEST_TEXT)
            for recipe in exchange.checked_list(raw["recipes"], "recipes", MOST_RECIPES)
        ),
        outcomes=(),
        layout=exchange.checked_layout(raw["layout"], records.LONGEST_TEXT),
        base_bytes=exchange.checked_count(raw["base_bytes"], "base_bytes", 1 << 62),
    )
    return part, exchange.checked_file(raw["file"], "file")


def _row(outcome: records.Outcome) -> dict[str, Any]:
    row = models.outcome_row(outcome)
    if isinstance(outcome, records.Indexed):
        row["vectors"] = [
            {"recipe": f.recipe.id, "vector": f.vector.tolist(), "norm": f.norm}
            for f in outcome.fingerprints
        ]
        row["slots"] = [slot_row(stats) for stats in outcome.slots]
        if (linear := outcome.linear) is not None:
            layers = [
                {"stack": stack, "layer": layer, "numbers": numbers.tolist()}
                for (stack, layer), numbers in linear.layers.items()
            ]
            pooled = linear.pooled.tolist()
            row["linear"] = {"recipe": linear.recipe, "pooled": pooled, "layers": layers}
    if outcome.footprint is not None:
        own = {"own_tokenizer": outcome.footprint.own_tokenizer or None}
        row["footprint"] = footprint_row(outcome.footprint) | own
    return row


def _outcome(row: Mapping[str, Any], recipes: Mapping[str, records.Recipe]) -> records.Outcome:
    cost = {"bytes_read": row["bytes_read"], "seconds": row["seconds"]}
    columns = {name: row[name] for name in models.RECORD_COLUMNS}
    model = records.ModelRecord(**columns | {"notes": tuple(row["notes"] or ())})
    cost["footprint"] = row["footprint"] and footprint_of(row["footprint"])
    if row["code"] is not None:
        if row["code"] not in REASONS:
            raise ValueError("a code that this deltadex does not know")
        return records.Refused(model=model, code=row["code"], reason=row["reason"], **cost)
    linear = row["linear"] and records.LinearSketch(
        recipe=recipes[row["linear"]["recipe"]].id,
        pooled=fixed(row["linear"]["pooled"]),
        layers={(e["stack"], e["layer"]): fixed(e["numbers"]) for e in row["linear"]["layers"]},
    )
    fingerprints = [
        records.Fingerprint(recipe=recipes[v["recipe"]], vector=fixed(v["vector"]), norm=v["norm"])
        for v in row["vectors"]
    ]
    slots = tuple(slot_stats(slot) for slot in row["slots"])
    return records.Indexed(
        model=model, fingerprints=tuple(fingerprints), slots=slots, linear=linear, **cost
    )


class PartFolder:
    """Parts by base and recipes: `base=…/recipe=…/part-<lease>.json`, manifests, each beside the
    Parquet file that it lists.

    A manifest appears when both are complete; neither changes.
    """

    def __init__(self, url: str) -> None:
        """The folder at a path, or at an address such as `s3://bucket/parts`; raises `StoreError`
        if fsspec cannot open such an address here."""
        import fsspec

        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError, OSError) as err:
            reason = getattr(err, "strerror", None) or err
            raise StoreError(f"{url}: cannot be opened: {reason}") from err
        protocol = self._files.protocol
        self.is_local = "file" in ((protocol,) if isinstance(protocol, str) else protocol)
        # workers have other working folders
        self.url = str(self._root) if self.is_local else url

    def write(self, part: Part) -> str:
        """Write a part, in place of one of the same lease; returns its path from the folder. Raises
        `StoreFull` if the system refuses."""
        recipes = "+".join(recipe.id for recipe in part.recipes)
        path = f"{_folder(part.base)}/recipe={recipes}/{_name(part.lease)}"
        table = pa.Table.from_pylist([_row(o) for o in part.outcomes], schema=_schema())
        content = exchange.parquet_bytes(table)
        file = exchange.listed_file(content, len(part.outcomes))
        about = {f.name: getattr(part, f.name) for f in fields(Part) if f.name != "outcomes"}
        about["recipes"] = [asdict(recipe) for recipe in part.recipes]
        self._put(_beside(path, file), content)
        self._put(
            path,
            exchange.manifest_bytes({"format": exchange.FORMAT, **about, "file": asdict(file)}),
        )
        return path

    def paths(self, base: str | None = None) -> list[str]:
        """Every part of a family, or of all, from the folder, sorted; raises `StoreError` if the
        folder cannot be listed."""
        return self._listed(base, "part-*.json")

    def read(self, path: str) -> Part:
        """A part.

        Raises:
            StoreDamaged: it is not what was written.
            StoreError: it cannot be read.
        """
        about, content = self._read(path)
        recipes = {recipe.id: recipe for recipe in about.recipes}
        try:
            outcomes = tuple(_outcome(row, recipes) for row in _table(content, None).to_pylist())
            if not outcomes:
                raise ValueError("no models")
            if any(outcome.model.base != about.base for outcome in outcomes):
                raise ValueError("a model of another base")
        except (KeyError, TypeError, ValueError) as err:
            # a missing value raises the other two
            what = str(err) if isinstance(err, ValueError) else "a value is missing"
            raise _unusable(f"{self.url}/{path}", what) from None
        return replace(about, outcomes=outcomes)

    def known(self, base: str) -> dict[str, models.ModelRow]:
        """What a second run compares with models' files, of every model of a family's parts; a
        damaged part counts as if it were not there."""
        known: dict[str, models.ModelRow] = {}
        for path in self.paths(base):
            try:
                about, content = self._read(path)
                rows = _table(content, [*models.OUTCOME_COLUMNS]).to_pylist()
            except (StoreDamaged, ValueError) as err:
                log.warning("%s: %s; it counts as if it were not there: delete it", path, err)
            else:
                recipes = [recipe.id for recipe in about.recipes]
                named = [models.ModelRow.of_columns(row, recipes) for row in rows if row["id"]]
                known |= {row.id: row for row in named}
        return known

    def remove_family(self, base: str) -> None:
        """Remove a family's parts, what killed writers left, and folders that are empty then."""
        endings = ("part-*.json", "models-*.parquet", ".*.partial")
        paths = [path for ending in endings for path in self._listed(base, ending)]
        for path in paths:
            try:
                self._files.rm_file(f"{self._root}/{path}")
            except FileNotFoundError:
                pass
            except OSError as err:
                log.warning("%s/%s: cannot be removed: %s", self.url, path, err)
        if self.is_local:
            folders = {folder for path in paths for folder in PurePosixPath(path).parents}
            for folder in sorted(folders, reverse=True):
                with suppress(OSError):
                    Path(self._root, folder).rmdir()

    def _read(self, path: str) -> tuple[Part, bytes]:
        """A part without its outcomes, and the file that has them, as it was written; raises as
        `read`."""
        name = f"{self.url}/{path}"
        about, file = exchange.parsed_manifest(
            self._get(path), _about, lambda what: _unusable(name, what)
        )
        if PurePosixPath(path).name != _name(about.lease):
            raise _unusable(name, f"it is {_name(about.lease)}")
        content = self._get(_beside(path, file))
        if exchange.sha256_of(content) != file.sha256:
            raise _unusable(name, f"{file.name} is not what was written (SHA-256 differs)")
        return about, content

    def _get(self, path: str) -> bytes:
        """Raises `StoreDamaged` for a pipe or device, which has no end, and what is not there."""
        place = f"{self._root}/{path}"
        if not self._files.isfile(place):
            raise _unusable(f"{self.url}/{path}", "no file")
        with refused_as(StoreError, f"{self.url}/{path}: cannot be read"):
            return bytes(self._files.cat_file(place))

    def _put(self, path: str, content: bytes) -> None:
        if self.is_local:
            target = Path(self._root) / path
            make_folder(target.parent)
            write_atomically(target, content)
            return
        place = f"{self._root}/{path}"
        with refused_as(StoreFull, f"{self.url}/{path}"):
            self._files.makedirs(place.rpartition("/")[0], exist_ok=True)
            # fsspec's transaction: the file has its name once it is complete
            with self._files.transaction, self._files.open(place, "wb") as file:
                file.write(content)

    def _listed(self, base: str | None, pattern: str) -> list[str]:
        root = self._root if base is None else f"{self._root}/{_folder(base)}"
        with refused_as(StoreError, f"{self.url}: cannot be listed"):
            self._files.invalidate_cache()
            listed = self._files.find(root) if self._files.exists(root) else []
        names = (str(path)[len(self._root) :].lstrip("/") for path in listed)
        return sorted(name for name in names if PurePosixPath(name).match(pattern))


def _beside(path: str, file: exchange.ListedFile) -> str:
    return f"{path.rpartition('/')[0]}/{file.name}"


def _name(lease: str) -> str:
    return f"part-{lease}.json"


def _folder(base: str) -> str:
    name = quote(base, safe="")
    if len(name) > LONGEST_NAME:
        name = f"{name[-60:]}-{hashlib.sha256(base.encode()).hexdigest()[:16]}"
    return f"base={name}"


def commit_part(
    catalog: Catalog, part: Part, known: MutableMapping[str, models.ModelRow]
) -> Sequence[records.Outcome]:
    """Record what a part has that the catalog has not, in one transaction; returns that.

    An outcome is passed over if the catalog has it, or a later reading of the model, or a
    fingerprint that it would replace by a fault which may pass. What is `known` is brought up to
    date. After the last part, `save_family` adds the shapes that the family's models changed.

    Raises:
        StoreDamaged: its rows are not what a run writes; nothing of it is recorded.
    """
    news = [o for o in part.outcomes if _is_news(o, part, known.get(o.model.id))]
    try:
        if news:
            catalog.record_all(news, part.written_at, checked=True)
    except (StoreFull, StoreLocked):
        raise
    except (StoreError, pa.ArrowException) as err:
        raise _unusable(_name(part.lease), str(err).partition("\n")[0][:200]) from err
    names = ("base", "revision", "architecture", "layout")
    said, before = BaseRecord(**{n: getattr(part, n) for n in names}), catalog.base(part.base)
    if said.completed(before) != before:
        catalog.save_base(said)
    for outcome in news:
        row = models.ModelRow.of_outcome(outcome, part.written_at)
        last = known.get(row.id)
        if last and last.signature == row.signature and row.status == "indexed":
            row = replace(row, recipes=tuple(sorted({*last.recipes, *row.recipes})))
        known[row.id] = row
    return news


def _is_news(outcome: records.Outcome, part: Part, known: models.ModelRow | None) -> bool:
    if known is None:
        return models.may_record(outcome, None)
    is_older = bool(known.indexed_at) and part.written_at[:19] < known.indexed_at[:19]
    return not is_older and not known.has(outcome) and models.may_record(outcome, known)
