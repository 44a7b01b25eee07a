"""Every hidden state as an exact sum of terms: input, attention, feed-forward, bias.

Mickus, Paperno, Constant 2022 (arXiv 2206.03529), eq. 1, as a recurrence along the stream: what
a sub-layer adds counts for its term, its constant part for `bias`. A normalisation scales all
terms alike; its mean and its own bias are constants too. Decoders that attend to an encoder have
a fifth term, `source` (Mickus, Vázquez 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ...arrays import Float, Float32, Float64, Int64
from ...errors import StudyError
from ..network.anatomy import Stack, Sublayer, is_linear, normalisation
from ..network.hidden_states import Batch, first_tensor, run_with_hooks, stream_input
from ..network.model_loading import Network


@dataclass(frozen=True, slots=True)
class Decomposed:
    """One layer of one batch: 0 is the embedding output, l the output of block l.

    The terms are in the order of `Stack.terms`; their sum is the hidden state that the network
    computed, after the final norm where it is `normed`.
    """

    layer: int
    normed: bool
    terms: Float32[torch.Tensor, "terms *tokens dim"]
    hidden: Float32[torch.Tensor, "*tokens dim"]

    def kept(self) -> Decomposed:
        return Decomposed(self.layer, self.normed, self.terms.clone(), self.hidden.clone())


Constants = Mapping[int, torch.Tensor]
"""By the id of a branch: its output where every token is the same, (dim,)."""

Rows = Int64[torch.Tensor, " tokens"]
"""Places of tokens in a batch, all texts one after the other."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A residual stream of a network, with the constants of its branches."""

    network: Network
    stack: Stack
    constants: Constants

    @classmethod
    def of(cls, network: Network, stack: Stack) -> Stream:
        return cls(network, stack, branch_constants(network, stack))


def streams_of(network: Network) -> tuple[Stream, ...]:
    """Every stream of a network; one short pass measures all constants."""
    constants = branch_constants(network, *network.stacks)
    return tuple(Stream(network, stack, constants) for stack in network.stacks)


def counted_rows(batch: Batch) -> Rows:
    return torch.from_numpy(np.flatnonzero(batch.counted)).to(batch.ids.device)


def select_rows(
    states: Float[torch.Tensor, "... dim"], rows: Rows
) -> Float[torch.Tensor, "tokens dim"]:
    return states.reshape(-1, states.shape[-1]).index_select(0, rows)


def decompose(
    network: Network, stack: Stack, batch: Batch, constants: Constants
) -> list[Decomposed]:
    """Every layer in order, then the last one after the final norm, if there is one.

    Peak: all terms of all layers of the batch.
    """
    layers: list[Decomposed] = []
    run_with_hooks(network, batch, Track(stack, constants, keeper(layers)).attach())
    return layers


def keeper(layers: list[Decomposed]) -> Callable[[Decomposed], None]:
    return lambda layer: layers.append(layer.kept())


def branch_constants(network: Network, *stacks: Stack) -> Constants:
    """What each branch adds for any tokens: W_o b_v + b_o of attention, b_2 of the rest.

    The constant of attention is the output of a pass whose projections read zeros: then every
    value is b_v, and weights that sum to one give W_o b_v + b_o in any layout of the heads. With
    attention sinks they sum to less, by token: the constant is b_o, and W_o b_v is attention's.
    """
    constants: dict[int, torch.Tensor] = {}

    def keep(branch: nn.Module, _: object, output: object) -> None:
        constants[id(branch)] = first_tensor(output)[0, 0].detach()

    sublayers = [s for stack in stacks for s in chain.from_iterable(stack.sublayers)]
    summing = [s for s in sublayers if s.term != "feed_forward" and s.weights_sum_to_one]
    run_on_zeros(
        network, summing, (s.branch.register_forward_hook(keep) for s in summing if s.is_linear)
    )
    for sublayer in sublayers:
        bias = getattr(sublayer.branch, "bias", None)
        if sublayer not in summing and sublayer.is_linear and bias is not None:
            constants[id(sublayer.branch)] = bias.detach()
    return constants


