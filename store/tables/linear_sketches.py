"""The table `linear_sketches`: a model's updates, hashed so that sums stay sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ...arrays import Float32
from ...records import LinearSketch
from ..session import Session


def select_linear_sketch(
    session: Session, key: int, recipe: str | None = None
) -> LinearSketch | None:
    """A model's sketch under a recipe, or under the one that read most of it; None without."""
    rows = session.execute(
        "SELECT l.recipe, l.stack, l.layer, l.numbers FROM linear_sketches l "
        "JOIN recipes r ON r.id = l.recipe WHERE l.model = $1 AND ($2 IS NULL OR l.recipe = $2) "
        "ORDER BY r.share DESC, l.recipe, l.layer NULLS FIRST, l.stack",
        [key, recipe],
    )
    if not rows:
        return None
    (chosen, _, _, pooled), *layers = (row for row in rows if row[0] == rows[0][0])
    return LinearSketch(
        recipe=chosen,
        pooled=_numbers(pooled),
        layers={(stack, layer): _numbers(numbers) for _, stack, layer, numbers in layers},
    )


def insert_linear_sketches(session: Session, sketches: Sequence[tuple[int, LinearSketch]]) -> None:
    """Write models' sketches: of each the row of all layers, then the layers'."""
    if not sketches:
        return
    rows = [
        (key, sketch.recipe, stack, layer, numbers.tolist())
        for key, sketch in sketches
        for (stack, layer), numbers in _parts(sketch)
    ]
    keys, recipes, stacks, layers, numbers = zip(*rows, strict=True)
    table = pa.table(
        {
            "model": pa.array(keys, pa.int64()),
            "recipe": pa.array(recipes, pa.string()),
            "stack": pa.array(stacks, pa.string()),
            "layer": pa.array(layers, pa.int32()),
            "numbers": pa.array(numbers, pa.list_(pa.float32())),
        }
    )
    with session.registered("new_linear_sketches", table):
        session.execute("INSERT INTO linear_sketches BY NAME SELECT * FROM new_linear_sketches")


def _parts(
    sketch: LinearSketch,
) -> list[tuple[tuple[str | None, int | None], Float32[np.ndarray, " features"]]]:
    """((stack, layer), numbers) of all layers together, whose name is None, and of each."""
    return [((None, None), sketch.pooled), *sketch.layers.items()]


def carry_over_linear(session: Session, old: int, key: int, written: str | None) -> None:
    """Give a model that is recorded again its sketches under other recipes than the one written."""
    session.execute(
        "INSERT INTO linear_sketches SELECT ?, * EXCLUDE (model) FROM linear_sketches "
        "WHERE model = ? AND recipe IS DISTINCT FROM ?",
        [key, old, written],
    )


def _numbers(values: list[float]) -> Float32[np.ndarray, " features"]:
    numbers: Float32[np.ndarray, " features"] = np.array(values, dtype=np.float32)
    numbers.flags.writeable = False
    return numbers
