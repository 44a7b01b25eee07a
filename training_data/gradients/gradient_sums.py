"""The gradients of a model's layer matrices, added up while a loss is run backward.

No parameter requires a gradient: what enters the first layer does, so that a backward pass hands
each matrix its δ and stores nothing else. Hooks add δ xᵀ to the sum of each matrix at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import torch
from torch import nn

from ...errors import ModelError
from ...indexer import DenseDelta, Layout, MatrixUpdate, PlacedModel, Placement, flaw_of, place
from ...records import Recipe
from .gradient_pool import GradientPool
from .matrix_sums import CORANGE, DenseSum, MatrixSum, StreamedSum

WEIGHT = ".weight"
SUM_BYTES = 400 << 20
"""Bytes of the sums of one part and of the total. Matrices that fit are added up as they are."""

FEWEST_COLUMNS, MOST_COLUMNS = 24, 128
"""Of the range sketch of a matrix that does not fit."""


@dataclass(frozen=True, slots=True)
class LayerMatrices:
    """The layer matrices of a loaded model.

    Attributes:
        modules: Those that apply them, by name, with the matrices cut out of each.
        left_out: Names of matrices that no module of their own applies, such as stacked experts.
    """

    modules: Mapping[str, tuple[nn.Module, tuple[Placement, ...]]]
    left_out: tuple[str, ...]

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Of all modules."""
        return tuple(p for _, placements in self.modules.values() for p in placements)


def layer_matrices(model: nn.Module, config: Mapping[str, object] | None) -> LayerMatrices:
    """The slots of a model in memory.

    Raises:
        ModelError: its layer matrices are not known, or none is applied by a module.
    """
    placed: PlacedModel = place(
        {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}, config
    )
    placed.require_known()
    modules: dict[str, tuple[nn.Module, tuple[Placement, ...]]] = {}
    left_out = []
    for tensor, placements in placed.by_tensor().items():
        name = tensor.removesuffix(WEIGHT)
        module = model.get_submodule(name) if tensor.endswith(WEIGHT) else None
        if module is None or not _is_linear(module):
            left_out.append(tensor)
        else:
            modules[name] = module, tuple(placements)
    if not modules:
        raise ModelError("unknown-architecture", "no layer matrix is applied by a module")
    return LayerMatrices(modules, tuple(left_out))


def _is_linear(module: nn.Module) -> bool:
    """Whether it computes x Wᵀ + b, or x W + b as GPT-2's Conv1D."""
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"


@dataclass(slots=True, eq=False)
class GradientSums:
    """The sums of all layer matrices.

    Attributes:
        matrices: Where they are.
        columns: Of the range sketches that are kept in place of the sums; None keeps the sums.
    """

    matrices: LayerMatrices
    columns: int | None
    device: torch.device
    _sums: list[list[MatrixSum]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sums = [
            [self._new(placement.shape) for placement in placements]
            for _, placements in self.matrices.modules.values()
        ]

    def _new(self, shape: tuple[int, int]) -> MatrixSum:
        if self.columns is None:
            return DenseSum(shape, self.device)
        return StreamedSum(shape, self.device, self.columns)

    @contextmanager
    def collecting(self, model: nn.Module) -> Iterator[None]:
        """Add the gradients of every loss that is run backward in the block."""
        with ExitStack() as attached:
            for module in model.modules():
                if isinstance(module, nn.Embedding):
                    attached.enter_context(module.register_forward_hook(_require_gradient))
            for (module, placements), sums in zip(
                self.matrices.modules.values(), self._sums, strict=True
            ):
                attached.enter_context(module.register_forward_hook(_collector(placements, sums)))
            with torch.enable_grad():
                yield

    def add_sums(self, other: GradientSums) -> None:
        """Add the sums over other examples."""
        for own, others in zip(self._sums, other._sums, strict=True):
            for total, part in zip(own, others, strict=True):
                total.add_sum(part)

    def updates(self, scale: float) -> Iterator[MatrixUpdate]:
        """−`scale` times each gradient, as if it were a fine-tune's ΔW; one at a time.

        Raises:
            ModelError: a gradient holds NaN or infinity, or overflows.
        """
        in_order = [
            (placement, total)
            for (_, placements), sums in zip(
                self.matrices.modules.values(), self._sums, strict=True
            )
            for placement, total in zip(placements, sums, strict=True)
        ]
        for placement, total in in_order:
            delta = total.descent(scale)
            norm = delta.norm
            stored = (delta.matrix,) if isinstance(delta, DenseDelta) else (delta.left, delta.right)
            if flaw := flaw_of(norm, *stored):
                raise ModelError("non-finite", f"the gradient of {placement.tensor!r} {flaw}")
            yield MatrixUpdate(
                slot=placement.slot,
                part=placement.part,
                delta=delta if norm > 0 else None,
                shape=placement.shape,
                noise_norm=0.0,
                weight_norm=None,
            )

    def pooled(self, recipe: Recipe, layout: Layout, *, scale: float, power: float) -> GradientPool:
        """The sketches of −`scale` times the gradients under a recipe."""
        pool = GradientPool(recipe, layout, power)
        for update in self.updates(scale):
            pool.take(update)
        return pool


def columns_of(matrices: LayerMatrices, streamed: bool | None = None) -> int | None:
    """The columns of range sketches that fit into `SUM_BYTES`; None where the sums fit.

    Args:
        streamed: Whether to keep sketches, instead of by size.
    """
    shapes = [placement.shape for placement in matrices.placements]
    if streamed is None:
        streamed = 2 * 4 * sum(n_out * n_in for n_out, n_in in shapes) > SUM_BYTES
    if not streamed:
        return None
    column_bytes = 2 * 4 * sum(n_out + CORANGE * n_in for n_out, n_in in shapes)
    return max(FEWEST_COLUMNS, min(MOST_COLUMNS, SUM_BYTES // column_bytes))


def _require_gradient(_: nn.Module, __: object, output: torch.Tensor) -> None:
    if output.is_floating_point() and not output.requires_grad:
        output.requires_grad_(True)


def _collector(
    placements: Sequence[Placement], sums: Sequence[MatrixSum]
) -> Callable[[nn.Module, tuple[torch.Tensor, ...], torch.Tensor], None]:
    """A forward hook; each call of the module waits for its own δ, as layers may share it."""

    def leave(_: nn.Module, args: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        if not output.requires_grad:
            return
        inputs = args[0].detach()

        def arrive(gradient: torch.Tensor) -> None:
            rows = inputs.reshape(-1, inputs.shape[-1]).float()
            deltas = gradient.detach().reshape(-1, gradient.shape[-1]).float()
            for placement, total in zip(placements, sums, strict=True):
                total.add(placement.cut_rows(deltas.T).T, rows)

        output.register_hook(arrive)  # type: ignore[no-untyped-call]

    return leave
