"""Where a network was edited: each sub-layer fed with the base's own input.

A change in one layer moves every later hidden state. Here each block of the fine-tune sees what
the base's block saw, and its feed-forward what the base's saw after its attention, so that a
difference is that sub-layer's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import torch
from jaxtyping import Float64
from torch import nn

from ..network.anatomy import Stack, Sublayer
from ..network.encode import Batch
from ..network.load import Network
from ..network.states import first_tensor, stream_input
from .decompose import Constants

ZERO = 1e-6
"""Shifts below this are float32 rounding."""


@dataclass(frozen=True, slots=True)
class LocalShift:
    """Sums over the tokens of one batch, to be divided by their number.

    Attributes:
        layers: Per block: |own term's change| / |input| for each of `names`.
        embedding: |change of the embedding output| / |embedding output|.
    """

    names: tuple[str, ...]
    layers: Float64[torch.Tensor, "layers terms"]
    embedding: float


def local_shift(
    tuned: tuple[Network, Stack, Constants],
    base: tuple[Network, Stack, Constants],
    batch: Batch,
) -> LocalShift:
    """Of one batch; `bias` books changes of constants and of norms behind a sum.

    What trains biases inside a sub-layer (b_q, b_k, b_1) shows under that sub-layer.
    """
    names = tuple(term for term in base[1].terms if term != "input")
    kept = torch.from_numpy(batch.kept).to(base[0].device)
    probe = _Probe(tuned, base, kept, names)
    with ExitStack() as hooks, torch.inference_mode():
        for handle in probe.attach():
            hooks.callback(handle.remove)
        base[0].model(**batch.inputs(base[0]))
        entering = _first_input(tuned, batch)
    moved = (entering - probe.embedded)[kept].norm(dim=-1)
    length = probe.embedded[kept].norm(dim=-1)
    embedding = float((moved / length).double().sum())
    return LocalShift(names, torch.stack(probe.layers), embedding)


def _first_input(side: tuple[Network, Stack, Constants], batch: Batch) -> torch.Tensor:
    """What enters the first block."""
    seen: list[torch.Tensor] = []

    def enter(_: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        seen.append(stream_input(args, kwargs))

    handle = side[1].blocks[0].register_forward_pre_hook(enter, with_kwargs=True)
    try:
        side[0].model(**batch.inputs(side[0]))
    finally:
        handle.remove()
    return seen[0]


@dataclass(slots=True)
class _Probe:
    """The fine-tune's blocks, called beside the base's."""

    tuned: tuple[Network, Stack, Constants]
    base: tuple[Network, Stack, Constants]
    kept: torch.Tensor
    names: tuple[str, ...]
    embedded: torch.Tensor = field(default_factory=lambda: torch.zeros(0))
    layers: list[torch.Tensor] = field(default_factory=list)
    _branches: dict[int, torch.Tensor] = field(default_factory=dict)
    _norms: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    _called: tuple[tuple[object, ...], dict[str, object]] = ((), {})

    def attach(self) -> Iterator[torch.utils.hooks.RemovableHandle]:
        """Hook the base: what goes into each block, what its sub-layers give."""
        pairs = zip(self.base[1].blocks, self.tuned[1].blocks, strict=True)
        for place, (block, other) in enumerate(pairs):
            yield block.register_forward_pre_hook(self._enter, with_kwargs=True)
            for sublayer in self.base[1].sublayers[place]:
                yield sublayer.branch.register_forward_hook(self._branch)
                if sublayer.norm is not None:
                    yield sublayer.norm.register_forward_hook(self._norm)
            yield block.register_forward_hook(self._leave(place, other))

    def _enter(self, _: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        self._called = args, kwargs
        if not self.layers:
            self.embedded = stream_input(args, kwargs)

    def _branch(self, branch: nn.Module, _: object, output: object) -> None:
        self._branches[id(branch)] = first_tensor(output)

    def _norm(self, norm: nn.Module, args: tuple[torch.Tensor, ...], output: object) -> None:
        self._norms[id(norm)] = args[0], first_tensor(output)

    def _leave(self, place: int, other: nn.Module) -> Callable[..., None]:
        def leave(_: nn.Module, __: object, ___: object) -> None:
            self._compare(place, other)

        return leave

    def _compare(self, place: int, other: nn.Module) -> None:
        """Call the fine-tune's block on the base's input, its sub-layers held to the base's."""
        args, kwargs = self._called
        length = stream_input(args, kwargs)[self.kept].norm(dim=-1)
        moved: dict[str, torch.Tensor] = {}
        pairs = zip(self.tuned[1].sublayers[place], self.base[1].sublayers[place], strict=True)
        with ExitStack() as hooks:
            for mine, theirs in pairs:
                moved.setdefault("bias", torch.zeros_like(stream_input(args, kwargs)))
                moved["bias"] += self._constant_change(mine, theirs)
                hook = self._hold(mine, theirs, moved)
                hooks.callback(mine.branch.register_forward_hook(hook).remove)
                if mine.norm is not None:
                    held = self._hold_norm(theirs)
                    hooks.callback(mine.norm.register_forward_hook(held).remove)
            other(*args, **kwargs)
        found = [
            (moved[name][self.kept].norm(dim=-1) / length).double().sum()
            if name in moved
            else length.new_zeros((), dtype=torch.float64)
            for name in self.names
        ]
        self.layers.append(torch.stack(found))

    def _constant_change(self, mine: Sublayer, theirs: Sublayer) -> torch.Tensor:
        """What constants, and a norm behind the sum, change of the base's own sum."""
        before = self.base[2].get(id(theirs.branch))
        after = self.tuned[2].get(id(mine.branch))
        change = torch.zeros(()) if after is None or before is None else after - before
        by = self.base[1].multiplier
        if mine.norm is None or theirs.norm is None:
            return by * change
        given, made = self._norms[id(theirs.norm)]
        changed: torch.Tensor = mine.norm.forward(given + by * change) - made
        return changed

    def _hold(
        self, mine: Sublayer, theirs: Sublayer, moved: dict[str, torch.Tensor]
    ) -> Callable[..., object]:
        """Book what the branch changed beyond its constant; hand on what the base's gave."""
        by = self.base[1].multiplier

        def hold(_: nn.Module, __: object, output: object) -> object:
            shape = self._branches[id(theirs.branch)].shape
            change = first_tensor(output).view(shape) - self._branches[id(theirs.branch)]
            for sign, constants, branch in (
                (-1, self.tuned[2], mine.branch),
                (1, self.base[2], theirs.branch),
            ):
                constant = constants.get(id(branch))
                if constant is not None:
                    change = change + sign * constant
            moved[mine.term] = by * change.view(moved["bias"].shape)
            given = self._branches[id(theirs.branch)]
            return (given, *output[1:]) if isinstance(output, tuple) else given

        return hold

    def _hold_norm(self, theirs: Sublayer) -> Callable[..., object]:
        def hold(_: nn.Module, __: object, ___: object) -> object:
            return self._norms[id(theirs.norm)][1]

        return hold
