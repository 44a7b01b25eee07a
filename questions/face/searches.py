"""What a search starts from: a stored model, files, a model in memory, a vector."""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from ... import errors
from ...records import Fingerprint, Indexed, Recipe
from .opened import Kind, find_family

if TYPE_CHECKING:
    from ...search import FreshQuery, StoredQuery
    from ...store import AttachedIndex, Catalog

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    import numpy as np  # for annotations alone


log = logging.getLogger(__name__)

Vector: TypeAlias = "Sequence[float] | np.ndarray"

IN_MEMORY, VECTOR, UPLOAD = "model in memory", "vector", "uploaded adapter"
"""Names of queries that have none of their own."""


@runtime_checkable
class ModelInMemory(Protocol):
    """A model of PEFT or transformers, which can save itself into a folder."""

    def save_pretrained(self, save_directory: str, **settings: Any) -> object: ...


Query: TypeAlias = "str | Path | ModelInMemory | Indexed | StoredQuery | FreshQuery | Vector"
"""A model that others are to be similar to."""


def open_attached(catalog: Catalog) -> list[AttachedIndex]:
    """The attached indexes of a catalog, by name; `BadIndex` where one is missing or damaged."""
    if not catalog.attachments.all():
        return []
    from ...store import AttachedIndexes

    return catalog.access.derived(AttachedIndexes).of(catalog.path, catalog.attachments)


def find_base_with(
    catalog: Catalog, spelling: str | None, attached: Sequence[AttachedIndex]
) -> str | None:
    """The base as the catalog has it, or as an attached index has it, of a folder by its name; None
    for None."""
    try:
        return catalog.find_base(spelling)
    except (errors.EmptyCatalog, errors.UnknownBase):
        from ...indexer import BaseName, base_key, folder_at

        folder = folder_at(spelling) if spelling else None
        meant = BaseName.of(str(folder.resolve()) if folder else spelling or "")
        fitting = {index.base for index in attached if meant.fits(BaseName.of(index.base))}
        # a folder tells no owner: a base without one is meant before others
        names = sorted(fitting, key=lambda name: ("/" in base_key(name), name))
        if not names and attached:
            known = (*catalog.bases(), *(index.base for index in attached))
            raise errors.UnknownBase(
                f"no base {spelling!r}{errors.offered(spelling or '', known)}"
            ) from None
        if not names:
            raise
        return spelling if spelling in names else names[0]


