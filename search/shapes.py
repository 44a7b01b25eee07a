"""Arrays that many functions of searches take and give, by dtype and shape."""

import numpy as np

from ..arrays import Bool, Float64, Int64, Shaped

Rows = Int64[np.ndarray, " rows"]
Codes = Int64[np.ndarray, " models"]
Numbers = Float64[np.ndarray, " models"]
Square = Float64[np.ndarray, "models models"]
Pairs = Float64[np.ndarray, "models others"]
BlockPairs = Float64[np.ndarray, "blocks models others"]
WithCohort = Float64[np.ndarray, "models cohort"]
CohortCounts = Bool[np.ndarray, "models cohort"]
HasBlocks = Float64[np.ndarray, "models blocks"]
Weights = Float64[np.ndarray, "kinds kinds blocks"]
Vectors = Shaped[np.ndarray, "models dim"]
