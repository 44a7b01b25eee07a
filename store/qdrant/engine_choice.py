"""What gives the candidates of a catalog's searches, as a user names it; targets are opened by the
engine that they need, which is imported only then."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import EngineError, RecipeMismatch, RequestError
from ..catalog import Catalog
from ..files import derived_path, make_folder, write_atomically
from .index import ExportedFamilies
from .points import FORMS, EdgeTarget, PointCollection, Target, is_target, parse_target

NOTE_ENDING = ".qdrant"


def write_note(catalog: Path, base: str, recipe: str, note: Mapping[str, Any]) -> None:
    """Note a complete export beside the catalog; a folder that cannot be written has none.

    Raises:
        StoreFull: the system refuses.
    """
    path = derived_path(catalog, base, recipe, NOTE_ENDING)
    make_folder(path.parent)
    write_atomically(path, json.dumps(dict(note), indent=1).encode())


def read_note(catalog: Path, base: str, recipe: str) -> dict[str, Any] | None:
    """The last complete export of a family; None where none is noted."""
    try:
        note = json.loads(derived_path(catalog, base, recipe, NOTE_ENDING).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return dict(note) if isinstance(note, dict) and isinstance(note.get("target"), str) else None


def open_collection(target: Target) -> PointCollection:
    """The collection at a target; with `dim` None, where there is none yet.

    Raises:
        EngineError: it is damaged, not reached, or not ours.
        RequestError: the engine is not installed.
    """
    try:
        if isinstance(target, EdgeTarget):
            from .edge import EdgeCollection

            return EdgeCollection(target.folder)
        from .server import ServerCollection

        return ServerCollection.at(target)
    except ModuleNotFoundError as err:
        name = (err.name or "").split(".")[0]
        if name not in ("qdrant_edge", "qdrant_client"):
            raise
        raise RequestError(
            f"{target} needs {name.replace('_', '-')}: pip install 'deltadex[qdrant]'"
        ) from err


TARGET_VARIABLE = "DELTADEX_QDRANT"


def use_exported(catalog: Catalog, engine: str) -> dict[tuple[str, str], str]:
    """Have searches of a catalog take candidates from Qdrant.

    Args:
        engine: A target as `parse_target` takes it; or `qdrant`, for that of the environment's
            DELTADEX_QDRANT, else for those of the last exports from this catalog.

    Returns:
        The targets by base and recipe; other families stay with FAISS.

    Raises:
        EngineError: a target is not reached, damaged, or empty.
        RecipeMismatch: a target holds no family of this catalog.
        RequestError: no export is noted, or a target is not understood.
    """
    exported = catalog.access.derived(ExportedFamilies)
    families = [(group["base"], group["id"]) for group in catalog.stats()["recipes"]]
    if engine != "qdrant" and not is_target(engine):
        raise RequestError(f"no engine of that name: give faiss, qdrant, {FORMS}")
    target = os.environ.get(TARGET_VARIABLE) if engine == "qdrant" else engine
    if target:
        collection = open_collection(parse_target(target))
        try:
            family = family_of(collection)
            if family not in families:
                raise RecipeMismatch(
                    f"{collection.target} holds the vectors of {family[0]} under {family[1]}; this "
                    "catalog has none: name the target of its own export"
                )
        except BaseException:
            collection.close()
            raise
        exported.use(*family, collection)
        return exported.targets
    for base, recipe in families:
        note = read_note(catalog.path, base, recipe)
        if note is not None:
            collection = open_collection(parse_target(str(note["target"])))
            exported.use(base, recipe, collection)
    if not exported.targets:
        raise RequestError(
            "no export of this catalog to Qdrant is noted: run `deltadex export --to TARGET` "
            f"first, or name the target ({FORMS})"
        )
    return exported.targets


def family_of(collection: PointCollection) -> tuple[str, str]:
    """Base and recipe of a collection's points.

    Raises:
        EngineError: there are none.
        RecipeMismatch: they are of another program.
    """
    if collection.dim is None or not (page := collection.page(0, 1, with_vectors=False)):
        raise EngineError(
            f"{collection.target} holds nothing: run `deltadex export --to {collection.target}`"
        )
    payload = page[0].payload
    if not {"base", "recipe", "digest"} <= set(payload):
        raise RecipeMismatch(
            f"{collection.target} holds points that `deltadex export` did not write: name another "
            "target"
        )
    return str(payload["base"]), str(payload["recipe"])
