"""Weights of eight bits with scales, and a base's experts in MXFP4, as numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ...errors import ModelError
from ...results import count
from .derived import Derived, DerivedCheckpoint
from .files import Checkpoint, Config, RowBlock

EIGHT_BITS = {"I8": "8-bit integers", "F8_E4M3": "FP8"}
"""Types that are read where scales lie beside them."""

_SCALES = ("_scale_inv", "_scale")
"""Endings of the scales of FP8 and of compressed-tensors' integers; bitsandbytes has `SCB`."""

_POWERS = ("U8", "F8_E8M0")
"""Types of scales that are powers of two, as in MXFP8: an exponent plus 127; 255 is no number."""

_BLOCKS = ((128, 128),)
_BLOCKS_OF_POWERS = ((1, 32), *_BLOCKS)
"""Rows and columns of a block where the config does not say them: OCP's MX, and DeepSeek's."""

FP8_ROUNDING = 2.0**-4 / 3**0.5 * 0.735
"""As `RELATIVE_ROUNDING`: three stored bits of a significand."""

_FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def dequantised(
    checkpoint: Checkpoint, config: Config | None, *, is_base: bool = False
) -> Checkpoint:
    """The checkpoint with the weights that are stored in eight bits beside their scales as float32,
    of a base also experts in MXFP4; itself where there are none."""
    derived: dict[str, Derived] = {}
    used: set[str] = set()
    schemes: set[str] = set()
    for name, ref in checkpoint.tensors.items():
        if ref.dtype in EIGHT_BITS and len(ref.shape) >= 2:
            scaled = _scaled(checkpoint, name, config)
            if scaled is not None:
                derived[name] = scaled.derived()
                used |= {name, scaled.scales, f"{name.removesuffix('weight')}weight_format"}
                is_mx = checkpoint.tensors[scaled.scales].dtype in _POWERS
                schemes.add("MXFP8" if is_mx else EIGHT_BITS[ref.dtype])
        elif is_base and name.endswith("_blocks") and ref.dtype == "U8" and len(ref.shape) == 4:
            stem = name.removesuffix("_blocks")
            if f"{stem}_scales" in checkpoint.tensors:
                derived[stem] = _fp4(name, f"{stem}_scales", ref.shape)
                used |= {name, f"{stem}_scales"}
                schemes.add("MXFP4")
    if not derived:
        return checkpoint
    names = {name: name for name in checkpoint.tensors if name not in used}
    note = f"{count(len(derived), 'weight')} dequantised from {' and '.join(sorted(schemes))}"
    return DerivedCheckpoint(checkpoint, names, derived, note=note)


def is_eight_bit(declared: Mapping[str, object]) -> bool:
    """Whether a quantization_config is of a scheme whose tensors are read; they decide."""
    method = str(declared.get("quant_method") or "").lower()
    if method.startswith("bitsandbytes") or not method:
        return declared.get("load_in_8bit") is True and declared.get("load_in_4bit") is not True
    if method == "compressed-tensors":
        return declared.get("format") in ("float-quantized", "int-quantized", "mxfp8-quantized")
    return method in ("fp8", "fbgemm_fp8", "mxfp8") or declared.get("quant_algo") == "MXFP8"


