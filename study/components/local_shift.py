"""Where a network was edited: each sub-layer is run on the base's own input.

A change in one layer moves every later hidden state. Here each block of the fine-tune reads what
the base's block read, and its feed-forward reads what the base's read after its attention, so
that a difference is made by that sub-layer.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ..network.anatomy import Stack, Sublayer
from ..network.hidden_states import first_tensor
from .decomposition import Rows, Stream, select_rows, token_sums

Call = dict[str, Any]

STREAM, SOURCE = "hidden_states", "encoder_hidden_states"
"""Arguments of a block that are states; the other arguments belong to its network."""
ZERO = 1e-6
"""Smaller shifts are float32 rounding."""


def record_calls(stack: Stack, calls: list[Call]) -> Iterator[RemovableHandle]:
    """Hooks that note the arguments of a network's blocks in one pass, in the order of the calls;
    of states those of the first block alone."""

    def enter(block: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        call = _arguments(block, args, kwargs)
        if calls:
            call.pop(STREAM)
        calls.append(call)

    for block in stack.blocks:
        yield block.register_forward_pre_hook(enter, with_kwargs=True)


def _arguments(block: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> Call:
    names = list(inspect.signature(block.forward).parameters)
    return dict(zip(names, args, strict=False)) | kwargs


def _ratio_sum(moved: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
    """The sum of the ratios; a ratio to a length of 0 counts as 0."""
    return token_sums(torch.where(length > 0, moved / length, 0.0))


def local_terms(stack: Stack) -> tuple[str, ...]:
    return tuple(term for term in stack.terms if term != "input")


@dataclass(slots=True)
class LocalShift:
    """Runs the fine-tune's block after each block of the base, on the same input, in one pass.

    Sums over the tokens of one batch. `bias` has changes of constants and of norms behind a sum;
    a change of biases inside a sub-layer (b_q, b_k, b_1) counts for that sub-layer.

    Attributes:
        calls: Of the fine-tune's pass over the same batch.
        layers: By block: |change of the own term| / |input| of each sub-layer's term, and `bias`.
        embedding: |change of the embedding output| / |embedding output|.
    """

    tuned: Stream
    base: Stream
    rows: Rows
    calls: Sequence[Call]
    layers: list[torch.Tensor] = field(default_factory=list)
    embedding: torch.Tensor = field(default_factory=lambda: torch.zeros(()))
    _branches: dict[int, torch.Tensor] = field(default_factory=dict)
    _norms: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    _called: Call = field(default_factory=dict)

    def attach(self) -> Iterator[RemovableHandle]:
        pairs = zip(self.base.stack.blocks, self.tuned.stack.blocks, strict=True)
        for place, (block, other) in enumerate(pairs):
            yield block.register_forward_pre_hook(self._enter, with_kwargs=True)
            for sublayer in self.base.stack.sublayers[place]:
                yield sublayer.branch.register_forward_hook(self._branch)
                if sublayer.norm is not None:
                    yield sublayer.norm.register_forward_hook(self._norm)
            yield block.register_forward_hook(partial(self._compare, place, other))

    def _enter(self, block: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        self._called = _arguments(block, args, kwargs)
        if not self.layers:
            stream = self._called[STREAM]
            moved = select_rows(self.calls[0][STREAM] - stream, self.rows).norm(dim=-1)
            length = select_rows(stream, self.rows).norm(dim=-1)
            self.embedding = _ratio_sum(moved, length)

    def _branch(self, branch: nn.Module, _: object, output: object) -> None:
        # some blocks add to it in place
        self._branches[id(branch)] = first_tensor(output).clone()

    def _norm(self, norm: nn.Module, args: tuple[torch.Tensor, ...], output: object) -> None:
        self._norms[id(norm)] = args[0], first_tensor(output)

    def _compare(self, place: int, other: nn.Module, *_: object) -> None:
        stream = self._called[STREAM]
        length = select_rows(stream, self.rows).norm(dim=-1)
        moved = {"bias": torch.zeros_like(stream)}
        sublayers = (side.stack.sublayers[place] for side in (self.tuned, self.base))
        with ExitStack() as hooks:
            for mine, theirs in zip(*sublayers, strict=True):
                moved["bias"] += self._constant_change(mine, theirs)
                hold = partial(self._hold, mine, theirs, moved)
                hooks.enter_context(mine.branch.register_forward_hook(hold))
                if mine.norm is not None:
                    held = self._norms[id(theirs.norm)][1]
                    hooks.enter_context(mine.norm.register_forward_hook(lambda *_, held=held: held))
            states = {name: self._called[name] for name in (STREAM, SOURCE) if name in self._called}
            other(**self.calls[len(self.layers)] | states)
        still = torch.zeros_like(stream)
        changes = (
            select_rows(moved.get(name, still), self.rows) for name in local_terms(self.base.stack)
        )
        self.layers.append(
            torch.stack([_ratio_sum(change.norm(dim=-1), length) for change in changes])
        )

    def _constant_change(self, mine: Sublayer, theirs: Sublayer) -> torch.Tensor:
        """How constants, and a norm behind the sum, change the base's own sum."""
        before = self.base.constants.get(id(theirs.branch))
        after = self.tuned.constants.get(id(mine.branch))
        change = torch.zeros(()) if after is None or before is None else after - before
        by = self.base.stack.multiplier
        if mine.norm is None or theirs.norm is None:
            return by * change
        before_norm, after_norm = self._norms[id(theirs.norm)]
        changed: torch.Tensor = mine.norm.forward(before_norm + by * change) - after_norm
        return changed

    def _hold(
        self,
        mine: Sublayer,
        theirs: Sublayer,
        moved: dict[str, torch.Tensor],
        _: nn.Module,
        __: object,
        output: object,
    ) -> object:
        """Store the branch's change beyond its constant, and return the base's output."""
        given = self._branches[id(theirs.branch)]
        change = first_tensor(output).view(given.shape) - given
        for sign, constants, branch in (
            (-1, self.tuned.constants, mine.branch),
            (1, self.base.constants, theirs.branch),
        ):
            constant = constants.get(id(branch))
            if constant is not None:
                change = change + sign * constant
        moved[mine.term] = self.base.stack.multiplier * change.view(moved["bias"].shape)
        return (given.clone(), *output[1:]) if isinstance(output, tuple) else given.clone()
