"""What a search starts from: a stored model, files, a model in memory, a vector; attached indexes
beside the families of a catalog."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import KW_ONLY, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

from ..errors import (
    BadFilter,
    EmptyCatalog,
    RequestError,
    UnknownBase,
    UnknownModel,
    UnknownRecipe,
    offered,
)
from ..indexer import is_model_path
from ..options import Place, Question, option, record
from ..records import Colour, Fingerprint, Indexed, Layout, Recipe
from ..store import Filters

if TYPE_CHECKING:
    import numpy as np

    from ..search import FreshQuery, StoredQuery
    from ..store import AttachedIndex, Catalog

log = logging.getLogger(__name__)

Kind = Literal["full", "adapter"]
ONLY_FAMILY = "Only this family, where the catalog has several."
"""What `base` says to a question."""

Vector: TypeAlias = "Sequence[float] | np.ndarray"

IN_MEMORY, VECTOR, UPLOAD = "model in memory", "vector", "uploaded adapter"
"""Names of queries that have none of their own."""


@runtime_checkable
class ModelInMemory(Protocol):
    """A model of PEFT or transformers, which can save itself into a folder."""

    def save_pretrained(self, save_directory: str, **settings: Any) -> object: ...


Query: TypeAlias = "str | Path | ModelInMemory | Indexed | StoredQuery | FreshQuery | Vector"
"""A model that others are to be similar to."""


@record
class Family(Question):
    """A question about one family, under one recipe."""

    _: KW_ONLY
    recipe: str | None = option(
        default=None, shown_default="sketch", help="Name or id of a recipe."
    )
    base: str | None = option(default=None, help=ONLY_FAMILY)


@record
class MapOptions(Family):
    """How a family is drawn."""

    path: Place = option(
        "-o",
        "--output",
        default="deltadex-map.html",
        doors="local",
        file="file",
        help="A page (.html) or a picture (.png, .svg).",
    )
    _: KW_ONLY
    layout: Layout = option(
        default="auto",
        help="Method that places models: auto is t-SNE, of landmarks where models are many; umap "
        "needs deltadex[umap].",
    )
    seed: int = option(
        default=0, doors="local", least=0, most=2**32 - 1, help="Random seed of the layout."
    )
    colour: Colour | None = option(
        default=None,
        doors="local",
        shown_default="dataset",
        help="Colour a picture by this column.",
    )
    dark: bool = option(
        default=False,
        doors="local",
        help="Draw a picture light on dark; a page follows its reader's setting.",
    )


def find_family(catalog: Catalog, base: str | None) -> str:
    """The base as the catalog has it; of the only family, where `base` is None.

    Raises:
        UnknownBase: there is no such family, or several.
        EmptyCatalog: there is none.
        RequestError: there are several, and none is named.
    """
    family, bases = catalog.find_base(base), catalog.bases()
    if family is not None:
        return family
    if not bases:
        catalog.find_recipe(None)  # says what fills a catalog
    if len(bases) != 1:
        raise RequestError(f"which family? Add --base, one of: {', '.join(bases) or 'none yet'}")
    return bases[0]


def require_labels(
    catalog: Catalog, wanted: Filters, attached: Sequence[AttachedIndex] = ()
) -> None:
    """Refuse a dataset or an author that no model has, here or in an attached index.

    Raises:
        BadFilter: with the nearest labels.
    """
    for column in Filters.equal:
        label = getattr(wanted, column)
        if label is not None:
            beside = (index.models.column(column).unique().to_pylist() for index in attached)
            known = sorted({*catalog.alike(column, label), *filter(None, chain(*beside))})
            if label not in known:
                raise BadFilter(f"no model has the {column} {label!r}{offered(label, known)}")


def find_query(
    catalog: Catalog,
    model: str,
    base: str | None,
    recipe: str | None,
    attached: Sequence[AttachedIndex] = (),
) -> StoredQuery | FreshQuery:
    """The stored model of that id or folder, or that of an attached index; else a fresh
    fingerprint of the folder or Hub id.

    Raises:
        UnknownModel: it is neither.
        RequestError: it was refused when it was indexed and its files are not at hand, it cannot be
            fingerprinted, or no family is named.
    """
    from ..search import StoredQuery

    unknown: RequestError | None = None
    if base is None or base in catalog.bases():
        exact = catalog.stored_models(model, base)
        if len(exact) == 1:
            return StoredQuery(exact[0].id, exact[0].base)
        try:
            row = catalog.model(model, base)
            on_hub = row.record.source == "hub" and is_model_path(model)
            if row.status == "indexed" or not (on_hub or Path(model).is_dir()):
                stored = catalog.stored(row.id, row.base)
                return StoredQuery(stored.id, stored.base)
        except (UnknownModel, EmptyCatalog) as err:
            unknown = err
    if not Path(model).is_dir():
        known = attached_query(catalog, attached, model, base, recipe)
        if known is not None:
            return known
    ids = chain(catalog.alike("id", model), *(index.ids for index in attached))
    if attached and not is_model_path(model):
        names = ", ".join(index.name for index in attached)
        raise UnknownModel(
            f"no model '{model}' in {catalog.path.name}, nor in {names}{offered(model, ids, None)}"
        )
    is_empty = isinstance(unknown, EmptyCatalog)
    if unknown is not None and not attached and (is_empty or not is_model_path(model)):
        raise unknown
    try:
        return fresh_query(fingerprint(catalog, model, base, recipe, attached), model)
    except UnknownModel as err:
        raise UnknownModel(f"{err}{offered(model, ids, None)}") from None


def memory_query(
    catalog: Catalog,
    model: ModelInMemory,
    base: str | None,
    recipe: str | None,
    attached: Sequence[AttachedIndex] = (),
) -> FreshQuery:
    """A fresh fingerprint of a model in memory; raises as `find_query`."""
    import tempfile

    # asks the Hub otherwise whether the vocabulary has grown
    settings = {"save_embedding_layers": False} if hasattr(model, "peft_config") else {}
    with tempfile.TemporaryDirectory(prefix="deltadex-") as temporary:
        folder = str(Path(temporary).resolve())
        model.save_pretrained(folder, **settings)
        try:
            return fresh_query(fingerprint(catalog, folder, base, recipe, attached), IN_MEMORY)
        except RequestError as err:
            raise RequestError(str(err).replace(folder, IN_MEMORY)) from None


def fingerprint(
    catalog: Catalog,
    model: str,
    base: str | None,
    recipe: str | None,
    attached: Sequence[AttachedIndex] = (),
) -> Indexed:
    """A fresh fingerprint of a folder or Hub id; the family is guessed where none is named."""
    from ..indexer import fingerprint_query, guess_base

    if base is None:
        base = guess_base(catalog, model, other_bases(catalog, attached))
    chosen, layout = recipe_of(catalog, base, recipe, attached)
    shapes = None
    if base not in catalog.bases() and (published := indexes_of(catalog, base, attached)):
        shapes = max(published, key=lambda index: index.manifest.models).manifest.shapes
    return fingerprint_query(catalog, model, base, chosen, layout, shapes)


def fresh_query(made: Indexed, name: str) -> FreshQuery:
    """A search from what was just fingerprinted."""
    from ..search import FreshQuery

    return FreshQuery(
        model=name,
        base=made.model.base,
        fingerprint=made.fingerprints[0],
        kind=made.model.kind,
        dataset=made.model.dataset,
        slots=made.slots,
    )


def vector_query(
    catalog: Catalog,
    vector: Vector,
    base: str,
    recipe: str | None,
    kind: Kind,
    attached: Sequence[AttachedIndex] = (),
) -> FreshQuery:
    """A search from a fingerprint's vector, of any length but zero.

    Raises:
        RequestError: it has not as many numbers as the recipe's, or no direction.
    """
    import numpy as np

    from ..search import FreshQuery

    chosen, _ = recipe_of(catalog, base, recipe, attached)
    numbers = np.asarray(vector, dtype=np.float64)
    if numbers.shape != (chosen.dim,):
        raise RequestError(
            f"vector: {chosen.name} fingerprints have {chosen.dim} numbers, got {numbers.size}"
        )
    norm = float(np.linalg.norm(numbers))
    if not (np.isfinite(norm) and norm > np.finfo(np.float32).tiny):
        raise RequestError("vector: its length is zero or out of range")
    unit = (numbers / norm).astype(np.float32)
    return FreshQuery(
        model=VECTOR,
        base=base,
        fingerprint=Fingerprint(recipe=chosen, vector=unit, norm=norm),
        kind=kind,
    )


def start_of(
    catalog: Catalog,
    model: Query,
    base: str | None,
    recipe: str | None,
    kind: Kind = "full",
    attached: Sequence[AttachedIndex] = (),
) -> StoredQuery | FreshQuery:
    """What a search for anything that a user calls a model starts from; raises as `find_query`."""
    from ..search import FreshQuery, StoredQuery

    if isinstance(model, StoredQuery | FreshQuery):
        return model
    if isinstance(model, Indexed):
        return fresh_query(model, UPLOAD)
    if isinstance(model, str | Path):
        return find_query(catalog, str(model), base, recipe, attached)
    if isinstance(model, ModelInMemory):
        return memory_query(catalog, model, base, recipe, attached)
    family = base or find_family(catalog, None)
    return vector_query(catalog, model, family, recipe, kind, attached)


# attached indexes


def open_attached(catalog: Catalog) -> list[AttachedIndex]:
    """The attached indexes of a catalog, by name.

    Raises:
        BadIndex: one is missing or damaged.
    """
    from ..store import AttachedIndexes

    return catalog.access.derived(AttachedIndexes).of(catalog.path, catalog.attachments)


def find_base_with(
    catalog: Catalog, spelling: str | None, attached: Sequence[AttachedIndex]
) -> str | None:
    """The base as the catalog has it, or as an attached index has it; None for None.

    Raises:
        EmptyCatalog: there is no family at all.
        UnknownBase: lists what there is.
    """
    try:
        return catalog.find_base(spelling)
    except (EmptyCatalog, UnknownBase):
        from ..indexer import base_key

        key = base_key(spelling or "")
        names = sorted({index.base for index in attached if base_key(index.base) == key})
        if not names:
            raise
        return spelling if spelling in names else names[0]


def other_bases(catalog: Catalog, attached: Sequence[AttachedIndex]) -> list[str]:
    """The bases of attached indexes that are no family of the catalog, each once."""
    if not attached:
        return []
    from ..indexer import base_key

    keys = {base_key(base) for base in catalog.bases()}
    others: dict[str, str] = {}
    for index in attached:
        if base_key(index.base) not in keys:
            others.setdefault(base_key(index.base), index.base)
    return list(others.values())


def indexes_of(
    catalog: Catalog, base: str, attached: Sequence[AttachedIndex]
) -> list[AttachedIndex]:
    """Those of a base, whatever its spelling, whose matrices have the shapes that the catalog
    knows."""
    if not attached:
        return []
    from ..indexer import base_key

    shapes = catalog.base(base).shapes
    chosen = []
    for index in attached:
        if base_key(index.base) != base_key(base):
            continue
        theirs = index.manifest.shapes
        if any(shapes[slot] != theirs[slot] for slot in shapes.keys() & theirs.keys()):
            log.info("%s is not searched: its base %s has other shapes", index.name, index.base)
        else:
            chosen.append(index)
    return chosen


def recipe_of(
    catalog: Catalog, base: str, recipe: str | None, attached: Sequence[AttachedIndex]
) -> tuple[Recipe, tuple[tuple[str, str, int], ...] | None]:
    """The recipe that a model of a base is fingerprinted under, and the family's layout where the
    catalog does not know it: the catalog's recipe, else that of the largest attached index.

    Raises:
        EmptyCatalog, UnknownRecipe: there is none of that name.
    """
    is_own = base in catalog.bases()
    try:
        if is_own or not attached:
            return catalog.find_recipe(recipe, base), None
    except (EmptyCatalog, UnknownRecipe):
        if not attached:
            raise
    found = indexes_of(catalog, base, attached)
    known = [index for index in found if recipe in (None, index.recipe.name, index.recipe.id)]
    if not known:
        return catalog.find_recipe(recipe, base), None
    largest = max(known, key=lambda index: index.manifest.models)
    return largest.recipe, largest.manifest.layout


def attached_query(
    catalog: Catalog,
    attached: Sequence[AttachedIndex],
    model: str,
    base: str | None,
    recipe: str | None,
) -> FreshQuery | None:
    """A search from a model of an attached index; None where none has it."""
    if not attached:
        return None
    from ..indexer import base_key
    from ..search import FreshQuery

    for index in attached if base is None else indexes_of(catalog, base, attached):
        row = index.row_of.get(model)
        is_wanted = recipe in (None, index.recipe.name, index.recipe.id)
        if row is not None and is_wanted and index.is_shown[row]:
            key = base_key(index.base)
            own = [name for name in catalog.bases() if base_key(name) == key]
            return replace(FreshQuery.of_attached(index, model), base=own[0] if own else index.base)
    return None
