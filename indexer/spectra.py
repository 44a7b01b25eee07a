"""Every singular value of a model's updates, or of its weights: what rank studies start from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter

import numpy as np
import torch

from ..arrays import Float64
from ..errors import ModelError, RequestError
from ..records import ModelRecord, SlotSpectrum
from ..store import Catalog
from .architecture import PlacedModel, Placement
from .base import Base, place_checkpoint, resolve_base, wanted_base
from .checkpoint import Checkpoint
from .delta import Delta, LowRankDelta, MatrixUpdate, flaw_of, frobenius, rounding_norm
from .family import find_member, refuse_strangers
from .job import Job, choose_device, cpu_count, ordered, single_torch_thread
from .updates import collect_adapter, collect_full

COLUMNS_AT_ONCE = 4096


def update_spectra(
    catalog: Catalog, model: str, base: str, *, device: str = "cpu"
) -> tuple[ModelRecord, tuple[SlotSpectrum, ...]]:
    """The spectra of ΔW of every layer matrix, in slot order; nothing is stored.

    An adapter is taken for one of this base, whatever it names.

    Peak: a tensor pair in float32, and the smaller side's Gram matrix in float64, for each
    thread; on another device than the CPU a pair and a Gram matrix are there, too.

    Args:
        device: As torch names it: where Gram matrices and their eigenvalues are computed.

    Raises:
        RequestError: the model cannot be read, or is not this base's; no such device.
    """
    place = torch.device(choose_device(device, float64=True))
    family = resolve_base(catalog, base)
    wanted = wanted_base(family)
    member = find_member(model, family.name)
    if not member.is_adapter:
        member = refuse_strangers(member, wanted)
    job = Job(base=family, wanted=wanted, recipes=(), layout=(), threads=cpu_count())
    collector = _SpectrumCollector(family, place)
    with _read_alone(model), ExitStack() as opened:
        if member.refusal is not None:
            raise member.refusal
        member = member.with_config()
        checkpoint = opened.enter_context(closing(member.checkpoint()))
        if member.is_adapter:
            collect_adapter(member, checkpoint, job, collector)
        else:
            collect_full(member, checkpoint, job, collector)
    return member.record, _in_order(collector.spectra)


def weight_spectra(
    catalog: Catalog, model: str, base: str, *, device: str = "cpu"
) -> tuple[ModelRecord, tuple[SlotSpectrum, ...]]:
    """The spectra of the layer matrices themselves; of an adapter, those of its base.

    Args:
        device: As in `update_spectra`.

    Raises:
        RequestError: the model cannot be read; no such device.
    """
    place = torch.device(choose_device(device, float64=True))
    family = resolve_base(catalog, base)
    member = find_member(model, family.name)
    with _read_alone(model), ExitStack() as opened:
        member = member.with_config()
        if member.is_adapter:
            checkpoint, placed = family.weights().checkpoint, family.weights().placed
        else:
            checkpoint = opened.enter_context(closing(member.checkpoint()))
            placed = place_checkpoint(checkpoint, member.config)
        return member.record, _stored(placed, checkpoint, place)


@contextmanager
def _read_alone(model: str) -> Iterator[None]:
    """One torch thread for each of ours; what is wrong with the model is a `RequestError`."""
    try:
        with single_torch_thread():
            yield
    except ModelError as err:
        raise RequestError(f"{model}: {err}") from err


def _in_order(spectra: Iterable[SlotSpectrum]) -> tuple[SlotSpectrum, ...]:
    return tuple(sorted(spectra, key=attrgetter("slot", "part")))


@dataclass(slots=True)
class _SpectrumCollector:
    base: Base
    device: torch.device
    spectra: list[SlotSpectrum] = field(default_factory=list)

    def measure(self, update: MatrixUpdate) -> SlotSpectrum:
        """One update's spectrum. Both operands of a subtraction were rounded when stored."""
        delta = update.delta
        low_rank = isinstance(delta, LowRankDelta)
        noise = update.noise_norm**2
        if update.weight_norm is not None:
            with self.base.weights().matrix((update.slot, update.part)) as matrix:
                noise += rounding_norm(update.weight_norm, matrix.dtype) ** 2
        return SlotSpectrum(
            slot=update.slot,
            part=update.part,
            shape=update.shape,
            energies=np.zeros(0) if delta is None else _energies(delta, self.device),
            noise_energy=0.0 if low_rank else noise,
            known_rank=delta.left.shape[1] if isinstance(delta, LowRankDelta) else None,
        )

    def take(self, measured: SlotSpectrum) -> None:
        self.spectra.append(measured)


def _stored(
    placed: PlacedModel, checkpoint: Checkpoint, device: torch.device
) -> tuple[SlotSpectrum, ...]:
    wanted = placed.by_tensor()

    def spectra(name: str) -> list[SlotSpectrum]:
        with checkpoint.view(name) as tensor:
            return [
                _spectrum(placement, placement.cut(tensor), device) for placement in wanted[name]
            ]

    threads = cpu_count() if checkpoint.concurrent else 1
    return _in_order(chain.from_iterable(ordered(spectra, wanted, threads)))


def _spectrum(placement: Placement, matrix: torch.Tensor, device: torch.device) -> SlotSpectrum:
    if flaw := flaw_of(frobenius(matrix), matrix):
        raise ModelError("non-finite", f"tensor {placement.tensor!r} {flaw}")
    energies = _dense_energies(matrix, device)
    noise = rounding_norm(float(energies.sum()) ** 0.5, matrix.dtype)
    return SlotSpectrum(
        slot=placement.slot,
        part=placement.part,
        shape=placement.shape,
        energies=energies,
        noise_energy=noise**2,
        known_rank=None,
    )


def _energies(delta: Delta, device: torch.device) -> Float64[np.ndarray, " sigma"]:
    if isinstance(delta, LowRankDelta):
        left = torch.linalg.qr(delta.left.double()).R
        right = torch.linalg.qr(delta.right.double().T).R
        sigma = torch.linalg.svdvals(left @ right.T)
        low: Float64[np.ndarray, " sigma"] = sigma.square().numpy()
        return low
    return _dense_energies(delta.matrix, device)


def _dense_energies(matrix: torch.Tensor, device: torch.device) -> Float64[np.ndarray, " sigma"]:
    """σ² by the smaller side's Gram matrix, in float64: in float32 an exactly rank-8 matrix
    looks as if it had rank 388."""
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    gram = torch.zeros((wide.shape[0], wide.shape[0]), dtype=torch.float64, device=device)
    for start in range(0, wide.shape[1], COLUMNS_AT_ONCE):
        block = wide[:, start : start + COLUMNS_AT_ONCE].to(device).double()
        gram.addmm_(block, block.T)
    values = torch.linalg.eigvalsh(gram).clamp(min=0.0).flip(0)
    energies: Float64[np.ndarray, " sigma"] = values.cpu().numpy().copy()
    return energies
