"""ΔW of each PEFT method from its tensors, always (out, in), float32.

Formulas: LoRA Hu et al. 2021, eq. 3; rsLoRA Kalajdzievski 2023; DoRA Liu et al. 2024, eq. 5;
AdaLoRA Zhang et al. 2023, eq. 3 with PEFT's scale; LoHa Hyeon-Woo et al. 2021, eq. 3; LoKr
Yeh et al. 2023, eq. 4. An adapter of a Conv1D (stored in × out) has the same (out, in) ΔW,
so fan_in_fan_out does not enter.
"""

from __future__ import annotations

import torch

from ..delta import Delta, DenseDelta, LowRankDelta


def lora(a: torch.Tensor, b: torch.Tensor, scale: float) -> LowRankDelta:
    """s · B A, of A (r, in) and B (out, r)."""
    return LowRankDelta(b * scale, a)


def adalora(a: torch.Tensor, b: torch.Tensor, e: torch.Tensor, scale: float) -> LowRankDelta:
    """s · B diag(E) A, of E (r, 1)."""
    return LowRankDelta(b * scale, a * e.reshape(-1, 1))


def dora(
    a: torch.Tensor, b: torch.Tensor, magnitude: torch.Tensor, weight: torch.Tensor, scale: float
) -> DenseDelta:
    """m · V / |V|_row − W with V = W + s · B A, of m (out,) and W (out, in)."""
    moved = weight + scale * (b @ a)
    rows = torch.linalg.vector_norm(moved, dim=1)
    return DenseDelta(moved * (magnitude.flatten() / rows)[:, None] - weight)


def loha(
    w1_a: torch.Tensor, w1_b: torch.Tensor, w2_a: torch.Tensor, w2_b: torch.Tensor, scale: float
) -> Delta:
    """s · (w1_a w1_b) ∘ (w2_a w2_b); low-rank where r² is small (a Khatri-Rao product)."""
    n_out, n_in, rank = w1_a.shape[0], w1_b.shape[1], w1_a.shape[1] * w2_a.shape[1]
    if 2 * rank > min(n_out, n_in):
        return DenseDelta((w1_a @ w1_b) * (w2_a @ w2_b) * scale)
    left = (w1_a[:, :, None] * w2_a[:, None, :]).reshape(n_out, rank)
    right = (w1_b[:, None, :] * w2_b[None, :, :]).reshape(rank, n_in)
    return LowRankDelta(left * scale, right)


def lokr(w1: torch.Tensor, w2: torch.Tensor, scale: float) -> DenseDelta:
    """s · w1 ⊗ w2."""
    return DenseDelta(torch.kron(w1.contiguous(), w2.contiguous()) * scale)