def run_on_zeros(
    network: Network, sublayers: Sequence[Sublayer], hooks: Iterable[RemovableHandle]
) -> None:
    """Run the network with hooks, while all projections but the last of these read zeros."""

    def zeros(_: nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return (torch.zeros_like(args[0]), *args[1:])

    def zeroing() -> Iterator[RemovableHandle]:
        for sublayer in sublayers:
            for part in sublayer.module.modules() if sublayer.is_linear else ():
                if is_linear(part) and part is not sublayer.branch:
                    yield part.register_forward_pre_hook(zeros)

    ids = torch.zeros((1, 2), dtype=torch.int64, device=network.device)
    batch = Batch(0, ids, torch.ones_like(ids), ids.cpu().numpy() > 0)
    run_with_hooks(network, batch, chain(zeroing(), hooks))


@dataclass(slots=True)
class Track:
    """The terms of all tokens or of some rows, updated by the hooks of a forward pass.

    `emit` is called with every layer, which changes after it returns; `scaled` with the factors
    (tokens, 1) and (dim,) of every normalisation.
    """

    stack: Stack
    constants: Constants
    emit: Callable[[Decomposed], None]
    rows: Rows | None = None
    scaled: Callable[[torch.Tensor, torch.Tensor], None] | None = None
    _place: int = 0
    _terms: torch.Tensor = field(default_factory=lambda: torch.zeros(0))

    def attach(self) -> Iterator[RemovableHandle]:
        if self.stack.first_norm is not None:
            yield self.stack.first_norm.register_forward_pre_hook(self._embedded)
        if self.stack.projection is not None:
            yield self.stack.projection.register_forward_hook(self._projected)
        for block in self.stack.blocks:
            yield block.register_forward_pre_hook(self._enter, with_kwargs=True)
        for sublayer in chain.from_iterable(self.stack.sublayers):
            yield sublayer.branch.register_forward_hook(self._adder(sublayer))
            if sublayer.norm is not None:
                yield sublayer.norm.register_forward_pre_hook(self._normalised)
        for block in self.stack.blocks:
            yield block.register_forward_hook(lambda _, __, output: self._snapshot(output))
        if self.stack.final_norm is not None:
            yield self.stack.final_norm.register_forward_hook(self._finish)

    def _picked(self, states: torch.Tensor) -> torch.Tensor:
        return states if self.rows is None else select_rows(states, self.rows)

    def _start(self, stream: torch.Tensor) -> None:
        picked = self._picked(stream)
        self._terms = picked.new_zeros((len(self.stack.terms), *picked.shape))
        self._terms[0] = picked

    def _embedded(self, norm: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        self._start(args[0])
        self._normalised(norm, args)

    def _projected(self, linear: nn.Module, _: object, __: object) -> None:
        assert isinstance(linear, nn.Linear)
        self._terms = self._terms @ linear.weight.T
        if linear.bias is not None:
            self._terms[-1] += linear.bias

    def _enter(self, _: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        if self._place:
            return
        stream = stream_input(args, kwargs)
        if not len(self._terms):
            self._start(stream)
        self._snapshot(stream)

    def _adder(self, sublayer: Sublayer) -> Callable[[nn.Module, object, object], None]:
        row = self.stack.terms.index(sublayer.term)
        constant = self.constants.get(id(sublayer.branch))
        by = self.stack.multiplier

        def add(_: nn.Module, __: object, output: object) -> None:
            added = self._picked(first_tensor(output)).view(self._terms.shape[1:])
            self._terms[row].add_(added, alpha=by)
            if constant is not None:
                self._terms[row].sub_(constant, alpha=by)
                self._terms[-1].add_(constant, alpha=by)

        return add

    def _normalised(self, norm: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        gain, bias, eps, centres = normalisation(norm)
        stream = self._picked(args[0])
        if centres:
            mean = stream.mean(dim=-1, keepdim=True)
            self._terms[-1] -= mean
            stream = stream - mean
        scale = (stream.square().mean(dim=-1, keepdim=True) + eps).rsqrt()
        self._terms *= scale * gain
        if bias is not None:
            self._terms[-1] += bias
        if self.scaled is not None:
            self.scaled(scale, gain)

    def _finish(self, norm: nn.Module, args: tuple[torch.Tensor, ...], output: object) -> None:
        self._normalised(norm, args)
        self._snapshot(output, normed=True)

    def _snapshot(self, output: object, *, normed: bool = False) -> None:
        hidden = self._picked(first_tensor(output))
        self.emit(Decomposed(self._place - normed, normed, self._terms, hidden))
        self._place += 1


def importance(
    terms: Float32[torch.Tensor, "terms tokens dim"],
) -> Float32[torch.Tensor, "terms tokens"]:
    """The importance μ(e, x) = ⟨e, x⟩ / |e|² of each term, which may be below 0 or above 1.

    It sums to 1 over terms; 0 where the hidden state is zero. Mickus et al. 2022, eq. 3.
    """
    hidden = terms.sum(dim=0)
    squares = hidden.square().sum(dim=-1)
    return torch.where(squares > 0, (terms * hidden).sum(dim=-1) / squares, 0.0)


def norm_ratios(
    terms: Float32[torch.Tensor, "terms tokens dim"],
) -> Float32[torch.Tensor, "terms tokens"]:
    """|x| / |e|: far above the importance where terms cancel each other."""
    return relative_lengths(terms, terms.sum(dim=0))


def relative_lengths(
    vectors: Float32[torch.Tensor, "*terms tokens dim"],
    against: Float32[torch.Tensor, "tokens dim"],
) -> Float32[torch.Tensor, "*terms tokens"]:
    """|x| / |e|; 0 where e is zero."""
    length = against.norm(dim=-1)
    return torch.where(length > 0, vectors.norm(dim=-1) / length, 0.0)


def term_shifts(
    tuned: Float32[torch.Tensor, "terms tokens dim"],
    base: Float32[torch.Tensor, "terms tokens dim"],
) -> tuple[Float32[torch.Tensor, "terms tokens"], Float32[torch.Tensor, "terms tokens"]]:
    """(|x' − x| / |e|, ⟨x' − x, e' − e⟩ / |e' − e|²) of every term and token: how far it moved, and
    its share in the change of the hidden state; shares sum to 1, or are 0 where nothing changed.

    Both include effects of earlier layers, and so do not say where the network was edited.
    """
    moved = tuned - base
    return relative_lengths(moved, base.sum(dim=0)), importance(moved)


def token_sums(values: Float32[torch.Tensor, "*rows tokens"]) -> Float64[torch.Tensor, "*rows"]:
    """Sums over tokens in float64: on the CPU where the device has no such numbers (MPS)."""
    here = values.cpu() if values.device.type == "mps" else values
    return here.double().sum(dim=-1)


HEAD_COUNTS = ("num_attention_heads", "num_heads", "n_heads", "n_head", "attention_heads")
"""Names of the number of heads in configurations."""

Shares = Float32[torch.Tensor, "heads tokens"]


@dataclass(frozen=True, slots=True)
class AttentionHeads:
    """The heads of one attention sub-layer: W_o head by head, and what it reads of each where every
    token is the same, as that is bias."""

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
    """What each head of one sub-layer added to the stream: what W_o read, without the constant,
    scaled by the norms since."""

    matrices: Float32[torch.Tensor, "heads head_dim dim"]
    values: Float32[torch.Tensor, "tokens heads head_dim"]
    scale: Float32[torch.Tensor, "tokens 1"]
    gain: Float32[torch.Tensor, " dim"]

    def vectors(self, head: int) -> Float32[torch.Tensor, "tokens dim"]:
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
    """The heads of every self-attention of a stream, by the id of the sub-layer's branch."""
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
    """The importance of each head, summed over tokens: by block, in the output of the head's own
    block and in the last hidden state."""

    heads: Mapping[int, AttentionHeads]
    own: torch.Tensor = field(default_factory=lambda: torch.zeros(()))
    last: torch.Tensor = field(default_factory=lambda: torch.zeros(()))
    _outputs: list[HeadOutputs] = field(default_factory=list)
    _own: list[Shares] = field(default_factory=list)
    _hidden: torch.Tensor = field(default_factory=lambda: torch.zeros(0))

    def attach(self, rows: Rows) -> Iterator[RemovableHandle]:
        self._outputs, self._own = [], []
        for heads in self.heads.values():
            yield from HeadReads(heads, rows, self._outputs.append).attach()

    def rescale(self, scale: torch.Tensor, gain: torch.Tensor) -> None:
        for outputs in self._outputs:
            outputs.rescale(scale, gain)

    def see(self, layer: Decomposed) -> None:
        self._hidden = layer.terms.sum(dim=0)
        if layer.layer and not layer.normed:
            self._own.append(self._outputs[-1].importance(self._hidden))

    def end_pass(self) -> None:
        last = [outputs.importance(self._hidden) for outputs in self._outputs]
        self.own = self.own + token_sums(torch.stack(self._own)).cpu()
        self.last = self.last + token_sums(torch.stack(last)).cpu()
        self._outputs = []
