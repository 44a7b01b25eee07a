"""How much of a hidden state each term makes up, token by token."""

from __future__ import annotations

import torch

from ...arrays import Float32


def importance(
    terms: Float32[torch.Tensor, "terms tokens dim"],
) -> Float32[torch.Tensor, "terms tokens"]:
    """μ(e, x) = ⟨e, x⟩ / |e|²; sums to 1 over terms, and may be below 0 or above 1.

    Mickus et al. 2022, eq. 3. 0 where the hidden state is zero.
    """
    hidden = terms.sum(dim=0)
    squares = hidden.square().sum(dim=-1)
    found: Float32[torch.Tensor, "terms tokens"] = torch.where(
        squares > 0, (terms * hidden).sum(dim=-1) / squares, 0.0
    )
    return found


def norm_ratios(
    terms: Float32[torch.Tensor, "terms tokens dim"],
) -> Float32[torch.Tensor, "terms tokens"]:
    """|x| / |e|: well above the importance where terms cancel each other."""
    return relative_lengths(terms, terms.sum(dim=0))


def relative_lengths(
    vectors: Float32[torch.Tensor, "*terms tokens dim"],
    against: Float32[torch.Tensor, "tokens dim"],
) -> Float32[torch.Tensor, "*terms tokens"]:
    """|x| / |e|; 0 where e is zero."""
    length = against.norm(dim=-1)
    found: Float32[torch.Tensor, "*terms tokens"] = torch.where(
        length > 0, vectors.norm(dim=-1) / length, 0.0
    )
    return found


def term_shifts(
    tuned: Float32[torch.Tensor, "terms tokens dim"],
    base: Float32[torch.Tensor, "terms tokens dim"],
) -> tuple[Float32[torch.Tensor, "terms tokens"], Float32[torch.Tensor, "terms tokens"]]:
    """(|x' − x| / |e|, ⟨x' − x, e' − e⟩ / |e' − e|²) of every term and token.

    The first says how far a term moved, against the base's hidden state; the second which
    share it has in the hidden state's move (they sum to 1, and are 0 where nothing moved).
    Both show effects that have come down the stream, not where the network was edited.
    """
    moved = tuned - base
    whole = moved.sum(dim=0)
    squares = whole.square().sum(dim=-1)
    distance = relative_lengths(moved, base.sum(dim=0))
    share = torch.where(squares > 0, (moved * whole).sum(dim=-1) / squares, 0.0)
    return distance, share
