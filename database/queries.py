"""What a search starts from: a stored model, files, a model in memory, a vector, an upload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

from ..errors import EmptyCatalog, RequestError, UnknownModel, offered
from ..indexer import is_model_path
from ..records import Fingerprint, Indexed, Recipe
from .attached import attached_query, indexes_of, other_bases, recipe_of

if TYPE_CHECKING:
    import numpy as np

    from ..search import FreshQuery, StoredQuery
    from ..store import AttachedIndex, Catalog

Kind = Literal["full", "adapter"]
Vector: TypeAlias = "Sequence[float] | np.ndarray"

IN_MEMORY, VECTOR, UPLOAD = "model in memory", "vector", "uploaded adapter"
"""Names of queries that have none of their own."""


@runtime_checkable
class ModelInMemory(Protocol):
    """A model of PEFT or transformers, which can save itself into a folder."""

    def save_pretrained(self, save_directory: str, **settings: Any) -> object: ...


Query: TypeAlias = "str | Path | ModelInMemory | Indexed | StoredQuery | FreshQuery | Vector"
"""A model that others are to be similar to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterReading:
    """How an adapter that a client sent is read; a process without a catalog can do it.

    Attributes:
        base: The family's name in the catalog.
        layout: Of the family, for recipes that depend on it.
        shapes: (out, in) by slot, of the family's models; none where too little is known.
        may_open_base: Methods whose update is a function of W may read the base.
    """

    base: str
    recipe: Recipe
    layout: tuple[tuple[str, str, int], ...]
    may_open_base: bool
    shapes: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def load_adapter_reader() -> None:
    """Import what `read_adapter` needs, which takes longer than the reading.

    >>> database.load_adapter_reader()
    """
    from ..indexer import fingerprint_sent_adapter as _  # noqa: F401


def read_adapter(folder: Path, reading: AdapterReading) -> Indexed:
    """The adapter in the folder, fingerprinted; only its own files are opened.

    Raises:
        ModelError: it cannot be fingerprinted.

    >>> reading = db.adapter_reading(db.bases[0], may_open_base=False)
    >>> adapter = database.read_adapter(Path("adapter"), reading)
    >>> db.record_adapter(adapter, "sent", dataset="imdb", author=None, run=None)
    >>> db.show("sent").to_json()["kind"]
    'adapter'
    """
    from ..indexer import fingerprint_sent_adapter

    made = fingerprint_sent_adapter(
        folder,
        base=reading.base,
        recipe=reading.recipe,
        layout=reading.layout,
        shapes=reading.shapes,
        may_open_base=reading.may_open_base,
    )
    return replace(made, model=replace(made.model, source="upload"))


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
    family = base or catalog.find_family(None)
    return vector_query(catalog, model, family, recipe, kind, attached)
