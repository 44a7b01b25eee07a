"""How far a score may be from the kernel that it estimates."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Shaped


def cosine_standard_errors(
    query: Shaped[np.ndarray, " dim"], neighbours: Shaped[np.ndarray, "models dim"]
) -> Float64[np.ndarray, " models"]:
    """Standard error of each cosine of unit vectors, as an estimate from `dim` random features.

    The sum over independent features j of a_j b_j estimates a kernel, and so do the two
    squared lengths it is divided by. By the delta method the error of the quotient c is
    that of Σ z_j with z_j = a_j b_j − c (a_j² + b_j²)/2 for unit a and b; Σ z_j = 0, so its
    variance is estimated by Σ z_j². For Gaussian features this is (1 − c²)²/dim, Fisher's
    variance of a correlation: twins have no error, strangers 1/√dim. Read from the features
    themselves, it also holds where they are heavy-tailed or unevenly weighted, as TensorSketches
    of low-rank matrices are: then `dim` overstates how many there are.
    """
    cosines = neighbours @ query
    residuals = neighbours * neighbours
    residuals += query * query
    residuals *= -cosines[:, None] / 2
    residuals += neighbours * query
    errors: Float64[np.ndarray, " models"] = np.sqrt(
        np.einsum("mf,mf->m", residuals, residuals).astype(np.float64)
    )
    return errors
