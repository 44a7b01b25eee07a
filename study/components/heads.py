"""Attention's term split by head: W_o applied to one head's values at a time.

The matrix W_o reads the outputs z of all heads side by side, so its product is the sum over heads
of W_o[:, head] z[head], whatever made z (grouped keys, fused projections). As in the whole term,
the constant W_o b_v + b_o is no head's. A root-mean-square norm between W_o and the stream scales
all heads of a token alike, and keeps the sum exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ...arrays import Float32
from ...errors import StudyError
from ..network.anatomy import Stack, Sublayer, normalisation
from ..network.model_loading import Network
from .decomposition import Decomposed, Rows, run_on_zeros, select_rows, token_sums

HEAD_COUNTS = ("num_attention_heads", "num_heads", "n_heads", "n_head", "attention_heads")
"""Names of the number of heads in configurations."""

Shares = Float32[torch.Tensor, "heads tokens"]


@dataclass(frozen=True, slots=True)
class AttentionHeads:
    """The heads of one attention sub-layer.

    Attributes:
        matrices: W_o, head by head.
        still: What W_o reads of each head where every token is the same, as that is bias.
    """

    sublayer: Sublayer
    matrices: Float32[torch.Tensor, "heads head_dim dim"]
    still: Float32[torch.Tensor, "heads head_dim"]
    multiplier: float

    @property
    def n_heads(self) -> int:
        return len(self.matrices)

    def outputs(self, read: torch.Tensor, summed: torch.Tensor | None, rows: Rows) -> HeadOutputs:
        """The outputs for some tokens, from what W_o read, and what a norm behind it read."""
        values = select_rows(read, rows).view(len(rows), *self.still.shape) - self.still
        scale = values.new_full((len(rows), 1), self.multiplier)
        outputs = HeadOutputs(self.matrices, values, scale, values.new_ones(self.matrices.shape[2]))
        if summed is not None:
            gain, _, eps, _ = normalisation(self.sublayer.branch)
            squares = select_rows(summed, rows).square().mean(dim=-1, keepdim=True)
            outputs.rescale((squares + eps).rsqrt(), gain)
        return outputs


@dataclass(slots=True)
class HeadOutputs:
    """What each head of one sub-layer added to the stream, scaled by the norms since.

    Attributes:
        values: What W_o read, without the constant.
        scale: Factor of each token.
        gain: Factor of each coordinate.
    """

    matrices: Float32[torch.Tensor, "heads head_dim dim"]
    values: Float32[torch.Tensor, "tokens heads head_dim"]
    scale: Float32[torch.Tensor, "tokens 1"]
    gain: Float32[torch.Tensor, " dim"]

    def vectors(self, head: int) -> Float32[torch.Tensor, "tokens dim"]:
        """The vectors of one head."""
        return self.scale * self.gain * (self.values[:, head] @ self.matrices[head])

    def rescale(self, scale: torch.Tensor, gain: torch.Tensor) -> None:
        """Follow the stream through a normalisation."""
        self.scale = self.scale * scale
        self.gain = self.gain * gain

    def importance(self, hidden: Float32[torch.Tensor, "tokens dim"]) -> Shares:
        """⟨e, x⟩ / |e|² of each head; W_o is applied to e, so that no head's vector is made."""
        tokens, heads, head_dim = self.values.shape
        flat = self.matrices.reshape(heads * head_dim, -1)
        read = ((hidden * self.gain) @ flat.T).view(tokens, heads, head_dim)
        along = (read * self.values).sum(dim=-1) * self.scale
        squares = hidden.square().sum(dim=-1, keepdim=True)
        return torch.where(squares > 0, along / squares, 0.0).T


def attention_heads(network: Network, stack: Stack) -> Mapping[int, AttentionHeads]:
    """The heads of every self-attention of a stream, by the id of the sub-layer's branch.

    Raises:
        StudyError: the output projection does not read heads of one size, or adds a bias
            before a norm, which belongs to no head.
    """
    sublayers = [s for s in chain.from_iterable(stack.sublayers) if s.term == "attention"]
    still = _read_of_zeros(network, sublayers)
    n_heads = _n_heads(network.config, stack)
    return {id(s.branch): _split(network, stack, s, n_heads, still) for s in sublayers}


