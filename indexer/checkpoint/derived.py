"""Tensors that are computed of stored ones, in a checkpoint like any other: turned, or weights of
eight bits with scales and a base's experts in MXFP4 as numbers."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from ...errors import ModelError
from ...records import Verification
from ...results import count
from .files import Checkpoint, Config, RowBlock, TensorRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """A tensor as a function of a stored one. `of`: its name; `compute`: gives it, or some rows, by
    the stored values and the number of their first row; `dtype`: of what that
    gives, as safetensors spells it; `together`: the least rows that can be computed alone, 0 where
    only all can; `error`: |rounding| / |W| of a part."""

    of: str
    shape: tuple[int, ...]
    compute: Callable[[torch.Tensor, int], torch.Tensor]
    dtype: str = "F32"
    together: int = 0
    error: Callable[[torch.Tensor], float] | None = None


def turned(ref: TensorRef) -> Derived:
    """The matrix with its rows as columns."""
    return Derived(
        of=ref.name,
        shape=ref.shape[::-1],
        compute=lambda values, _: values.T.contiguous(),
        dtype=ref.dtype,
    )


class DerivedCheckpoint:
    """A checkpoint of which some tensors have another name, and others are computed, as `note`
    says. Peak: two computed tensors for each thread."""

    def __init__(
        self,
        stored: Checkpoint,
        names: Mapping[str, str],
        derived: Mapping[str, Derived],
        *,
        note: str,
    ) -> None:
        """`names`: the stored name of every tensor that is left as it is, by its new one."""
        self.stored, self.note = stored, note
        if isinstance(stored, DerivedCheckpoint):
            self.note = f"{stored.note}; {note}"
        self._names, self._derived = names, derived
        self.tensors: Mapping[str, TensorRef] = {
            name: replace(stored.tensors[old], name=name) for name, old in names.items()
        } | {
            name: replace(stored.tensors[d.of], name=name, shape=d.shape, dtype=d.dtype)
            for name, d in derived.items()
        }
        self.bytes_total, self.concurrent = stored.bytes_total, stored.concurrent
        self._last = threading.local()

    @property
    def bytes_read(self) -> int:
        return self.stored.bytes_read

    def read(self, name: str) -> torch.Tensor:
        derived = self._derived.get(name)
        if derived is None:
            return self.stored.read(self._names.get(name, name))
        if getattr(self._last, "name", None) != name:
            self._last.name, self._last.tensor = None, None
            values = derived.compute(self.stored.read(derived.of), 0)
            self._last.tensor = values.view(derived.shape)
            self._last.name = name
        tensor: torch.Tensor = self._last.tensor
        return tensor

    @contextmanager
    def view(self, name: str) -> Iterator[torch.Tensor]:
        if name in self._names:
            with self.stored.view(self._names[name]) as tensor:
                yield tensor
        else:
            yield self.read(name)

    def stream(self, names: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
        wanted = dict.fromkeys(names)
        renamed = {self._names[name]: name for name in wanted if name in self._names}
        for old, tensor in self.stored.stream(renamed):
            yield renamed[old], tensor
        for name in wanted:
            if name not in self._names:
                yield name, self.read(name)

    def stream_rows(self, blocks: Iterable[RowBlock]) -> Iterator[tuple[RowBlock, torch.Tensor]]:
        wanted, names = list(blocks), self._names
        plain = {replace(b, tensor=names[b.tensor]): b for b in wanted if b.tensor in names}
        for old, rows in self.stored.stream_rows(plain):
            yield plain[old], rows
        for block in sorted(wanted, key=lambda b: (b.tensor, b.start)):
            if block.tensor not in names:
                yield block, self._rows(block)

    def relative_error(self, name: str, part: torch.Tensor) -> float:
        """|rounding| / |W| of a part of a tensor, beside that of its type."""
        derived = self._derived.get(name)
        if derived is not None and derived.error is not None:
            return derived.error(part)
        if isinstance(self.stored, DerivedCheckpoint):
            old = derived.of if derived is not None else self._names.get(name, name)
            return self.stored.relative_error(old, part)
        return 0.0

    @property
    def is_rounded(self) -> bool:
        below = isinstance(self.stored, DerivedCheckpoint) and self.stored.is_rounded
        return below or any(derived.error is not None for derived in self._derived.values())

    def _rows(self, block: RowBlock) -> torch.Tensor:
        derived = self._derived[block.tensor]
        size, first = derived.together, 0
        if size:
            first, last = block.start // size * size, -(-block.stop // size) * size
            columns = block.columns if size == 1 else None
            ((_, values),) = self.stored.stream_rows([RowBlock(derived.of, first, last, columns)])
            rows = derived.compute(values, first)
        else:
            rows = self.read(block.tensor).flatten(0, -2)
        return block.cut(rows[block.start - first : block.stop - first])

    def verify(self) -> Verification | None:
        return self.stored.verify()

    def close(self) -> None:
        self.stored.close()


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
                compute, error = scaled.times_scales, scaled.error
                derived[name] = Derived(
                    of=name, shape=ref.shape, compute=compute, together=1, error=error
                )
                used |= {name, scaled.scales, scaled.order}
                is_mx = checkpoint.tensors[scaled.scales].dtype in _POWERS
                schemes.add("MXFP8" if is_mx else EIGHT_BITS[ref.dtype])
        elif is_base and name.endswith("_blocks") and ref.dtype == "U8" and len(ref.shape) == 4:
            stem = name.removesuffix("_blocks")
            if f"{stem}_scales" in checkpoint.tensors:
                derived[stem] = _fp4(checkpoint, name, f"{stem}_scales")
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

    @property
    def order(self) -> str:
        """The tensor that says whether rows are in another order."""
        return f"{self.name.removesuffix('weight')}weight_format"

    def error(self, part: torch.Tensor) -> float:
        """|error| / |W|: half a step, uniform, of integers."""
        if self.checkpoint.tensors[self.name].dtype != "I8":
            return FP8_ROUNDING
        step = self._scales().square().mean().sqrt() / 12**0.5
        size = part.float().square().mean().sqrt()
        return float(step / size) if size > 0 else 0.0

    def times_scales(self, values: torch.Tensor, first: int) -> torch.Tensor:
        values = values.flatten(0, -2)
        tensors = self.checkpoint.tensors
        height = tensors[self.name].shape[-2]
        if self.order in tensors and bool(self.checkpoint.read(self.order).any()):
            line = f"{self.name!r} is stored in an order of rows that is not read"
            raise ModelError("quantized", line)
        scales = self._scales()
        rows = torch.arange(first, first + len(values))
        block_rows = rows // height * scales.shape[-2] + rows % height // self.block[0]
        columns = torch.arange(values.shape[1]) // self.block[1]
        return values.float().mul_(scales.flatten(0, -2)[block_rows][:, columns])

    def _scales(self) -> torch.Tensor:
        """(…, block rows, block columns)"""
        scales = self.checkpoint.read(self.scales)
        if scales.dtype == torch.uint8:
            scales = scales.view(torch.float8_e8m0fnu)
        scales = scales.float() / self.divisor
        return scales.reshape(-1, 1) if scales.dim() < 2 else scales


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
    return None if block is None else _Scaled(checkpoint, name, scales, block, divisor)


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


def _fp4(checkpoint: Checkpoint, blocks: str, scales: str) -> Derived:
    """Experts in MXFP4, (expert, in, out) as gpt_oss stores them in bfloat16."""
    experts, out, groups, size = checkpoint.tensors[blocks].shape

    def compute(packed: torch.Tensor, _: int) -> torch.Tensor:
        table = torch.tensor([*_FP4, *(-value for value in _FP4)], dtype=torch.bfloat16)
        powers = checkpoint.read(scales).int()[..., None] - 127
        result = torch.empty(experts, groups * size * 2, out, dtype=torch.bfloat16)
        for expert in range(experts):  # a layer's experts are gigabytes
            nibbles = torch.stack((packed[expert] & 15, packed[expert] >> 4), dim=-1)
            values = torch.ldexp(table[nibbles.int().flatten(-2)], powers[expert])
            result[expert] = values.flatten(1).T
        return result

    return Derived(
        of=blocks, shape=(experts, groups * size * 2, out), compute=compute, dtype="BF16"
    )
