"""One family's vectors under one recipe, by the models' keys."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64

from ..records import Recipe
from .connection import translated
from .sharing import Connection
from .vectors import count_vectors, fetch_keys, fetch_vectors_after, fetch_vectors_of


@dataclass(frozen=True, slots=True)
class FamilyVectors:
    """What an index is made of."""

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
        """Some models' keys and vectors, by key."""
        with self.lock, translated(self.path):
            return fetch_vectors_of(self.connection, self.recipe, keys)
