"""A family at one moment: the data that every question needs, read once for all threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..arrays import Float32, Int64
from ..records import Footprint, Recipe
from .files import derived_path
from .session import Session
from .tables.filters import Condition, Filters
from .tables.footprints import as_stored, footprint_stamp, root_tokenizers, select_footprints_of
from .tables.models import GUESSED, ModelLabel, ModelLabels, Stored, select_keys, select_labels
from .tables.outcomes import Keyed, count_vectors, fetch_keys, fetch_vectors_of

if TYPE_CHECKING:
    from .derived.index import SearchIndex
    from .derived.row_files import SketchFile, SketchMatrix, TraitFile
    from .qdrant.index import QdrantIndex
    from .tables.updates import FamilyUpdates

log = logging.getLogger(__name__)

T = TypeVar("T")

LABELS_ASKED = 4
"""How often labels of a few models are read at one moment, before those of all are."""

HELD_WHOLE = 256
"""Models of a family whose sketches are all held, once some are asked for; 40 KB each."""


@dataclass(slots=True, kw_only=True, eq=False)
class Members:
    """The models of a family that have a vector under a recipe; in order of key.

    Results that are computed from them are stored with them (`derived`, by class), for as long as
    they do not change, nor their footprints, whose stamp is `footprints`; so is their search
    `index`. `before` is that of the earlier members, until it is caught up.
    """

    keys: Int64[np.ndarray, " models"]
    ids: Sequence[str]
    kinds: Sequence[str]
    row_of: Mapping[str, int]
    footprints: str = ""
    before: SearchIndex | None = None
    index: SearchIndex | None = None
    derived: dict[type, Any] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    @classmethod
    def read(cls, session: Session, base: str, recipe: Recipe, last: Members | None) -> Members:
        """The members now; `last` itself, if they have not changed.

        `last` may be later than the session's snapshot: a model that was written again then has
        a key in it that the snapshot does not have.
        """
        stamp = footprint_stamp(session, base)
        if last is not None and len(last.keys):
            newest = int(last.keys[-1])
            here = fetch_keys(session, base, recipe, newest - 1)
            n_new = len(here[0]) - 1
            n_models = count_vectors(session, base, recipe)
            if n_new >= 0 and here[0][0] == newest and len(last.keys) + n_new == n_models:
                is_same = not n_new and last.footprints == stamp
                return last if is_same else last._with(here, 1, stamp)
        none = cls(keys=np.zeros(0, dtype=np.int64), ids=[], kinds=[], row_of={})
        return none._with(fetch_keys(session, base, recipe, -1), 0, stamp, last)

    def _with(
        self, new: Keyed, start: int, footprints: str, last: Members | None = None
    ) -> Members:
        """These and later members, from a row on. The search index of `last`, or of these, is
        caught up."""
        last, (keys, names, kinds) = last or self, new
        ids = [*self.ids, *names[start:]]
        return Members(
            keys=np.concatenate([self.keys, keys[start:]]),
            ids=ids,
            kinds=[*self.kinds, *kinds[start:]],
            row_of={id: row for row, id in enumerate(ids)},
            footprints=footprints,
            before=last.index or last.before,
        )


@dataclass(slots=True, kw_only=True, eq=False)
class Moment:
    """A family's members at one moment of the catalog, and their labels, once they are read;
    `n_asked` counts how often some labels were asked for. `removed`: at another, later moment, how
    many are not there any more."""

    changes: str
    members: Members
    labels: ModelLabels | None = None
    n_asked: int = 0
    removed: tuple[str, int] = ("", 0)


class FamilyView:
    """One family under one recipe at one moment. It does not change; questions take it.

    Models are known by row, in order of key; a model whose vectors change gets another key. Threads
    share what is read and computed, and have a view each, with a session of its own.
    """

    def __init__(self, session: Session, base: str, recipe: Recipe, moment: Moment) -> None:
        self._session, self._moment, self._members = session, moment, moment.members
        self._turn: Callable[[], AbstractContextManager[object]] = session.turn
        self.base, self.recipe = base, recipe
        self.keys, self.ids = moment.members.keys, moment.members.ids
        self.kinds = moment.members.kinds

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, ids: Sequence[str]) -> Int64[np.ndarray, " rows"]:
        """The rows of those of some models that are here, in their order."""
        row_of = self._members.row_of
        return np.array([row_of[id] for id in ids if id in row_of], dtype=np.int64)

    @property
    def is_current(self) -> bool:
        """Whether the catalog has not changed since: then every model is still there."""
        return self._moment.changes == self._session.changes

    @property
    def changes(self) -> str:
        return self._moment.changes

    @property
    def is_exact(self) -> bool:
        """Whether candidates are the nearest of all vectors; else they are likely ones."""
        return self.index.is_exact

    def stored(self, id: str) -> Stored | None:
        """The model of that id; None where it has no vector, or the catalog has changed since."""
        row = self._members.row_of.get(id)
        if row is None or not self.is_current:
            return None
        label = self.labels_at([row])[row]
        return Stored(int(self.keys[row]), id, self.base, self.kinds[row], label.dataset)

    @property
    def n_removed(self) -> int:
        """Models that were removed since."""
        if self.is_current:
            return 0
        moment, now = self._moment, self._session.changes
        if moment.removed[0] != now:
            moment.removed = now, len(self) - len(self.rows_where(Filters()))
        return moment.removed[1]

    def labels_at(self, rows: Sequence[int], *, and_removed: bool = False) -> dict[int, ModelLabel]:
        """The labels of some models, as of now; removed models are left out, or have those that
        they had, if these are known."""
        if self.is_current:
            self._moment.n_asked += 1
            asks_often = self._moment.n_asked > LABELS_ASKED
            labels = self.labels if asks_often else self._moment.labels
            if labels is not None:
                return {row: labels.at(row) for row in rows}
        by_key = select_labels(self._session, [int(self.keys[row]) for row in rows])
        found = {row: by_key[key] for row in rows if (key := int(self.keys[row])) in by_key}
        if and_removed and (before := self._moment.labels) is not None:
            found = {row: before.at(row) for row in rows} | found
        return found

    @property
    def labels(self) -> ModelLabels:
        """The labels of every model."""
        if self._moment.labels is None:
            self._moment.labels = _read_labels(self._session, self.base, self.keys)
        return self._moment.labels

    def rows_where(self, filters: Filters) -> Int64[np.ndarray, " rows"]:
        """The rows of the models that pass the filters, as of now; raises `BadFilter`."""
        conditions = [Condition("m.base = ?", (self.base,)), *filters.conditions()]
        keys = np.array(select_keys(self._session, conditions), dtype=np.int64)
        return np.flatnonzero(np.isin(self.keys, keys))

    def vectors(
        self, keys: Int64[np.ndarray, " keys"] | None = None
    ) -> Float32[np.ndarray, "models dim"]:
        """The vectors of the models with these keys, or of all; of unit length. `KeyError`: one has
        none, or was removed since."""
        keys = self.keys if keys is None else keys
        index = self._members.index
        if index is not None and (vectors := index.vectors(keys)) is not None:
            return vectors
        if (own := self._from_file(lambda file: file.vectors(keys))) is not None:
            return own
        present, vectors = fetch_vectors_of(self._session, self.recipe, keys)
        positions = np.searchsorted(present, keys)
        if len(present) < len(keys):
            raise KeyError("a model has no vector, or was removed since")
        return vectors[positions]

    def _present_vectors(
        self, keys: Int64[np.ndarray, " keys"]
    ) -> tuple[Int64[np.ndarray, " present"], Float32[np.ndarray, "present dim"]]:
        """Those of some keys, rising, that have a vector, and the vectors."""
        if (vectors := self._from_file(lambda file: file.vectors(keys))) is not None:
            return keys, vectors
        return fetch_vectors_of(self._session, self.recipe, keys)

    def vectors_at(self, rows: Int64[np.ndarray, " rows"]) -> Float32[np.ndarray, "rows dim"]:
        """The vectors of the models at some rows; as `vectors`."""
        return self.vectors(self.keys[rows])

    def by_id(
        self, ids: Sequence[str] | None = None
    ) -> tuple[list[str], Float32[np.ndarray, "models dim"]]:
        """Ids and vectors of some models, or of all, in order of id."""
        rows = self.rows(sorted(self.ids if ids is None else ids))
        return [self.ids[row] for row in rows], self.vectors(self.keys[rows])

    def sketches(self, keys: Int64[np.ndarray, " keys"]) -> SketchMatrix:
        """The sketches of the models with these keys side by side."""
        from .derived.row_files import SketchMatrix, fetch_matrix

        if (matrix := self._from_file(lambda file: file.matrix(keys))) is not None:
            return matrix
        if len(self) <= HELD_WHOLE and np.isin(keys, self.keys).all():
            whole = self.derived(
                SketchMatrix,
                lambda view: fetch_matrix(view._session, self.keys.tolist(), self.recipe),
            )
            return whole.take(np.searchsorted(self.keys, keys))
        return fetch_matrix(self._session, keys.tolist(), self.recipe)

    def footprints(self, keys: Int64[np.ndarray, " keys"]) -> list[Footprint | None]:
        """Those of the models with these keys, None where there is none; each with the tokenizer
        that its own extends, None for the base's."""
        found = select_footprints_of(self._session, self.base, keys.tolist())
        return [found.get(key) for key in keys.tolist()]

    def comparable(self, footprint: Footprint) -> Footprint:
        """A footprint of a model that is not stored, as `footprints` would have it."""
        return root_tokenizers(self._session, self.base, [as_stored(footprint)])[0]

    def updates(self, keys: Int64[np.ndarray, " keys"] | None = None) -> FamilyUpdates:
        """The linear sketches and slot statistics of the models with these keys, rising, or of all;
        read anew by each call."""
        from .tables.updates import fetch_updates

        return fetch_updates(self._session, self.recipe.id, self.keys if keys is None else keys)

    @property
    def index(self) -> SearchIndex | QdrantIndex:
        """The models' vectors in FAISS; or in Qdrant, where the catalog was opened with an export:
        `EngineError` where Qdrant is not reached, or its export lacks too many models."""
        from .derived.index import SearchIndex
        from .qdrant.index import ExportedFamilies, QdrantIndex

        access, recipe = self._session.access, self.recipe
        points = access.derived(ExportedFamilies).points.get((self.base, recipe.id))

        def make(_: FamilyView) -> SearchIndex:
            before, self._members.before = self._members.before, None
            self._members.index = SearchIndex.of(
                self.keys, recipe.dim, self._present_vectors, self._file(), before
            )
            return self._members.index

        if points is None:
            return self.derived(SearchIndex, make)

        def fetch(
            keys: Int64[np.ndarray, " wanted"],
        ) -> tuple[Int64[np.ndarray, " present"], Float32[np.ndarray, "present dim"]]:
            # any thread may have the index look at the catalog again
            with closing(Session(access)) as session:
                return fetch_vectors_of(session, recipe, keys)

        return self.derived(QdrantIndex, lambda view: QdrantIndex(points, view.keys, fetch))

    def candidates(
        self, query: Float32[np.ndarray, " dim"], n: int, *groups: Int64[np.ndarray, " _"] | None
    ) -> Int64[np.ndarray, " candidates"]:
        """The rows to compare exactly: of each group of rows, or of all, at least the `n` nearest
        of a family that is compared as a whole, about `n` likely ones of a larger family.

        Raises:
            ValueError: n < 1, or the query is not a finite, non-zero vector of this length.
        """
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        if query.shape != (self.recipe.dim,):
            raise ValueError(f"a query has {self.recipe.dim} numbers, got {query.shape}")
        if not np.isfinite(query).all() or not query.any():
            raise ValueError("a query holds NaN or infinity, or is all zero")
        return self._nearest(query, n, groups or (None,))

    def candidates_each(
        self, queries: Float32[np.ndarray, "queries dim"], n: int
    ) -> list[Int64[np.ndarray, " candidates"]]:
        """The same of every query, each finite and not zero, among all models; quicker."""
        index = self.index
        if (own := self._members.index) is None:
            return [np.searchsorted(self.keys, index.nearest(query, n)) for query in queries]
        return [np.searchsorted(self.keys, keys) for keys in own.nearest_each(queries, n)]

    def _nearest(
        self,
        query: Float32[np.ndarray, " dim"],
        n: int,
        groups: Sequence[Int64[np.ndarray, " _"] | None],
    ) -> Int64[np.ndarray, " candidates"]:
        keys = [None if rows is None else np.sort(self.keys[rows]) for rows in groups]
        near = np.concatenate([self.index.nearest(query, n, allowed) for allowed in keys])
        return np.asarray(np.searchsorted(self.keys, near))

    def derived(self, kind: type[T], make: Callable[[FamilyView], T]) -> T:
        """The only object of that class for these models; computed once."""
        results = self._members.derived
        if kind not in results:
            with self._turn(), self._members.lock:
                if kind not in results:
                    results[kind] = make(self)
        result: T = results[kind]
        return result

    def trait_file(self, depends_on: bytes, n_numbers: int) -> TraitFile:
        """The file of what normalisation knows of the family's models, `n_numbers` a row;
        `depends_on` is a digest of everything that decides a row but the model itself."""
        from .derived.row_files import TraitFile

        return TraitFile(self._file(".traitkeys"), depends_on, n_numbers)

    def write_sketch_file(self, goes_on: Callable[[float], bool] = lambda _: True) -> None:
        """Bring the file of the family's sketches up to date; made, where there is none.

        Args:
            goes_on: Called before each part with the share that is written; False stops the
                writing, and keeps what is written.

        Raises:
            StoreFull: the disk has no space for it; searches then read the catalog.
        """
        file, session = self._sketch_file(), self._session
        session.look(lambda: file.catch_up(session, self.base, self.recipe, goes_on))

    def _sketch_file(self) -> SketchFile:
        from .derived.row_files import SketchFiles

        return self._session.access.derived(SketchFiles).at(self._file(".keys"))

    def _from_file(self, read: Callable[[SketchFile], T | None]) -> T | None:
        """What the file of sketches gives; None where rows of it are damaged, after which there is
        none."""
        from .derived.row_files import DamagedRows

        file = self._sketch_file()
        try:
            return read(file)
        except DamagedRows:
            log.warning("%s: damaged; it is made again by a later run", self._file(".keys"))
            file.discard()
            return None

    def _file(self, ending: str = "") -> Path:
        return derived_path(self._session.access.path, self.base, self.recipe.id, ending)