@dataclass(frozen=True, slots=True)
class Searches:
    """What a search starts from, in a catalog and the indexes attached to it.

    Attributes:
        base: The family; None guesses it from the model.
        place: As the user spelled the base, which may be its folder.
        recipe: Name or id of a recipe; None takes that of most models.
    """

    catalog: Catalog
    base: str | None
    recipe: str | None
    attached: Sequence[AttachedIndex] = ()
    place: str | None = None

    def from_any(self, model: Query, kind: Kind = "full") -> StoredQuery | FreshQuery:
        """A search from anything that a user calls a model; `kind` is that of a vector's.

        Raises:
            UnknownModel: it is neither stored, nor a folder, nor on the Hub.
            RequestError: it was refused when it was indexed and its files are not there, it
                cannot be fingerprinted, or no family is named.
        """
        from ...search import FreshQuery, StoredQuery

        if isinstance(model, StoredQuery | FreshQuery):
            return model
        if isinstance(model, Indexed):
            return _fresh(model, UPLOAD)
        if isinstance(model, str | Path):
            return self._named(str(model))
        if isinstance(model, ModelInMemory):
            return self._in_memory(model)
        return self._vector(model, kind)

    def indexes_of(self, base: str) -> list[AttachedIndex]:
        """The attached indexes of a base, whatever its spelling, whose matrices have the shapes
        that the catalog knows."""
        if not self.attached:
            return []
        from ...indexer import base_key

        shapes = self.catalog.base(base).shapes
        chosen = []
        for index in self.attached:
            if base_key(index.base) != base_key(base):
                continue
            theirs = index.manifest.shapes
            if any(shapes[slot] != theirs[slot] for slot in shapes.keys() & theirs.keys()):
                log.info("%s is not searched: its base %s has other shapes", index.name, index.base)
            else:
                chosen.append(index)
        return chosen

    def _named(self, model: str) -> StoredQuery | FreshQuery:
        """The stored model of that id or folder, or that of an attached index; else a fresh
        fingerprint of the folder or Hub id."""
        from ...indexer import is_model_path
        from ...search import StoredQuery

        catalog, attached = self.catalog, self.attached
        unknown: errors.RequestError | None = None
        if self.base is None or self.base in catalog.bases():
            exact = catalog.stored_models(model, self.base)
            if len(exact) == 1:
                return StoredQuery(exact[0].id, exact[0].base)
            try:
                row = catalog.model(model, self.base)
                on_hub = row.source == "hub" and is_model_path(model)
                if row.status == "indexed" or not (on_hub or Path(model).is_dir()):
                    stored = catalog.stored(row.id, row.base)
                    return StoredQuery(stored.id, stored.base)
            except (errors.UnknownModel, errors.EmptyCatalog) as err:
                unknown = err
        if not Path(model).is_dir() and (known := self._of_attached(model)) is not None:
            return known
        ids = chain(catalog.alike("id", model), *(index.ids for index in attached))
        if attached and not is_model_path(model):
            names = ", ".join(index.name for index in attached)
            near = errors.offered(model, ids, None)
            raise errors.UnknownModel(
                f"no model '{model}' in {catalog.path.name}, nor in {names}{near}"
            )
        is_empty = isinstance(unknown, errors.EmptyCatalog)
        if unknown is not None and not attached and (is_empty or not is_model_path(model)):
            raise unknown
        try:
            return _fresh(self._fingerprinted(model), model)
        except errors.UnknownModel as err:
            raise errors.UnknownModel(f"{err}{errors.offered(model, ids, None)}") from None

    def _of_attached(self, model: str) -> FreshQuery | None:
        """A search from a model of an attached index; None where none has it."""
        if not self.attached:
            return None
        from ...indexer import base_key
        from ...search import FreshQuery

        for index in self.attached if self.base is None else self.indexes_of(self.base):
            row = index.row_of.get(model)
            is_wanted = self.recipe in (None, index.recipe.name, index.recipe.id)
            if row is not None and is_wanted:
                key = base_key(index.base)
                own = [name for name in self.catalog.bases() if base_key(name) == key]
                query = FreshQuery.of_attached(index, model)
                return replace(query, base=own[0] if own else index.base)
        return None

    def _in_memory(self, model: ModelInMemory) -> FreshQuery:
        # asks the Hub otherwise whether the vocabulary has grown
        settings = {"save_embedding_layers": False} if hasattr(model, "peft_config") else {}
        with tempfile.TemporaryDirectory(prefix="deltadex-") as temporary:
            folder = str(Path(temporary).resolve())
            model.save_pretrained(folder, **settings)
            try:
                return _fresh(self._fingerprinted(folder), IN_MEMORY)
            except errors.RequestError as err:
                raise errors.RequestError(str(err).replace(folder, IN_MEMORY)) from None

    def _fingerprinted(self, model: str) -> Indexed:
        """A folder or Hub id; the family is guessed where none is named."""
        from ...indexer import base_key, fingerprint_query, folder_at, guess_base

        base = self.base
        if base is None:
            own = {base_key(name) for name in self.catalog.bases()}
            others: dict[str, str] = {}
            for index in self.attached:
                if base_key(index.base) not in own:
                    others.setdefault(base_key(index.base), index.base)
            base = guess_base(self.catalog, model, list(others.values()))
        recipe, layout = self._recipe_of(base)
        if base in self.catalog.bases() or not (published := self.indexes_of(base)):
            return fingerprint_query(self.catalog, model, base, recipe, layout)
        shapes = _largest(published).manifest.shapes
        place = self.place if self.place and folder_at(self.place) else base
        try:
            made = fingerprint_query(self.catalog, model, place, recipe, layout, shapes)
        except errors.RequestError as err:
            if isinstance(err.__cause__, errors.ModelError) and err.__cause__.code == "needs-base":
                line = f"{err}; --base FOLDER reads it from a folder of that name"
                raise type(err)(line) from err
            raise
        return replace(made, model=replace(made.model, base=base))

    def _vector(self, vector: Vector, kind: Kind) -> FreshQuery:
        """A search from a fingerprint's vector, of any length but zero."""
        import numpy as np

        from ...search import FreshQuery

        base = self.base or find_family(self.catalog, None)
        recipe, _ = self._recipe_of(base)
        numbers = np.asarray(vector, dtype=np.float64)
        if numbers.shape != (recipe.dim,):
            raise errors.RequestError(
                f"vector: {recipe.name} fingerprints have {recipe.dim} numbers, got {numbers.size}"
            )
        norm = float(np.linalg.norm(numbers))
        if not (np.isfinite(norm) and norm > np.finfo(np.float32).tiny):
            raise errors.RequestError("vector: its length is zero or out of range")
        unit = (numbers / norm).astype(np.float32)
        made = Fingerprint(recipe=recipe, vector=unit, norm=norm)
        return FreshQuery(model=VECTOR, base=base, fingerprint=made, kind=kind)

    def _recipe_of(self, base: str) -> tuple[Recipe, tuple[tuple[str, str, int], ...] | None]:
        """The recipe that a model of a base is fingerprinted under: the catalog's, else that of the
        largest attached index, with the family's layout, which the catalog does not know."""
        try:
            if base in self.catalog.bases() or not self.attached:
                return self.catalog.find_recipe(self.recipe, base), None
        except (errors.EmptyCatalog, errors.UnknownRecipe):
            if not self.attached:
                raise
        wanted = self.recipe
        known = [i for i in self.indexes_of(base) if wanted in (None, i.recipe.name, i.recipe.id)]
        if not known:
            return self.catalog.find_recipe(wanted, base), None
        return _largest(known).recipe, _largest(known).manifest.layout


def _fresh(made: Indexed, name: str) -> FreshQuery:
    from ...search import FreshQuery

    return FreshQuery(
        model=name,
        base=made.model.base,
        fingerprint=made.fingerprints[0],
        kind=made.model.kind,
        dataset=made.model.dataset,
        slots=made.slots,
        footprint=made.footprint,
    )


def _largest(indexes: Sequence[AttachedIndex]) -> AttachedIndex:
    return max(indexes, key=lambda index: index.manifest.models)
