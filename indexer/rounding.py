"""Which model a copy in few bits is a rounding of: candidates are rounded as it was.

bitsandbytes rounds every value to the nearest of 16 (QLoRA, section 3: NF4), so that the original,
rounded in the copy's own blocks, gives the copy's numbers. GPTQ moves later values to make up for
the errors of earlier ones: there the original is nearer than other models, and no more is said.
So of AWQ, which multiplies each input's weights by a number before it rounds them (AWQ, section 3).
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from operator import itemgetter

import torch

from ..errors import ModelError
from .checkpoint import Checkpoint, RowBlock, open_local
from .family import Member

log = logging.getLogger(__name__)

MATRICES = 8
"""Matrices of a copy that are compared, of several roles where it has them."""

VALUES = 1 << 16
"""Values of each, in whole rows."""

LARGEST = 1 << 30
"""Bytes of a packed matrix or its scales that is read."""

LONGEST_BLOCK = 4096
"""Values of one scale; bitsandbytes has 64 to 4096."""

CANDIDATES = 512
"""Models that a copy is compared with, at most."""

MOVED = 5e-4
"""Share of a copy's numbers that the original's rounding does not give, at most: those between two
levels. An update of 1 % of the weights moves some 3 % of them to another level."""

NEAREST = 3
"""Models that are held, and named where they are as near as one another."""

MOST = 2.0
"""Distance from a copy in GPTQ or AWQ over the candidate's own rounding to the nearest, at most."""

CLEAR = 4.0
"""Standard deviations by which the nearest model is nearer than the next."""

_STATE = ".weight.quant_state.bitsandbytes__nf4"


@dataclass(frozen=True, slots=True)
class RoundedRows:
    """The first rows of one matrix of a copy, and how other values are rounded in its grid;
    `is_scaled`: the weights of each input were multiplied by some number before."""

    name: str
    values: torch.Tensor
    rounded: Callable[[torch.Tensor], torch.Tensor]
    is_exact: bool
    is_scaled: bool = False

    def fitted(self, values: torch.Tensor) -> torch.Tensor:
        """Another model's values, where inputs are scaled with what brings each nearest."""
        if not self.is_scaled:
            return values
        squares = values.square().sum(0).clamp(min=torch.finfo(values.dtype).tiny)
        return values * ((values * self.values).sum(0) / squares)


_Compared = tuple[float, str, list[torch.Tensor]]
"""How far a candidate is from the numbers of a copy: the share that its rounding does not give, or
the distance where a rounding is not exact; its id, and its values in the copy's rows."""


def original_of(member: Member, candidates: Sequence[Member]) -> str | None:
    """A line on which of the candidates a copy on disk is a rounding of; None where its numbers do
    not tell, or it is no copy in NF4, GPTQ or AWQ. Peak: rows of `NEAREST` models and one more."""
    if member.folder is None or not candidates:
        return None
    try:
        with closing(open_local(member.folder, given=member.given)) as copy:
            rows = list(_rows_of(copy, member))
        nearest: list[_Compared] = []
        for candidate in candidates if rows else ():
            if candidate.record.id != member.record.id and (values := _same_rows(candidate, rows)):
                far = _distance([r.values for r in rows], values)
                if rows[0].is_exact:
                    far = 1 - _equal_share(rows, values)
                nearest.append((far, candidate.record.id, values))
                nearest = sorted(nearest, key=itemgetter(0))[:NEAREST]
        return _line(rows, nearest) if nearest else None
    # what is said of the copy is why it was refused
    except Exception as err:
        log.debug("%s: its numbers are not compared", member.record.id, exc_info=err)
        return None


def _line(rows: list[RoundedRows], nearest: list[_Compared]) -> str | None:
    (far, best, values), *others = nearest
    if rows[0].is_exact:
        # models that share these rows, as frozen ones, are as near
        names = [id for _, id, theirs in nearest if _distance(theirs, values) == 0]
        return f"a rounding of {' or '.join(names)}" if far <= MOVED else None
    own = _distance([r.rounded(v) for r, v in zip(rows, values, strict=True)], values)
    if not others or far > MOST * own:
        return None
    next_far, _, next_values = others[0]
    n_values = sum(matrix.numel() for matrix in values)
    deviation = 2 * far * _distance(values, next_values) / math.sqrt(n_values)
    is_clear = next_far**2 - far**2 > CLEAR * deviation
    return f"of the models that are known it is nearest to {best}" if is_clear else None