class FamilyMoments:
    """The last moments of the families of one open catalog."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[tuple[str, str], threading.Lock] = {}
        self._last: dict[tuple[str, str], Moment] = {}

    def view(
        self,
        session: Session,
        base: str,
        recipe: Recipe,
        *,
        is_current: bool,
        publishes: bool,
        prepare: Callable[[FamilyView], object] | None,
    ) -> FamilyView:
        """A view of a family as it is now; or, unless it is to be current, as it was last seen. A
        new one is prepared, and then given to other threads too where it `publishes`."""
        family = (base, recipe.id)
        with self._lock:
            lock = self._locks.setdefault(family, threading.Lock())

        def read() -> Moment:
            moment = self._last.get(family)
            if moment is not None and moment.changes == session.changes:
                return moment
            last = moment.members if moment else None
            members = Members.read(session, base, recipe, last)
            new = Moment(changes=session.changes, members=members)
            if prepare is not None:
                prepare(FamilyView(session, base, recipe, new))
            if publishes or moment is None:
                self._last[family] = new
            return new

        moment = self._last.get(family)
        if moment is None or is_current:
            with session.turn(), lock:
                moment = session.look(read)
        return FamilyView(session, base, recipe, moment)

    def close(self) -> None:
        self._last.clear()


def _read_labels(session: Session, base: str, keys: Int64[np.ndarray, " models"]) -> ModelLabels:
    """What is known of the training of a family's models; nothing of those that are not there."""
    if len(keys) <= HELD_WHOLE:  # without Arrow, whose import takes longer
        by_key, nothing = select_labels(session, keys.tolist()), ModelLabel(None, None, None)
        listed = [by_key.get(key, nothing) for key in keys.tolist()]
        return ModelLabels(*zip(*listed, strict=True)) if listed else ModelLabels((), (), (), ())
    table = session.arrow(
        f"SELECT key, dataset, author, run, {GUESSED} FROM models "
        "WHERE base = ? AND status = 'indexed' ORDER BY key",
        [base],
    )
    there = table.column("key").to_numpy()
    places = np.searchsorted(there, keys)
    places[np.append(there, -1)[places] != keys] = -1
    columns = []
    for name in ("dataset", "author", "run", "is_guessed"):
        known: dict[Any, Any] = {None: None}
        # one object for every name, instead of one for every model
        names = [known.setdefault(label, label) for label in table.column(name).to_pylist()]
        columns.append(tuple(np.array([*names, None], dtype=object)[places].tolist()))
    return ModelLabels(*columns)
