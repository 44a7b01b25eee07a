"""Statistics of a published index: measured when it is published, used where it is attached."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...arrays import Float32, Int64
from ...records import Recipe
from ...store import NullScale, Statistics, block_dims
from ..pooled_means import PooledMeans
from .cohort import sample_by_kind
from .evidence import Calibration, calibrate
from .normalisation import Scale
from .vector_scores import VectorScale, measure_vectors

LEAST_SPREAD = 1e-6
"""Of strangers' cosines: in a family of copies alone it is 0."""

LARGEST_Z = 1e6


def measure_published(
    recipe: Recipe,
    ids: Sequence[str],
    kinds: Sequence[str],
    datasets: Sequence[str | None],
    vectors_at: Callable[[Int64[np.ndarray, " rows"]], Float32[np.ndarray, "rows dim"]],
) -> Statistics:
    """What scores of these models are normalised with, as `VectorScores` has it of a family.

    Args:
        ids: Rising.
        vectors_at: Gives the vectors of some rows as they are published.
    """
    by_kind = sample_by_kind(ids, kinds)
    vectors = {kind: vectors_at(rows) for kind, rows in by_kind.items()}
    # the means are published in single precision
    means = PooledMeans.over(vectors).by_kind if block_dims(recipe) else {}
    rounded = {kind: mean.astype(np.float32).astype(np.float64) for kind, mean in means.items()}
    cohort = np.concatenate(list(by_kind.values()))
    names = tuple(by_kind)
    scale, z, are_strangers = measure_vectors(
        names,
        PooledMeans(rounded),
        np.concatenate(list(vectors.values())),
        [kinds[row] for row in cohort.tolist()],
    )
    found = calibrate(z, [datasets[row] for row in cohort.tolist()], are_strangers, len(ids))
    centres = tuple(
        (
            one,
            other,
            scale.null.centre[one, other],
            max(LEAST_SPREAD, scale.null.spread[one, other]),
        )
        for one, other in sorted(scale.null.centre)
    )
    null = NullScale(
        kinds=names,
        centres=centres,
        rate=found.rate,
        source=found.source,
        datasets=found.datasets,
        queries=found.queries,
        levels=tuple(np.clip(found.levels, -LARGEST_Z, LARGEST_Z).tolist()),
        shares=tuple(np.clip(found.shares, 0.0, 1.0).tolist()),
    )
    return Statistics(scale=null, means=rounded)


def published_scale(statistics: Statistics) -> VectorScale:
    """The scale that an index was published with."""
    null = statistics.scale
    return VectorScale(
        null.kinds,
        PooledMeans(statistics.means),
        Scale(
            {(one, other): centre for one, other, centre, _ in null.centres},
            {(one, other): spread for one, other, _, spread in null.centres},
        ),
    )


def published_calibration(statistics: Statistics) -> Calibration:
    """What false discovery rates of an index are computed from."""
    null = statistics.scale
    return Calibration(
        rate=null.rate,
        source="labelled pairs" if null.source == "labelled pairs" else "the null alone",
        datasets=null.datasets,
        queries=null.queries,
        levels=np.array(null.levels, dtype=np.float64),
        shares=np.array(null.shares, dtype=np.float64),
    )
