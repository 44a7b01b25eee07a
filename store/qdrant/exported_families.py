"""Which families of an open catalog get their candidates from Qdrant."""

from __future__ import annotations

from .index import ExportedPoints
from .points import PointCollection


class ExportedFamilies:
    """The collections that searches of one open catalog use, by family and recipe."""

    def __init__(self) -> None:
        self._points: dict[tuple[str, str], ExportedPoints] = {}

    def use(self, base: str, recipe: str, collection: PointCollection) -> None:
        """Take the candidates of a family from a collection."""
        self._points[base, recipe] = ExportedPoints(collection)

    def of(self, base: str, recipe: str) -> ExportedPoints | None:
        """A family's points; None where FAISS has its vectors."""
        return self._points.get((base, recipe))

    @property
    def targets(self) -> dict[tuple[str, str], str]:
        """Where the points are, by base and recipe."""
        return {family: points.collection.target for family, points in self._points.items()}

    def close(self) -> None:
        for points in self._points.values():
            points.collection.close()
        self._points.clear()
