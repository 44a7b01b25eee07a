"""Every hidden state as an exact sum of terms: input, attention, feed-forward, bias.

Mickus, Paperno, Constant 2022 (arXiv 2206.03529), eq. 1, as a recurrence along the stream: what
a sub-layer adds counts for its term, its constant part for `bias`. A normalisation scales all
terms alike; its mean and its own bias are constants too. Decoders that attend to an encoder have
a fifth term, `source` (Mickus, Vázquez 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ...arrays import Float, Float32, Float64, Int64
from ..network.anatomy import Stack, Sublayer, is_linear, normalisation
from ..network.hidden_states import TextBatch, first_tensor, run_with_hooks, stream_input
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


def streams_of(network: Network) -> tuple[Stream, ...]:
    """Every stream of a network; one short pass measures all constants."""
    constants = branch_constants(network, *network.stacks)
    return tuple(Stream(network, stack, constants) for stack in network.stacks)


def counted_rows(batch: TextBatch) -> Rows:
    return torch.from_numpy(np.flatnonzero(batch.counted)).to(batch.ids.device)


def select_rows(
    states: Float[torch.Tensor, "... dim"], rows: Rows
) -> Float[torch.Tensor, "tokens dim"]:
    return states.reshape(-1, states.shape[-1]).index_select(0, rows)


def decompose(
    network: Network, stack: Stack, batch: TextBatch, constants: Constants
) -> list[Decomposed]:
    """Every layer in order, then the last one after the final norm, if there is one.

    Peak: all terms of all layers of the batch.
    """
    layers: list[Decomposed] = []
    run_with_hooks(network, batch, TermTrack(stack, constants, keeper(layers)).attach())
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

    def zeros(_: nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return (torch.zeros_like(args[0]), *args[1:])

    sublayers = [s for stack in stacks for s in chain.from_iterable(stack.sublayers)]
    attending = [s for s in sublayers if s.term != "feed_forward" and s.weights_sum_to_one]
    summing = [s for s in attending if is_linear(s.branch)]

    def hooks() -> Iterator[RemovableHandle]:
        for sublayer in summing:
            for part in sublayer.module.modules():
                if is_linear(part) and part is not sublayer.branch:
                    yield part.register_forward_pre_hook(zeros)
            yield sublayer.branch.register_forward_hook(keep)

    ids = torch.zeros((1, 2), dtype=torch.int64, device=network.device)
    batch = TextBatch(0, ids, torch.ones_like(ids), ids.cpu().numpy() > 0)
    run_with_hooks(network, batch, hooks())
    for sublayer in sublayers:
        bias = getattr(sublayer.branch, "bias", None)
        if id(sublayer.branch) not in constants and is_linear(sublayer.branch) and bias is not None:
            constants[id(sublayer.branch)] = bias.detach()
    return constants


@dataclass(slots=True)
class TermTrack:
    """The terms of all tokens or of some rows, updated by the hooks of a forward pass.

    `emit` is called with every layer, which changes after it returns.
    """

    stack: Stack
    constants: Constants
    emit: Callable[[Decomposed], None]
    rows: Rows | None = None
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


def relative_lengths(
    vectors: Float32[torch.Tensor, "*terms tokens dim"],
    against: Float32[torch.Tensor, "tokens dim"],
) -> Float32[torch.Tensor, "*terms tokens"]:
    """|x| / |e|, far above the importance where terms cancel each other; 0 where e is zero."""
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