def _equal_share(rows: list[RoundedRows], read: list[torch.Tensor]) -> float:
    """Share of the copy's numbers that are the candidate's, rounded in the type in which it was
    loaded, of which the copy does not tell."""
    n_values = sum(values.numel() for values in read)
    shares = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        pairs = (
            (r.values, r.rounded(v.to(dtype).float())) for r, v in zip(rows, read, strict=True)
        )
        shares.append(sum(int((a == b).sum()) for a, b in pairs) / n_values)
    return max(shares)


def _distance(some: list[torch.Tensor], others: list[torch.Tensor]) -> float:
    return math.hypot(*(float((a - b).norm()) for a, b in zip(some, others, strict=True)))


def _same_rows(candidate: Member, rows: list[RoundedRows]) -> list[torch.Tensor] | None:
    """The candidate's values in the place of each of the copy's; None where it has none such."""
    try:
        with closing(candidate.checkpoint()) as checkpoint:
            return [_values_at(checkpoint, one) for one in rows]
    except ModelError as err:
        log.debug("%s: %s", candidate.record.id, err)
        return None


def _values_at(checkpoint: Checkpoint, rows: RoundedRows) -> torch.Tensor:
    names = [n for n in checkpoint.tensors if n == rows.name or n.endswith(f".{rows.name}")]
    names += [n for n in checkpoint.tensors if rows.name.endswith(f".{n}")]
    if not names or checkpoint.tensors[names[0]].shape[1:] != rows.values.shape[1:]:
        raise ModelError("shape-mismatch", f"no matrix in the place of {rows.name!r}")
    if checkpoint.tensors[names[0]].shape[0] < len(rows.values):
        raise ModelError("shape-mismatch", f"{names[0]!r} has fewer rows than the copy's")
    ((_, values),) = checkpoint.stream_rows([RowBlock(names[0], 0, len(rows.values))])
    return rows.fitted(values.float())


def _rows_of(copy: Checkpoint, member: Member) -> Iterator[RoundedRows]:
    stems: dict[str, str] = {}
    for name in copy.tensors:
        for ending in (_STATE, ".qweight"):
            if name.endswith(ending) and re.search(r"\.\d+\.", name):
                stem = name.removesuffix(ending)
                stems.setdefault(stem.rpartition(".")[2], stem)
    for stem in list(stems.values())[:MATRICES]:
        if f"{stem}{_STATE}" in copy.tensors:
            yield _nf4_rows(copy, f"{stem}.weight")
        elif f"{stem}.g_idx" in copy.tensors:
            yield _gptq_rows(copy, stem, member)
        else:
            yield _awq_rows(copy, stem)


def _read(copy: Checkpoint, name: str) -> torch.Tensor:
    ref = copy.tensors[name]
    if ref.stop - ref.start > LARGEST:
        raise ModelError("shape-mismatch", f"{name!r} is larger than any matrix")
    return copy.read(name)