def _split(
    network: Network, stack: Stack, sublayer: Sublayer, n_heads: int, still: dict[int, torch.Tensor]
) -> AttentionHeads:
    linear = sublayer.out_projection
    kind = network.config.model_type
    if linear is None:
        raise StudyError(f"attention of architecture {kind!r} cannot be split by head")
    weight = linear.weight if type(linear).__name__ == "Conv1D" else linear.weight.T
    assert isinstance(weight, torch.Tensor)
    if weight.shape[0] % n_heads:
        raise StudyError(f"attention of {kind!r}: {weight.shape[0]} values of {n_heads} heads")
    behind = not sublayer.is_linear
    if behind and (linear.bias is not None or normalisation(sublayer.branch)[3]):
        raise StudyError(
            f"attention of architecture {kind!r} cannot be split by head: its norm also reads "
            "a bias, which belongs to no head"
        )
    matrices = weight.detach().reshape(n_heads, -1, weight.shape[1])
    at_rest = still.get(id(sublayer.branch), torch.zeros_like(matrices[..., 0]))
    return AttentionHeads(sublayer, matrices, at_rest.view(matrices.shape[:2]), stack.multiplier)


def _n_heads(config: Any, stack: Stack) -> int:
    own = f"{stack.name}_attention_heads" if config.is_encoder_decoder else ""
    found = next((getattr(config, n) for n in (own, *HEAD_COUNTS) if hasattr(config, n)), None)
    if not isinstance(found, int):
        raise StudyError(f"{config.model_type!r} does not say how many heads it has")
    return found


def _read_of_zeros(network: Network, sublayers: list[Sublayer]) -> dict[int, torch.Tensor]:
    """By branch: what W_o reads where all projections before it read zeros: b_v of each head."""
    read: dict[int, torch.Tensor] = {}

    def keep(branch: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        read[id(branch)] = args[0].flatten(0, -2)[0].detach()

    summing = [s for s in sublayers if s.weights_sum_to_one and s.is_linear]
    hooks = (s.branch.register_forward_pre_hook(keep) for s in summing)
    run_on_zeros(network, summing, hooks)
    return read


@dataclass(slots=True)
class HeadReads:
    """Hooks that hand over what W_o read, as soon as the sub-layer's branch has run."""

    heads: AttentionHeads
    rows: Rows
    take: Callable[[HeadOutputs], None]
    _read: torch.Tensor = field(default_factory=lambda: torch.zeros(0))

    def attach(self) -> Iterator[RemovableHandle]:
        """Hook W_o, and the branch where it is a norm behind W_o."""
        linear = self.heads.sublayer.out_projection
        assert linear is not None
        yield linear.register_forward_pre_hook(self._before)
        yield self.heads.sublayer.branch.register_forward_hook(self._after)

    def _before(self, _: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        self._read = args[0]

    def _after(self, _: nn.Module, args: tuple[torch.Tensor, ...], __: object) -> None:
        summed = None if self.heads.sublayer.is_linear else args[0]
        self.take(self.heads.outputs(self._read, summed, self.rows))


@dataclass(slots=True)
class HeadTally:
    """The importance of each head, summed over tokens.

    Attributes:
        own: In the output of the head's own block, by block.
        last: In the last hidden state.
    """

    heads: Mapping[int, AttentionHeads]
    own: torch.Tensor | None = None
    last: torch.Tensor | None = None
    _outputs: list[HeadOutputs] = field(default_factory=list)
    _own: list[Shares] = field(default_factory=list)
    _hidden: torch.Tensor = field(default_factory=lambda: torch.zeros(0))

    def attach(self, rows: Rows) -> Iterator[RemovableHandle]:
        """Hook every self-attention for one pass."""
        self._outputs, self._own = [], []
        for heads in self.heads.values():
            yield from HeadReads(heads, rows, self._outputs.append).attach()

    def rescale(self, scale: torch.Tensor, gain: torch.Tensor) -> None:
        """Follow the stream through a normalisation."""
        for outputs in self._outputs:
            outputs.rescale(scale, gain)

    def see(self, layer: Decomposed) -> None:
        """Measure the newest block's heads in its output."""
        self._hidden = layer.terms.sum(dim=0)
        if layer.layer and not layer.normed:
            self._own.append(self._outputs[-1].importance(self._hidden))

    def end_pass(self) -> None:
        """Measure all heads in the last hidden state, and add the pass to the sums."""
        own = token_sums(torch.stack(self._own)).cpu()
        last = token_sums(torch.stack([o.importance(self._hidden) for o in self._outputs])).cpu()
        self.own = own if self.own is None else self.own + own
        self.last = last if self.last is None else self.last + last
        self._outputs = []
