"""What gives the candidates of a catalog's searches, as a user names it."""

from __future__ import annotations

import os

from ...errors import EngineError, RecipeMismatch, RequestError
from ..catalog import Catalog
from .export_note import read_note
from .exported_families import ExportedFamilies
from .opening import open_collection
from .points import PointCollection
from .target import FORMS, is_target, parse_target

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
