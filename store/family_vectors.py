"""One family's vectors and sketches under one recipe, by the models' keys."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..arrays import Float32, Int64
from ..records import Recipe
from .connection import translated
from .derived import derived_path
from .sharing import Access, Connection
from .sketches import SketchFile, SketchFiles, SketchMatrix, fetch_matrix
from .vectors import count_vectors, fetch_family, fetch_keys, fetch_vectors_after, fetch_vectors_of


@dataclass(frozen=True, slots=True)
class FamilyVectors:
    """What an index is made of."""

    access: Access
    connection: Connection
    lock: threading.RLock
    path: Path
    base: str
    recipe: Recipe

    def count(self) -> int:
        """How many models have a vector."""
        with self.lock, translated(self.path):
            return count_vectors(self.connection, self.base, self.recipe)

    def models(self, after: int = -1) -> list[tuple[int, str, str]]:
        """(key, id, kind) of the models above a key, by key."""
        with self.lock, translated(self.path):
            return fetch_keys(self.connection, self.base, self.recipe, after)

    def batches(
        self, after: int = -1
    ) -> Iterator[tuple[list[int], Float32[np.ndarray, "models dim"]]]:
        """Keys above `after` and their vectors, by key, a batch at a time."""
        with self.lock, translated(self.path):
            yield from fetch_vectors_after(self.connection, self.base, self.recipe, after)

    def of(
        self, keys: Int64[np.ndarray, " keys"]
    ) -> tuple[list[int], Float32[np.ndarray, "models dim"]]:
        """Some models' keys and vectors, by key; a single one from the file at hand."""
        file = self._sketch_file() if len(keys) == 1 else None
        vector = file.vector(int(keys[0])) if file is not None else None
        if vector is not None:
            return [int(keys[0])], vector[None, :]
        with self.lock, translated(self.path):
            return fetch_vectors_of(self.connection, self.recipe, keys)

    def with_norm(self, key: int) -> tuple[Float32[np.ndarray, " dim"], float]:
        """One model's vector, and its length before normalisation."""
        with self.lock, translated(self.path):
            _, vectors, norms = fetch_family(self.connection, self.base, self.recipe, [key])
        return vectors[0], norms[0]

    def sketches(self, keys: Sequence[int]) -> SketchMatrix:
        """Some models' sketches: from the file at hand, if there is one that has them."""
        file = self._sketch_file()
        matrix = file.matrix(np.array(keys, dtype=np.int64)) if file is not None else None
        if matrix is not None:
            return matrix
        with self.lock, translated(self.path):
            return fetch_matrix(self.connection, keys, self.recipe.id)

    def keep_sketches_at_hand(self, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Bring the file of the family's sketches up to date; made, where there is none.

        Args:
            goes_on: Asked before each part; what is written by then stays.

        Raises:
            StoreFull: there is no room for it; searches read the catalog then.
        """
        files, path = self.access.derived(SketchFiles), self._sketch_path()
        with self.lock, translated(self.path), self.connection.snapshot():
            files.caught_up(
                self.base,
                self.recipe.id,
                path,
                lambda file: file.catch_up(self.connection, self.base, self.recipe, goes_on),
            )

    def _sketch_path(self) -> Path:
        return derived_path(self.path, self.base, self.recipe.id, ".sketches")

    def _sketch_file(self) -> SketchFile | None:
        files = self.access.derived(SketchFiles)
        return files.of(self.base, self.recipe.id, self._sketch_path())
