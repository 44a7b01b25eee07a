"""The sum of δ xᵀ over tokens: as a matrix, or as two sketches from which it is recovered.

For a linear map y = W x the gradient of a loss by W is Σ δ xᵀ over tokens, with δ the gradient by
y. A small matrix is added up as it is. Of a large one two products with random matrices are kept,
the range sketch Y = G Ω and the co-range sketch Z = Ψ G (Tropp, Yurtsever, Udell, Cevher 2017,
"Practical sketching algorithms for low-rank matrix approximation", Alg. 4): both are linear in G,
so that they too are sums over tokens, and cost less than G itself.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch

from ...arrays import Float, Float32
from ...indexer import Delta, DenseDelta, LowRankDelta, gaussian_directions

CORANGE = 2
"""Rows of Z for each column of Y, as the source's section 4.5 advises for spectra that fall slowly.
"""

RANGE_SEED, CORANGE_SEED = 17, 18


class MatrixSum(ABC):
    """The gradient of one layer matrix, (out, in), while it is added up.

    Attributes:
        buffers: What is kept: linear in the gradient.
    """

    buffers: tuple[torch.Tensor, ...]

    @abstractmethod
    def add(
        self,
        deltas: Float32[torch.Tensor, "tokens out"],
        inputs: Float32[torch.Tensor, "tokens in"],
    ) -> None:
        """Add δ xᵀ of some tokens."""

    @abstractmethod
    def descent(self, scale: float) -> Delta:
        """−`scale` times the gradient: the direction that training moves the matrix in."""

    def add_sum(self, other: MatrixSum) -> None:
        """Add another sum, of the same kind and matrix."""
        for own, others in zip(self.buffers, other.buffers, strict=True):
            own += others


class DenseSum(MatrixSum):
    """The matrix itself."""

    def __init__(self, shape: tuple[int, int], device: torch.device) -> None:
        self._total = torch.zeros(shape, device=device)
        self.buffers = (self._total,)

    def add(
        self,
        deltas: Float32[torch.Tensor, "tokens out"],
        inputs: Float32[torch.Tensor, "tokens in"],
    ) -> None:
        self._total.addmm_(deltas.T, inputs)

    def descent(self, scale: float) -> Delta:
        return DenseDelta(self._total * -scale)


class StreamedSum(MatrixSum):
    """Its sketches from both sides. Memory: (out + `CORANGE` × in) × columns float32."""

    def __init__(self, shape: tuple[int, int], device: torch.device, columns: int) -> None:
        n_out, n_in = shape
        self._shape = shape
        self._range = torch.zeros(n_out, min(columns, n_in), device=device)
        self._corange = torch.zeros(min(CORANGE * columns, n_out), n_in, device=device)
        self.buffers = self._range, self._corange

    def add(
        self,
        deltas: Float32[torch.Tensor, "tokens out"],
        inputs: Float32[torch.Tensor, "tokens in"],
    ) -> None:
        self._range.addmm_(deltas.T, inputs @ self._right(inputs.device).T)
        self._corange.addmm_((deltas @ self._left(deltas.device).T).T, inputs)

    def descent(self, scale: float) -> Delta:
        """G ≈ Q (Ψ Q)⁺ Z with Q an orthonormal basis of the range sketch."""
        wide = self._range.cpu().double()
        length = float(torch.linalg.vector_norm(wide))
        if not (length > 0.0 and math.isfinite(length)):
            return DenseDelta(torch.zeros(self._shape)) if length == 0.0 else DenseDelta(wide)
        basis, _ = torch.linalg.qr(wide / length)
        seen, triangle = torch.linalg.qr(self._left(torch.device("cpu")).double() @ basis)
        projected = seen.T @ self._corange.cpu().double()
        # the least-squares solution; a direction that Ψ does not see would be divided by nothing
        solved = torch.linalg.pinv(triangle, rtol=1e-10) @ projected
        return LowRankDelta((basis * -scale).float(), solved.float())

    def _right(self, device: torch.device) -> Float[torch.Tensor, "range in"]:
        return gaussian_directions(RANGE_SEED, self._range.shape[1], self._shape[1]).to(device)

    def _left(self, device: torch.device) -> Float[torch.Tensor, "corange out"]:
        return gaussian_directions(CORANGE_SEED, self._corange.shape[0], self._shape[0]).to(device)