def _nf4_rows(copy: Checkpoint, name: str) -> RoundedRows:
    """Two values a byte, the first in its upper half; blocks of values have their largest one,
    itself in eight bits where it is nested."""
    state = json.loads(bytes(_read(copy, f"{name}{_STATE.removeprefix('.weight')}").tolist()))
    (height, width), size = state["shape"], state["blocksize"]
    if not 0 < size <= LONGEST_BLOCK or not 0 < width <= LARGEST:
        raise ModelError("shape-mismatch", f"{name!r} has blocks or rows of an absurd size")
    step = size // math.gcd(size, width)
    n_rows = min(height, max(step, VALUES // width // step * step))
    n_values = n_rows * width
    packed = _read(copy, name).flatten()[: -(-n_values // 2)]
    codes = torch.stack((packed >> 4, packed & 15), dim=1).flatten()[:n_values].long()
    levels = _read(copy, f"{name}.quant_map").float()
    largest = _read(copy, f"{name}.absmax")[: -(-n_values // size)]
    if "nested_blocksize" in state:
        blocks = torch.arange(len(largest)) // state["nested_blocksize"]
        nested = _read(copy, f"{name}.nested_quant_map").float()[largest.long()]
        largest = nested * _read(copy, f"{name}.nested_absmax").float()[blocks]
        largest = largest + state["nested_offset"]
    if len(codes) < n_values or len(largest) * size < n_values:
        raise ModelError("shape-mismatch", f"{name!r} has fewer values than its shape")
    scale = largest.float().repeat_interleave(size)[:n_values].view(n_rows, width)
    middles = (levels[1:] + levels[:-1]) / 2

    def rounded(values: torch.Tensor) -> torch.Tensor:
        blocks = torch.nn.functional.pad(values.flatten(), (0, -n_values % size)).view(-1, size)
        shares = (blocks / blocks.abs().amax(1, keepdim=True)).flatten()[:n_values]
        return levels[torch.bucketize(shares, middles)].view(n_rows, width) * scale

    return RoundedRows(name, levels[codes].view(n_rows, width) * scale, rounded, is_exact=True)


def _gptq_rows(copy: Checkpoint, stem: str, member: Member) -> RoundedRows:
    """Codes lie along the inputs, several in 32 bits, the first lowest; scales and zero points are
    of groups of inputs. Zero points are stored less one, but in the second version."""
    packed = _read(copy, f"{stem}.qweight")
    groups = _read(copy, f"{stem}.g_idx").long()
    n_bits = 32 * len(packed) // len(groups)
    scales = _read(copy, f"{stem}.scales").float()
    zeros = _unpacked(_read(copy, f"{stem}.qzeros"), n_bits, along_rows=False)
    declared = (member.config or {}).get("quantization_config")
    form = declared.get("checkpoint_format") if isinstance(declared, dict) else None
    zeros = (zeros[:, : scales.shape[1]] + int(form != "gptq_v2")).float()
    n_rows = min(packed.shape[1], max(1, VALUES // len(groups)))
    scale, zero = scales[groups, :n_rows].T, zeros[groups, :n_rows].T
    codes = _unpacked(packed[:, :n_rows], n_bits, along_rows=True)

    def rounded(values: torch.Tensor) -> torch.Tensor:
        return ((values / scale + zero).round().clamp(0, 2**n_bits - 1) - zero) * scale

    return RoundedRows(f"{stem}.weight", (codes.T - zero) * scale, rounded, is_exact=False)


_AWQ_ORDER = [0, 4, 1, 5, 2, 6, 3, 7]
"""Where in 32 bits each of eight outputs lies, lowest bits first (AutoAWQ's `gemm`)."""


def _awq_rows(copy: Checkpoint, stem: str) -> RoundedRows:
    """Codes of (inputs, outputs) lie along the outputs, scales and zero points are of groups of
    inputs."""
    packed, scales = _read(copy, f"{stem}.qweight"), _read(copy, f"{stem}.scales").float()
    n_inputs, n_outputs = len(packed), 8 * packed.shape[1]
    if scales.shape[1] != n_outputs or n_inputs % len(scales):
        raise ModelError("shape-mismatch", f"{stem!r} is not packed along its outputs")
    n_rows = min(n_outputs, max(8, VALUES // n_inputs // 8 * 8))
    groups = torch.arange(n_inputs) // (n_inputs // len(scales))
    zeros = _in_awq_order(_read(copy, f"{stem}.qzeros"))[groups, :n_rows].T.float()
    scale = scales[groups, :n_rows].T
    codes = _in_awq_order(packed[:, : n_rows // 8]).T

    def rounded(values: torch.Tensor) -> torch.Tensor:
        return ((values / scale + zeros).round().clamp(0, 15) - zeros) * scale

    values = (codes - zeros) * scale
    return RoundedRows(f"{stem}.weight", values, rounded, is_exact=False, is_scaled=True)


def _in_awq_order(packed: torch.Tensor) -> torch.Tensor:
    codes = _unpacked(packed, 4, along_rows=False)
    return codes.view(len(packed), -1, 8)[:, :, _AWQ_ORDER].flatten(1)


def _unpacked(packed: torch.Tensor, n_bits: int, *, along_rows: bool) -> torch.Tensor:
    if n_bits not in (2, 4, 8):
        raise ModelError("shape-mismatch", f"{n_bits} bits do not fill 32")
    shifts = torch.arange(0, 32, n_bits)
    parts: torch.Tensor = (packed.int()[..., None] >> shifts) & (2**n_bits - 1)
    if along_rows:
        return parts.transpose(1, 2).flatten(0, 1)
    return parts.flatten(1)
