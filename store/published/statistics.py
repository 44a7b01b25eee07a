"""What scores of a published index are normalised with, so that they keep their meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from ...arrays import Float32, Float64, Int64
from ...errors import BadIndex
from .manifest import Manifest, NullScale, PublishedFile
from .parts import MOST_METADATA, write_named

MEANS_SCHEMA = pa.schema(
    [pa.field("kind", pa.string()), pa.field("numbers", pa.list_(pa.float32()))]
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statistics:
    """Cohort statistics of an index.

    Attributes:
        means: aμ of each kind, which is subtracted from vectors; none for recipes without a mean.
    """

    scale: NullScale
    means: Mapping[str, Float64[np.ndarray, " dim"]] = field(compare=False)


Measure = Callable[
    [
        Sequence[str],
        Sequence[str],
        Sequence[str | None],
        Callable[[Int64[np.ndarray, " rows"]], Float32[np.ndarray, "rows dim"]],
    ],
    Statistics,
]
"""Statistics of models in order of id: their ids, kinds and datasets, and what gives vectors."""


def write_means(folder: Path, statistics: Statistics) -> PublishedFile:
    """Write the means.

    Raises:
        StoreFull: the system refuses.
    """
    numbers = [mean.astype(np.float32) for mean in statistics.means.values()]
    columns = [
        pa.array(list(statistics.means), pa.string()),
        pa.array(numbers, pa.list_(pa.float32())),
    ]
    return write_named(folder, "means", pa.table(columns, schema=MEANS_SCHEMA))


def read_statistics(content: bytes, manifest: Manifest) -> Statistics:
    """The statistics of an index, from the file of its means.

    Raises:
        BadIndex: the means are not what the manifest says.
    """
    name, dim = manifest.means.name, manifest.recipe.dim
    try:
        file = parquet.ParquetFile(
            pa.BufferReader(content),
            thrift_string_size_limit=MOST_METADATA,
            thrift_container_size_limit=MOST_METADATA,
        )
        n_kinds = len(manifest.scale.kinds)
        if file.metadata.num_rows > n_kinds or file.metadata.num_row_groups > 1:
            raise ValueError("rows")
        table = file.read(use_threads=False)
        kinds, numbers = table.column("kind").to_pylist(), table.column("numbers")
        if not set(kinds) <= set(manifest.scale.kinds) or len(set(kinds)) < len(kinds):
            raise ValueError("kinds")
        means = {
            kind: np.asarray(row.values, np.float32).astype(np.float64)
            for kind, row in zip(kinds, numbers, strict=True)
        }
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError) as err:
        raise BadIndex(f"{name}: not means of a published index ({type(err).__name__})") from None
    for mean in means.values():
        if mean.shape != (dim,) or not np.isfinite(mean).all() or np.linalg.norm(mean) > 1.0 + 1e-3:
            raise BadIndex(f"{name}: a mean is not finite, or not of this recipe")
    return Statistics(scale=manifest.scale, means=means)
