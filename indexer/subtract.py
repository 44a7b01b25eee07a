"""ΔW = child − base in float32, into memory that is at hand."""

from __future__ import annotations

import torch

from .delta import DenseDelta
from .scratch import Scratch


def update_against(
    child: torch.Tensor, base: torch.Tensor, scratch: Scratch, device: str = "cpu"
) -> DenseDelta:
    """ΔW = child − base in float32, against the base as the child's training saw it.

    A child stored in a shorter type than its base came either from float32 training that
    was rounded once, or from training that began at the rounded base. Of child − W and
    child − round(W) the smaller is the better estimate of the update in both histories.
    The result lives in `scratch` (on `device`, if that is another): it is good until the
    next call. Peak: two matrices in float32.
    """
    if device != "cpu":
        child, base = child.to(device), base.to(device)
    here = scratch if device == "cpu" else None
    difference = _difference(child, base, here, "update")
    if child.dtype == base.dtype or child.dtype.itemsize >= base.dtype.itemsize:
        return difference
    rounded = _difference(child, base.to(child.dtype), here, "rounded update")
    return rounded if rounded.norm < difference.norm else difference


def _difference(
    child: torch.Tensor, base: torch.Tensor, scratch: Scratch | None, purpose: str
) -> DenseDelta:
    transposed = child.stride(-1) != 1 and child.stride(0) == 1
    if transposed:
        child, base = child.T, base.T
    shape = tuple(child.shape)
    if scratch is not None:
        update = scratch.float32(purpose, shape)
        # torch subtracts mixed types one element at a time, eight times slower than this
        torch.sub(_wide(child, scratch, "child"), _wide(base, scratch, "base"), out=update)
    else:
        update = child.float() - base.float()
    norm = float(torch.linalg.vector_norm(update))
    return DenseDelta(update.T if transposed else update, norm)


def _wide(matrix: torch.Tensor, scratch: Scratch, whose: str) -> torch.Tensor:
    if matrix.dtype == torch.float32:
        return matrix
    return scratch.float32(f"wide {whose}", tuple(matrix.shape)).copy_(matrix)
