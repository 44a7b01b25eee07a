"""Every singular value of a model's updates, or of its weights: what rank studies start from."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter

import numpy as np
import torch

from ..arrays import Float64
from ..errors import ModelError, RequestError
from ..records import ModelRecord, Slot, SlotSpectrum
from ..store import Catalog
from .adapter_update import collect_adapter
from .architecture import PlacedModel, Placement
from .base import Base, place_checkpoint
from .checkpoint import Checkpoint
from .delta import Delta, LowRankDelta, rounding_norm
from .family import Member, find_member, refuse_strangers
from .full_update import collect_full
from .index import resolve_base, wanted_base
from .job import Job
from .model import open_checkpoint, with_config
from .parallel import cpu_count, ordered, single_torch_thread
from .update import MatrixUpdate

COLUMNS_AT_ONCE = 4096


def update_spectra(
    catalog: Catalog, model: str, base: str
) -> tuple[ModelRecord, tuple[SlotSpectrum, ...]]:
    """The spectra of ΔW of every layer matrix, in slot order; nothing is stored.

    Peak: a tensor pair in float32, and the smaller side's Gram matrix in float64, for each
    thread.

    Raises:
        RequestError: the model cannot be read, or is not this base's.
    """
    family = resolve_base(catalog, base)
    wanted = wanted_base(family)
    member = refuse_strangers(find_member(model, family.name), wanted)
    job = Job(base=family, wanted=wanted, recipes=(), layout=(), threads=cpu_count())
    try:
        if member.refusal is not None:
            raise member.refusal
        member = with_config(member)
        with single_torch_thread():
            return member.record, _updates(member, job)
    except ModelError as err:
        raise RequestError(f"{model}: {err}") from err


def weight_spectra(
    catalog: Catalog, model: str, base: str
) -> tuple[ModelRecord, tuple[SlotSpectrum, ...]]:
    """The spectra of the layer matrices themselves; of an adapter, those of its base.

    Raises:
        RequestError: the model cannot be read.
    """
    family = resolve_base(catalog, base)
    member = find_member(model, family.name)
    try:
        member = with_config(member)
        with single_torch_thread():
            return member.record, _weights(member, family)
    except ModelError as err:
        raise RequestError(f"{model}: {err}") from err


def _updates(member: Member, job: Job) -> tuple[SlotSpectrum, ...]:
    collector = _SpectrumCollector(job.base)
    with closing(open_checkpoint(member)) as checkpoint:
        if member.is_adapter:
            collect_adapter(member, checkpoint, job, collector)
        else:
            collect_full(member, checkpoint, job, collector)
    return tuple(sorted(collector.spectra, key=attrgetter("slot", "part")))


@dataclass(slots=True)
class _SpectrumCollector:
    """Takes ΔW matrix by matrix, keeps singular values."""

    base: Base
    spectra: list[SlotSpectrum] = field(default_factory=list)

    def measure(self, update: MatrixUpdate) -> SlotSpectrum:
        """One update's spectrum. Both operands of a subtraction were rounded when stored."""
        delta = update.delta
        low_rank = isinstance(delta, LowRankDelta)
        noise = update.noise_norm**2
        if update.weight_norm is not None:
            dtype = self._base_dtype(update.slot, update.part)
            noise += rounding_norm(update.weight_norm, dtype) ** 2
        return SlotSpectrum(
            slot=update.slot,
            part=update.part,
            shape=update.shape,
            energies=np.zeros(0) if delta is None else _energies(delta),
            noise_energy=0.0 if low_rank else noise,
            known_rank=delta.left.shape[1] if isinstance(delta, LowRankDelta) else None,
        )

    def take(self, measured: SlotSpectrum) -> None:
        self.spectra.append(measured)

    def _base_dtype(self, slot: Slot, part: str) -> torch.dtype:
        with self.base.weights().matrix((slot, part)) as matrix:
            return matrix.dtype


def _weights(member: Member, base: Base) -> tuple[SlotSpectrum, ...]:
    if member.is_adapter:
        return _stored(base.weights().placed, base.weights().checkpoint)
    with closing(open_checkpoint(member)) as checkpoint:
        return _stored(place_checkpoint(checkpoint, member.config), checkpoint)


def _stored(placed: PlacedModel, checkpoint: Checkpoint) -> tuple[SlotSpectrum, ...]:
    """Of every layer matrix; a tensor that holds several is read once."""
    wanted = placed.by_tensor()

    def spectra(name: str) -> list[SlotSpectrum]:
        with checkpoint.view(name) as tensor:
            return [_spectrum(placement, placement.cut(tensor)) for placement in wanted[name]]

    threads = cpu_count() if checkpoint.concurrent else 1
    measured = chain.from_iterable(ordered(spectra, wanted, threads))
    return tuple(sorted(measured, key=attrgetter("slot", "part")))


def _spectrum(placement: Placement, matrix: torch.Tensor) -> SlotSpectrum:
    if not matrix.isfinite().all():
        raise ModelError("non-finite", f"tensor {placement.tensor!r} holds NaN or infinity")
    energies = _dense_energies(matrix)
    noise = rounding_norm(float(energies.sum()) ** 0.5, matrix.dtype)
    return SlotSpectrum(
        slot=placement.slot,
        part=placement.part,
        shape=placement.shape,
        energies=energies,
        noise_energy=noise**2,
        known_rank=None,
    )


def _energies(delta: Delta) -> Float64[np.ndarray, " sigma"]:
    if isinstance(delta, LowRankDelta):
        left = torch.linalg.qr(delta.left.double()).R
        right = torch.linalg.qr(delta.right.double().T).R
        sigma = torch.linalg.svdvals(left @ right.T)
        low: Float64[np.ndarray, " sigma"] = sigma.square().numpy()
        return low
    return _dense_energies(delta.matrix)


def _dense_energies(matrix: torch.Tensor) -> Float64[np.ndarray, " sigma"]:
    """σ² by the smaller side's Gram matrix, in float64: in float32 an exactly rank-8 matrix
    looks as if it had rank 388."""
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    gram = torch.zeros((wide.shape[0], wide.shape[0]), dtype=torch.float64)
    for start in range(0, wide.shape[1], COLUMNS_AT_ONCE):
        block = wide[:, start : start + COLUMNS_AT_ONCE].double()
        gram.addmm_(block, block.T)
    values = torch.linalg.eigvalsh(gram).clamp(min=0.0).flip(0)
    energies: Float64[np.ndarray, " sigma"] = values.numpy().copy()
    return energies