@dataclass(frozen=True, slots=True)
class _Scaled:
    """One weight: blocks of rows and columns have a scale each, `divisor` times too large."""

    checkpoint: Checkpoint
    name: str
    scales: str
    block: tuple[int, int]
    divisor: float
    format: str | None = None

    def derived(self) -> Derived:
        shape = self.checkpoint.tensors[self.name].shape
        return Derived(
            of=self.name, shape=shape, compute=self.compute, rows=self.rows, error=self.error
        )

    def compute(self, stored: Checkpoint) -> torch.Tensor:
        shape = stored.tensors[self.name].shape
        values = stored.read(self.name).flatten(0, -2)
        return self._times_scales(stored, values, 0).view(shape)

    def rows(self, stored: Checkpoint, block: RowBlock) -> torch.Tensor:
        ((_, values),) = stored.stream_rows([replace(block, tensor=self.name)])
        return self._times_scales(stored, values, block.start)

    def error(self, part: torch.Tensor) -> float:
        """|error| / |W|: half a step, uniform, of integers."""
        if self.checkpoint.tensors[self.name].dtype != "I8":
            return FP8_ROUNDING
        step = self._scales(self.checkpoint).square().mean().sqrt() / 12**0.5
        size = part.float().square().mean().sqrt()
        return float(step / size) if size > 0 else 0.0

    def _times_scales(self, stored: Checkpoint, values: torch.Tensor, first: int) -> torch.Tensor:
        height = stored.tensors[self.name].shape[-2]
        if self.format is not None and bool(stored.read(self.format).any()):
            line = f"{self.name!r} is stored in an order of rows that is not read"
            raise ModelError("quantized", line)
        scales = self._scales(stored)
        rows = torch.arange(first, first + len(values))
        block_rows = rows // height * scales.shape[-2] + rows % height // self.block[0]
        columns = torch.arange(values.shape[1]) // self.block[1]
        return values.float().mul_(scales.flatten(0, -2)[block_rows][:, columns])

    def _scales(self, stored: Checkpoint) -> torch.Tensor:
        """(…, block rows, block columns)"""
        scales = stored.read(self.scales)
        if scales.dtype == torch.uint8:
            scales = scales.view(torch.float8_e8m0fnu)
        scales = scales.float() / self.divisor
        if scales.dim() < 2:
            return scales.reshape(-1, 1)
        return scales


def _scaled(checkpoint: Checkpoint, name: str, config: Config | None) -> _Scaled | None:
    """How a weight is scaled; None where nothing beside it says it, or it has zero points."""
    ref, stem = checkpoint.tensors[name], name.removesuffix("weight")
    if ref.dtype == "I8" and f"{stem}SCB" in checkpoint.tensors:
        scales, divisor = f"{stem}SCB", 127.0
    else:
        scales = next((name + s for s in _SCALES if name + s in checkpoint.tensors), "")
        divisor = 1.0
    if not scales or f"{name}_zero_point" in checkpoint.tensors:
        return None
    is_power = checkpoint.tensors[scales].dtype in _POWERS
    if is_power and ref.dtype == "I8":  # pairs of four bits
        return None
    blocks = _BLOCKS_OF_POWERS if is_power else _BLOCKS
    block = _block(ref.shape, checkpoint.tensors[scales].shape, config, blocks)
    form = f"{stem}weight_format"
    if block is None:
        return None
    return _Scaled(
        checkpoint, name, scales, block, divisor, form if form in checkpoint.tensors else None
    )


def _block(
    shape: tuple[int, ...],
    scales: tuple[int, ...],
    config: Config | None,
    usual: Sequence[tuple[int, int]],
) -> tuple[int, int] | None:
    """Rows and columns that a scale is of, as the config says them or as is `usual`; None where the
    shapes do not fit."""
    grid = scales[-2:] if len(scales) > 1 else (math.prod(scales), 1)
    if scales[:-2] != shape[:-2]:
        return None
    declared = (config or {}).get("quantization_config")
    stated = declared.get("weight_block_size") if isinstance(declared, Mapping) else None
    if isinstance(stated, list) and len(stated) == 2:
        if not all(type(size) is int and size > 0 for size in stated):
            return None
        usual = [(stated[0], stated[1])]
    for block in usual:
        sides = list(zip(shape[-2:], grid, block, strict=True))
        height, width = ({1: size, size: 1}.get(n, b) for size, n, b in sides)
        if all(-(-size // b) == n for (size, n, _), b in zip(sides, (height, width), strict=True)):
            return height, width
    return None


def _fp4(blocks: str, scales: str, shape: tuple[int, ...]) -> Derived:
    """Experts in MXFP4, (expert, in, out) as gpt_oss stores them in bfloat16."""
    experts, out, groups, size = shape

    def compute(stored: Checkpoint) -> torch.Tensor:
        table = torch.tensor([*_FP4, *(-value for value in _FP4)], dtype=torch.bfloat16)
        powers = stored.read(scales).int()[..., None] - 127
        packed = stored.read(blocks)
        result = torch.empty(experts, groups * size * 2, out, dtype=torch.bfloat16)
        for expert in range(experts):  # a layer's experts are gigabytes
            nibbles = torch.stack((packed[expert] & 15, packed[expert] >> 4), dim=-1)
            values = torch.ldexp(table[nibbles.int().flatten(-2)], powers[expert])
            result[expert] = values.flatten(1).T
        return result

    return Derived(
        of=blocks, shape=(experts, groups * size * 2, out), compute=compute, dtype="BF16"
    )
