"""The catalog: models, fingerprints, slots and families in one DuckDB file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Float32
from ..errors import EmptyCatalog, RequestError, UnknownBase, UnknownModel
from ..records import Fingerprint, ModelRecord, Outcome, Recipe, Slot, SlotStats
from .connection import CACHE_SHARE, T, connect, translated, write
from .directory import keep_directory, labels_of, stored_models
from .export import write_parquet, write_safetensors
from .filters import Condition, ModelFilter
from .kept import Listings, Studies
from .reading import (
    Page,
    SlotSketches,
    count_by_recipe,
    count_models,
    select_bases,
    select_family,
    select_keys,
    select_models,
    select_recipes,
    select_shapes,
    select_sketches,
    select_slots,
)
from .recipes import choose_recipe
from .rows import Family, Known, Labelled, ModelRow, Stored
from .sharing import Access, Connection
from .summaries import count_everything, group_failures, mean_cost, name_near, slot_document
from .vectors import fetch_family
from .writing import add_vectors, delete_model, relabel_models, replace_family, write_outcome

if TYPE_CHECKING:
    from .family_vectors import FamilyVectors


class Catalog:
    """An open catalog file; a context manager. One thread at a time: others take a `reader`.

    Attributes:
        access: The file, shared by all readers of this process.
        waits_for_index: Searches see the catalog as it is now; else as it was when the index
            was last caught up, by a reader that waits.
    """

    def __init__(
        self,
        access: Access,
        path: Path,
        *,
        read_only: bool,
        is_reader: bool = False,
        waits_for_index: bool = True,
    ) -> None:
        self.access = access
        self._is_reader = is_reader
        self.waits_for_index = waits_for_index
        self._connection = Connection(access)
        self.path = path
        self.read_only = read_only
        self._lock = threading.RLock()
        self._remembered: tuple[str, dict[str, Any]] = ("", {})

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        read_only: bool = False,
        create: bool = True,
        cache: str = CACHE_SHARE,
    ) -> Catalog:
        """The catalog in the file `path`.

        Args:
            cache: How much memory DuckDB may take, as it has it: `2GB`, `10%`.

        Raises:
            EmptyCatalog: there is none and `create` is false.
            StoreError: it is locked, damaged, somebody else's, or of a later version.
        """
        access = connect(path, read_only=read_only, create=create, cache=cache)
        return cls(access, path, read_only=read_only)

    def reader(self, *, waits_for_index: bool = True) -> Catalog:
        """The same catalog for another thread; to be closed before this one."""
        with translated(self.path):
            return Catalog(
                self.access,
                self.path,
                read_only=self.read_only,
                is_reader=True,
                waits_for_index=waits_for_index,
            )

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """The catalog of one moment, for all that the block reads."""
        with self._lock, translated(self.path), self._connection.snapshot():
            yield

    @property
    def changes(self) -> str:
        """Another word after every change, whichever process made it."""
        with self._lock, translated(self.path):
            return self._connection.changes()

    def shed_memory(self) -> None:
        """Give back what DuckDB remembers of the file, unless other processes use it too."""
        with self._lock, translated(self.path):
            self.access.shed()

    def close(self) -> None:
        with translated(self.path):
            self._connection.close()
            if not self._is_reader:
                self.access.close()

    def __enter__(self) -> Catalog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # writing

    def record(self, outcome: Outcome) -> None:
        """Write one model's outcome, all of it or none, in place of what was known of it."""
        self._write(lambda c: write_outcome(c, outcome))

    def remove(self, id: str, base: str | None = None) -> ModelRow:
        """Forget a model; returns what was known of it."""
        row = self.model(id, base)
        self._write(lambda c: delete_model(c, row.key))
        return row

    def relabel(self, base: str, records: Sequence[ModelRecord]) -> None:
        """Bring labels, authors and runs of indexed models up to date."""
        if records:
            self._write(lambda c: relabel_models(c, base, records))

    def label(
        self,
        id: str,
        base: str | None = None,
        *,
        dataset: str | None = None,
        author: str | None = None,
        run: str | None = None,
    ) -> tuple[ModelRow, ModelRow]:
        """Say of a model what a labels file would: its row before and after.

        Args:
            dataset: "" makes the model unlabelled; None leaves the dataset as it is.
            author, run: None leaves them as they are.
        """
        before = self.model(id, base)
        record = replace(
            before.record,
            dataset=before.dataset if dataset is None else dataset or None,
            dataset_raw=dataset or before.record.dataset_raw,
            label_source="labels",
            author=author or before.author,
            run=run or before.run,
        )
        self.relabel(record.base, [record])
        return before, replace(before, record=record)

    def save_family(
        self, base: str, revision: str | None, architecture: str | None, slots: Mapping[str, Any]
    ) -> None:
        """Remember what is known of a base's shapes; a None leaves what was known."""
        before = self.family(base)
        family = Family(
            base=base,
            revision=revision or (before.revision if before else None),
            architecture=architecture or (before.architecture if before else None),
            slots=slots,
        )
        self._write(lambda c: replace_family(c, family))

    def add_fingerprints(self, key: int, fingerprints: Sequence[Fingerprint]) -> int:
        """Give an indexed model more vectors, in place of those of the same recipes; its new key.

        Raises:
            StoreError: there is no model of that key any more.
        """
        return self._write(lambda c: add_vectors(c, key, fingerprints))

    # kept beside the models

    def listings(self, base: str) -> Listings:
        """The walk of the Hub that starts at `base`."""
        return Listings(self._connection, self.path, base)

    def studies(self, key: int) -> Studies:
        """The studies of the model with this key."""
        return Studies(self._connection, self.path, key)

    # models

    def known(self, base: str) -> dict[str, Known]:
        """Every model of a family, as a second run sees it."""
        return {row.id: Known.of(row) for row in self.models(base=base)}

    def models(
        self,
        *,
        base: str | None = None,
        status: str | None = None,
        dataset: str | None = None,
        author: str | None = None,
        where: str | None = None,
    ) -> list[ModelRow]:
        """The models that pass every filter, by base and id.

        Raises:
            BadFilter: `where` is not understood.
        """
        asked = ModelFilter(base=base, status=status, dataset=dataset, author=author, where=where)
        return self._select(*asked.conditions())

    def page_of_models(self, asked: ModelFilter, page: Page) -> tuple[list[ModelRow], int]:
        """One page of the models that pass, and how many pass altogether."""
        conditions = asked.conditions()
        return self._looked(
            lambda c: (select_models(c, conditions, page), count_models(c, conditions))
        )

    def labels_of(self, keys: Sequence[int]) -> dict[str, Labelled]:
        """Base, dataset, author and run of the models with these keys, by id."""
        with self._lock, translated(self.path):
            return labels_of(self.access, self._connection, keys)

    def stored_models(self, id: str, base: str | None = None) -> list[Stored]:
        """The indexed models of exactly that id, one a family."""
        with self._lock, translated(self.path):
            return stored_models(self.access, self._connection, id, base)

    def keep_labels_at_hand(self) -> None:
        """Have `labels_of` and `stored_models` answered from memory until something changes."""
        with self._lock, translated(self.path):
            keep_directory(self.access, self._connection)

    def stored(self, id: str, base: str | None = None) -> Stored:
        """The indexed model of that id, or in that folder, as far as a search asks about it.

        Raises:
            UnknownModel: with the nearest ids.
            RequestError: several families have one, or it is not indexed.
        """
        found = self.stored_models(id, base)
        if len(found) == 1:
            return found[0]
        row = self.model(id, base)
        if row.status != "indexed":
            raise RequestError(
                f"{row.id} is not indexed ({row.code}: {row.reason}): "
                "ask for one that `deltadex ls --status indexed` lists"
            )
        return Stored(row.key, row.id, row.base, row.record.kind, row.dataset)

    def model(self, id: str, base: str | None = None) -> ModelRow:
        """The model of that id, or whose files are in that folder.

        Raises:
            UnknownModel: with the nearest ids.
            RequestError: several families have one.
        """
        exact: list[ModelRow] = []
        for column, value in (("id", id), ("source", str(Path(id).resolve()))):
            # of one condition only, for DuckDB to use the index
            found = [] if exact else self._select(Condition(f"m.{column} = ?", (value,)))
            exact += [row for row in found if base in (None, row.base)]
        exact = [row for row in exact if row.status == "indexed"] or exact
        if len(exact) > 1:
            bases = ", ".join(row.base for row in exact)
            raise RequestError(f"{id}: several families have it; add --base, one of: {bases}")
        if exact:
            return exact[0]
        ids = [row.id for row in self.models(base=self.find_base(base))]
        if not ids:
            raise self._empty()
        raise UnknownModel(f"no model {id!r} in {self.path.name}{name_near(id, ids)}")

    def describe(self, id: str, base: str | None = None) -> dict[str, Any]:
        """Everything known of a model, ready for JSON."""
        row = self.model(id, base)
        return {**row.to_json(), "slots": [slot_document(s) for s in self.slots_of(row.key)]}

    def slots(self, base: str, id: str, recipe: str | None = None) -> list[SlotStats]:
        """What a model changed, slot by slot; with the sketches of the recipe of that id."""
        return self.slots_of(self.model(id, base).key, recipe)

    def slots_of(self, key: int, recipe: str | None = None) -> list[SlotStats]:
        """The same, by the model's key."""
        with self._lock, translated(self.path):
            return select_slots(self._connection, key, recipe)

    def contents(self, base: str, recipes: Sequence[str]) -> dict[str, str]:
        """SHA-256 of weights → id, of the indexed models that have all these recipes."""
        return {
            row.record.content_sha256: row.id
            for row in self.models(base=base, status="indexed")
            if row.record.content_sha256 and set(recipes) <= set(row.recipes)
        }

    # fingerprints

    def recipes(self) -> dict[str, Recipe]:
        """Every recipe by id."""
        found: dict[str, Recipe] = self._remember("recipes", select_recipes)
        return found

    def find_recipe(self, name: str | None, base: str | None = None) -> Recipe:
        """The recipe of that name or id that most models of the base have.

        Raises:
            EmptyCatalog: nothing is fingerprinted.
            UnknownRecipe: lists what there is.
        """
        counts = self._remember("counts", count_by_recipe)
        return choose_recipe(self.recipes(), counts, self.path, name=name, base=base)

    def vectors(
        self, base: str, recipe: Recipe, *, ids: Sequence[str] | None = None
    ) -> tuple[list[str], Float32[np.ndarray, "models dim"]]:
        """Names and unit vectors of a family, by id; or of some of its models."""
        keys = None if ids is None else list(self.keys(base, ids).values())
        with self._lock, translated(self.path):
            return fetch_family(self._connection, base, recipe, keys)[:2]

    def family_vectors(self, base: str, recipe: Recipe) -> FamilyVectors:
        """A family's vectors by the models' keys."""
        from .family_vectors import FamilyVectors

        return FamilyVectors(self.access, self._connection, self._lock, self.path, base, recipe)

    def keys(self, base: str, ids: Sequence[str]) -> dict[str, int]:
        """Keys of the named models of a family, as far as it has them."""
        with self._lock, translated(self.path):
            return select_keys(self._connection, base, ids)

    def sketches(self, base: str, recipe: Recipe, ids: Sequence[str]) -> Iterator[SlotSketches]:
        """Slot by slot, the sketches of the named models; indices are places in `ids`."""
        keys = self.keys(base, ids)
        with self._lock, translated(self.path):
            yield from select_sketches(self._connection, [keys[id] for id in ids], recipe.id)

    # the whole

    def bases(self) -> list[str]:
        """Names of the families, sorted."""
        found: list[str] = self._remember("bases", select_bases)
        return list(found)

    def find_base(self, spelling: str | None) -> str | None:
        """The family's name in the catalog: its exact name, its folder, or its name without the
        owner or folder where that is one family's only; None for None.

        Raises:
            EmptyCatalog: there is no family at all.
            UnknownBase: lists what there is.
        """
        if spelling is None:
            return None
        bases = self.bases()
        if not bases:
            raise self._empty()
        if spelling in bases:
            return spelling
        if (folder := str(Path(spelling).expanduser().resolve())) in bases:
            return folder
        alike = [base for base in bases if _last_part(base) == _last_part(spelling)]
        if len(alike) == 1:
            return alike[0]
        raise UnknownBase(f"no family of {spelling!r}; there are: {', '.join(bases)}")

    def family(self, base: str) -> Family | None:
        """What is known of a base."""
        with self._lock, translated(self.path):
            return select_family(self._connection, base)

    def shapes(self, base: str) -> dict[Slot, tuple[int, int]]:
        """(out, in) of every slot that a model of the family changed."""
        with self._lock, translated(self.path):
            return select_shapes(self._connection, base)

    def failures(self, base: str | None = None) -> list[dict[str, Any]]:
        """Models that are not indexed, by reason code, the most frequent first."""
        return group_failures(self.models(base=base, where="status <> 'indexed'"))

    def stats(self) -> dict[str, Any]:
        """Counts by base, recipe and status, and the file's size in bytes."""
        counts = self._looked(count_everything)
        return {"path": str(self.path), "bytes": self.path.stat().st_size, **counts}

    def cost(self, recipes: Sequence[str]) -> dict[str, Any]:
        """What one model's fingerprint took under these recipe ids, on average."""
        with self._lock, translated(self.path):
            return mean_cost(self._connection, recipes)

    def export_parquet(self, folder: Path) -> list[Path]:
        """`models`, `slots` and `fingerprints` as Parquet files in `folder`."""
        with self._lock, translated(self.path):
            return write_parquet(self._connection, folder)

    def export_safetensors(self, target: Path, base: str | None, recipe: str | None) -> Path:
        """One recipe's vectors of one family as a safetensors file, ids in its metadata."""
        bases = [base] if base else self.bases()
        if not bases:
            raise self._empty()
        if len(bases) > 1:
            raise RequestError(
                f"the catalog has {len(bases)} families; add --base, one of: {', '.join(bases)}"
            )
        chosen = self.find_recipe(recipe, bases[0])
        ids, vectors = self.vectors(bases[0], chosen)
        return write_safetensors(target, bases[0], chosen, ids, vectors)

    def _empty(self) -> EmptyCatalog:
        return EmptyCatalog(f"{self.path}: no models yet; `deltadex index BASE FOLDER` adds them")

    def _select(self, *conditions: Condition) -> list[ModelRow]:
        return self._looked(lambda c: select_models(c, conditions))

    def _looked(self, question: Callable[[Connection], T]) -> T:
        """What a question finds in the catalog of one moment."""
        with self._lock, translated(self.path):
            return self._connection.looked(lambda: question(self._connection))

    def _remember(self, name: str, select: Callable[[Connection], Any]) -> Any:
        """What `select` gives, asked again only after a change."""
        changes = self.changes
        if self._remembered[0] != changes:
            self._remembered = (changes, {})
        known = self._remembered[1]
        if name not in known:
            with self._lock, translated(self.path):
                known[name] = select(self._connection)
        return known[name]

    def _write(self, change: Callable[[Connection], T]) -> T:
        with self._lock:
            return write(self._connection, self.path, change)


def _last_part(base: str) -> str:
    return base.rstrip("/").rsplit("/", 1)[-1].lower()
