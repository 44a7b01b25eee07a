"""Where a network was edited: each sub-layer fed with the base's own input.

A change in one layer moves every later hidden state. Here each block of the fine-tune sees what
the base's block saw, and its feed-forward what the base's saw after its attention, so that a
difference is that sub-layer's own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ...arrays import Float64
from ..network.anatomy import Stack, Sublayer
from ..network.hidden_states import Batch, first_tensor
from ..network.model_loading import Network
from .decomposition import Constants

Side = tuple[Network, Stack, Constants]
Call = dict[str, Any]

STREAM, SOURCE = "hidden_states", "encoder_hidden_states"
"""Arguments of a block that are states; the rest, positions for one, belongs to its network."""

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


def local_shift(tuned: Side, base: Side, batch: Batch) -> LocalShift:
    """Of one batch; `bias` books changes of constants and of norms behind a sum.

    What trains biases inside a sub-layer (b_q, b_k, b_1) shows under that sub-layer.
    """
    names = tuple(term for term in base[1].terms if term != "input")
    kept = torch.from_numpy(batch.kept).to(base[0].device)
    with torch.inference_mode():
        calls = _calls(tuned, batch)
        probe = _Probe(tuned, base, kept, names, calls)
        with ExitStack() as hooks:
            for handle in probe.attach():
                hooks.callback(handle.remove)
            base[0].model(**batch.inputs(base[0]))
    moved = (calls[0][STREAM] - probe.embedded)[kept].norm(dim=-1)
    embedding = float(_over(moved, probe.embedded[kept].norm(dim=-1)))
    return LocalShift(names, torch.stack(probe.layers), embedding)


def _calls(side: Side, batch: Batch) -> list[Call]:
    """What a network calls its blocks with, in the order of the calls."""
    seen: list[Call] = []

    def enter(block: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        seen.append(_bound(block, args, kwargs))

    with ExitStack() as hooks:
        for block in side[1].blocks:
            handle = block.register_forward_pre_hook(enter, with_kwargs=True)
            hooks.callback(handle.remove)
        side[0].model(**batch.inputs(side[0]))
    return seen


def _bound(block: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> Call:
    """The arguments of a call by name."""
    names = list(inspect.signature(block.forward).parameters)
    return dict(zip(names, args, strict=False)) | kwargs


def _over(moved: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
    """Sum of the ratios, 0 where there is nothing to compare with."""
    return torch.where(length > 0, moved / length, 0.0).double().sum()


@dataclass(slots=True)
class _Probe:
    """The fine-tune's blocks, called beside the base's."""

    tuned: Side
    base: Side
    kept: torch.Tensor
    names: tuple[str, ...]
    calls: list[Call]
    embedded: torch.Tensor = field(default_factory=lambda: torch.zeros(0))
    layers: list[torch.Tensor] = field(default_factory=list)
    _branches: dict[int, torch.Tensor] = field(default_factory=dict)
    _norms: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    _called: Call = field(default_factory=dict)

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

    def _enter(self, block: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        self._called = _bound(block, args, kwargs)
        if not self.layers:
            self.embedded = self._called[STREAM]

    def _branch(self, branch: nn.Module, _: object, output: object) -> None:
        # some blocks add to it in place
        self._branches[id(branch)] = first_tensor(output).clone()

    def _norm(self, norm: nn.Module, args: tuple[torch.Tensor, ...], output: object) -> None:
        self._norms[id(norm)] = args[0], first_tensor(output)

    def _leave(self, place: int, other: nn.Module) -> Callable[..., None]:
        def leave(_: nn.Module, __: object, ___: object) -> None:
            self._compare(place, other)

        return leave

    def _compare(self, place: int, other: nn.Module) -> None:
        """Call the fine-tune's block on the base's input, its sub-layers held to the base's."""
        stream = self._called[STREAM]
        length = stream[self.kept].norm(dim=-1)
        moved = {"bias": torch.zeros_like(stream)}
        pairs = zip(self.tuned[1].sublayers[place], self.base[1].sublayers[place], strict=True)
        with ExitStack() as hooks:
            for mine, theirs in pairs:
                moved["bias"] += self._constant_change(mine, theirs)
                hook = self._hold(mine, theirs, moved)
                hooks.callback(mine.branch.register_forward_hook(hook).remove)
                if mine.norm is not None:
                    held = self._hold_norm(theirs)
                    hooks.callback(mine.norm.register_forward_hook(held).remove)
            states = {name: self._called[name] for name in (STREAM, SOURCE) if name in self._called}
            other(**self.calls[len(self.layers)] | states)
        found = [
            _over(moved[name][self.kept].norm(dim=-1), length)
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
            given = self._branches[id(theirs.branch)].clone()
            return (given, *output[1:]) if isinstance(output, tuple) else given

        return hold

    def _hold_norm(self, theirs: Sublayer) -> Callable[..., object]:
        def hold(_: nn.Module, __: object, ___: object) -> object:
            return self._norms[id(theirs.norm)][1]

        return hold
