"""Models that are read for one question: their fingerprints and spectra, the family of each."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path

import numpy as np
import torch

from ..arrays import Float64
from ..errors import NOWHERE, BaseError, ModelError, RequestError, UnknownModel
from ..records import ROLES, Footprint, Indexed, Outcome, Recipe, SlotSpectrum
from ..store import Catalog
from . import job as jobs
from .architecture import Key, PlacedModel, Placement, require_same_layers
from .base import Base, BaseWeights, place_checkpoint, resolve_base, wanted_base
from .checkpoint import FEW_BYTES, Checkpoint, TensorRef
from .delta import RELATIVE_ROUNDING, LowRankDelta, MatrixUpdate, dense, flaw_of, frobenius
from .family import Member, Wanted, find_member, refuse_strangers
from .fingerprint import Layout
from .footprint import read_footprint
from .index import known_shapes
from .lexicon import LexiconOnce, known_lexicon
from .run import NO_MEMORY, fingerprint_member
from .untrusted_text import base_key
from .updates import Measure, Measurement, Take, collect_adapter, collect_full

COLUMNS_AT_ONCE = 4096

_ORDER = attrgetter("slot", "part")


def update_spectra(
    catalog: Catalog, model: str, base: str, *, device: str = "cpu"
) -> tuple[SlotSpectrum, ...]:
    """The spectra of ΔW of every layer matrix, in slot order; nothing is stored, and an adapter is
    taken for one of this base. `device`: where Gram matrices and their eigenvalues are computed.
    Peak: a tensor pair in float32 and the smaller side's Gram matrix in float64, for each thread. A
    `RequestError` if the model cannot be read, or is not this base's."""
    place = torch.device(jobs.choose_device(device, float64=True))
    family = resolve_base(catalog, base)
    spectra: list[SlotSpectrum] = []
    measure = partial(_update_spectrum, family, place)
    collect_updates(family, model, measure, spectra.append)
    return tuple(sorted(spectra, key=_ORDER))


def collect_updates(
    family: Base,
    model: str,
    measure: Measure[Measurement],
    take: Take[Measurement],
    roles: Sequence[str] = ROLES,
) -> None:
    """Measure the ΔW of every layer matrix of these roles; nothing is stored, and an adapter is
    taken for one of this base. A `RequestError` if the model cannot be read, or is not this
    base's."""
    member = find_member(model, family.name)
    if not member.is_adapter:
        member = refuse_strangers(member, wanted_base(family))
    job = jobs.IndexJob(base=family, threads=jobs.cpu_count())
    with _read_alone(model), member.opened() as (member, checkpoint):
        if member.is_adapter:
            collect_adapter(member, checkpoint, job, lambda u: take(measure(u)))
        else:
            family.weights().placed.require_known()
            slots = family.weights().placed.by_key
            only = [key for key, placement in slots.items() if placement.slot.role in roles]
            collect_full(member, checkpoint, job, measure, take, only=only)


@dataclass(frozen=True, slots=True)
class OpenUpdate:
    """A full checkpoint beside its base, both open, fused matrices in one piece."""

    member: Member
    checkpoint: Checkpoint
    base: Base
    placed: PlacedModel
    threads: int

    @property
    def weights(self) -> BaseWeights:
        return self.base.weights()

    def collect(
        self,
        measure: Measure[Measurement],
        take: Take[Measurement],
        only: Collection[Key] | None = None,
    ) -> None:
        """Measure ΔW of every layer matrix, or of those in `only`."""
        job = jobs.IndexJob(base=self.base, threads=self.threads)
        collect_full(self.member, self.checkpoint, job, measure, take, only=only)


@contextmanager
def open_update(
    catalog: Catalog, model: str, base: str, *, matrix_bytes: int
) -> Iterator[OpenUpdate]:
    """A full checkpoint and its base for as long as the block lasts; a `RequestError` with the
    reason code for what the block finds wrong with it, an adapter among that. `matrix_bytes`: the
    memory for matrices that are compared at once, by which threads are counted."""
    family = resolve_base(catalog, base)
    family = replace(family, by_module=True, _weights=None)
    member = find_member(model, family.name)
    with _read_alone(model), ExitStack() as opened:
        if member.is_adapter and member.refusal is None:
            line = "it is an adapter already; PEFT loads it as it is"
            raise ModelError("unsupported-adapter", line)
        member = refuse_strangers(member, wanted_base(family))
        member, checkpoint = opened.enter_context(member.opened())
        weights = family.weights()
        placed = place_checkpoint(checkpoint, member.config, whole=True)
        require_same_layers(placed, weights.placed)
        ours, theirs = checkpoint.tensors, weights.checkpoint.tensors
        sizes = [
            _compared_bytes(ours[p.tensor], theirs[weights.placed.by_key[p.key].tensor])
            for p in placed.placements
        ]
        threads = max(1, min(jobs.cpu_count(), matrix_bytes // max(sizes, default=1)))
        yield OpenUpdate(member, checkpoint, family, placed, threads)


def _compared_bytes(child: TensorRef, base: TensorRef) -> int:
    """Bytes of two tensors as stored and of their difference, in float32; of two differences where
    the child is stored in a shorter type (`delta.update_against`)."""
    n_values = math.prod(child.shape)
    stored = child.stop - child.start + base.stop - base.start
    return stored + 4 * n_values * (1 if child.dtype == base.dtype else 2)


def weight_spectra(
    catalog: Catalog, model: str, base: str, *, device: str = "cpu"
) -> tuple[SlotSpectrum, ...]:
    """The spectra of the layer matrices themselves; of an adapter, those of its base."""
    place = torch.device(jobs.choose_device(device, float64=True))
    family = resolve_base(catalog, base)
    member = find_member(model, family.name)
    with _read_alone(model), ExitStack() as opened:
        member = member.with_config()
        if member.is_adapter:
            checkpoint, placed = family.weights().checkpoint, family.weights().placed
        else:
            member, checkpoint = opened.enter_context(member.opened())
            placed = place_checkpoint(checkpoint, member.config)
        placed.require_known()
        wanted = placed.by_tensor()

        def spectra(name: str) -> list[SlotSpectrum]:
            with checkpoint.view(name) as tensor:
                return [_weight_spectrum(p, p.cut(tensor), place) for p in wanted[name]]

        threads = jobs.cpu_count() if checkpoint.concurrent else 1
        found = chain.from_iterable(jobs.ordered(spectra, wanted, threads))
        return tuple(sorted(found, key=_ORDER))


@contextmanager
def _read_alone(model: str) -> Iterator[None]:
    try:
        with jobs.single_torch_thread():
            yield
    except ModelError as err:
        raise RequestError(f"{model}: {err}") from err


def _update_spectrum(base: Base, device: torch.device, update: MatrixUpdate) -> SlotSpectrum:
    """One update's spectrum. Both operands of a subtraction were rounded when stored."""
    delta, noise, rank = update.delta, update.noise_norm**2, None
    energies: Float64[np.ndarray, " sigma"] = np.zeros(0)
    if isinstance(delta, LowRankDelta):
        noise, rank = 0.0, delta.left.shape[1]
        left = torch.linalg.qr(delta.left.double()).R
        right = torch.linalg.qr(delta.right.double().T).R
        energies = torch.linalg.svdvals(left @ right.T).square().numpy()
    elif delta is not None:
        energies = _dense_energies(delta.matrix, device)
    if rank is None and update.weight_norm is not None:
        with base.weights().matrix((update.slot, update.part)) as matrix:
            noise += (RELATIVE_ROUNDING[matrix.dtype] * update.weight_norm) ** 2
    return SlotSpectrum(
        slot=update.slot,
        part=update.part,
        shape=update.shape,
        energies=energies,
        noise_energy=noise,
        known_rank=rank,
    )


def _weight_spectrum(
    placement: Placement, matrix: torch.Tensor, device: torch.device
) -> SlotSpectrum:
    if flaw := flaw_of(frobenius(matrix), matrix):
        raise ModelError("non-finite", f"tensor {placement.tensor!r} {flaw}")
    energies = _dense_energies(matrix, device)
    noise = RELATIVE_ROUNDING[matrix.dtype] * float(energies.sum()) ** 0.5
    return SlotSpectrum(
        slot=placement.slot,
        part=placement.part,
        shape=placement.shape,
        energies=energies,
        noise_energy=noise**2,
        known_rank=None,
    )


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


def fingerprint_query(
    catalog: Catalog,
    model: str,
    base_name: str,
    recipe: Recipe,
    layout: Layout | None = None,
    shapes: Mapping[str, tuple[int, int]] | None = None,
) -> Indexed:
    """The fingerprint of a model that is not in the catalog; nothing is stored. `layout` and
    `shapes`: the family's, as of `IndexJob`; the catalog's where they are None. `UnknownModel` if
    there is none; a `RequestError` with the reason code if it cannot be fingerprinted."""
    base = resolve_base(catalog, base_name)
    job = jobs.IndexJob(
        base=base,
        wanted=wanted_base(base),
        recipes=[recipe],
        layout=catalog.base(base.name).layout if layout is None else layout,
        shapes=known_shapes(catalog, base.name) if shapes is None else shapes,
        stored=catalog.base(base.name).shapes if shapes is None else shapes,
        threads=jobs.cpu_count(),
        device=jobs.choose_device("auto"),
        parts=jobs.base_parts(base, [recipe]),
        footprints=True,
        lexicon=LexiconOnce(partial(known_lexicon, catalog, base)),
    )
    outcome = _fingerprint(find_member(model, base.name), job)
    if isinstance(outcome, Indexed):
        return outcome
    refusal = ModelError(outcome.code, outcome.reason)
    raise _unanswered(model, refusal) from refusal


def footprint_query(catalog: Catalog, model: str, base_name: str) -> Footprint:
    """The footprint of a model that is not in the catalog, with its own tokenizer; its input
    embedding and the base's are all that is read. A `RequestError` if it cannot be opened."""
    base = resolve_base(catalog, base_name)
    base.plan = FEW_BYTES
    job = jobs.IndexJob(base=base, footprints=True)
    member = find_member(model, base.name)
    if member.refusal is not None and member.refusal.code != "quantized":
        raise _unanswered(model, member.refusal)
    with _read_alone(model):
        member = member.with_config()
        with closing(member.checkpoint(FEW_BYTES)) as checkpoint:
            return read_footprint(member, checkpoint, job)


class ClosedBase(Base):
    def weights(self) -> BaseWeights:
        raise BaseError(
            "this adapter needs the base's weights, which this service does not open; "
            "index it on the server"
        )

    def opened(self) -> None:
        return None


def fingerprint_sent_adapter(
    folder: Path,
    *,
    base: str,
    recipe: Recipe,
    layout: Layout,
    shapes: Mapping[str, tuple[int, int]],
    stored: Mapping[str, tuple[int, int]],
    may_open_base: bool,
) -> Indexed:
    """An uploaded adapter's fingerprint as a member of the family; only its own files are opened,
    and the base's by methods whose update is a function of W, where they may. A `ModelError` if it
    cannot be fingerprinted, a `MemoryError` if it is too large for this process."""
    path = Path(base)
    kind = Base if may_open_base else ClosedBase
    opened = kind(name=base, folder=path if may_open_base and path.is_absolute() else None)
    job = jobs.IndexJob(
        base=opened,
        wanted=Wanted(names=(base,)),
        recipes=[recipe],
        layout=layout,
        shapes=shapes,
        stored=stored,
        parts=jobs.base_parts(opened, [recipe]),
    )
    outcome = _fingerprint(find_member(str(folder), base), job)
    if isinstance(outcome, Indexed):
        return outcome
    if outcome.reason == NO_MEMORY:
        raise MemoryError(NO_MEMORY)
    if outcome.code == "internal":
        raise ModelError("internal", "the adapter's files cannot be read")
    raise ModelError(outcome.code, outcome.reason)


def _fingerprint(member: Member, job: jobs.IndexJob) -> Outcome:
    with jobs.single_torch_thread():
        return fingerprint_member(refuse_strangers(member, job.wanted), job)


def guess_base(catalog: Catalog, model: str, others: Sequence[str] = ()) -> str:
    """The family that a model without a row most likely belongs to, of the catalog's and `others`;
    a `RequestError` if an adapter names another base, or its files none of several."""
    bases = [*catalog.bases(), *others]
    if len(bases) == 1:
        return bases[0]
    return _guess(catalog, _find(model), model, bases)


def choose_base(
    catalog: Catalog, model: str, given: str | None = None, hint: str | None = None
) -> tuple[str | None, bool, str]:
    """What a model without a row is studied on, as it was spelled, None where nothing names a base;
    whether it is an adapter, without weights of its own; and what its files say against that base.
    The base is as it is `given`, else as the model's files name it; `hint`: what may be its base,
    beside the catalog's. Raises as `guess_base`."""
    member, note = _find(model), ""
    if given is None:
        return _base_of(catalog, member, model, hint), member.is_adapter, note
    stranger = refuse_strangers(member, names_of_base(catalog, given)).refusal
    if member.is_adapter and stranger is not None and stranger.code == "other-base":
        note = f"{model} {stranger.reason}; it is studied on {given}, as --base says"
    return given, member.is_adapter, note


def _base_of(catalog: Catalog, member: Member, model: str, hint: str | None) -> str | None:
    bases = catalog.bases()
    if member.is_adapter and member.claims:
        if hint is not None and _named(catalog, member, [hint]):
            return hint
        if not bases:
            return member.claims[0]
        try:
            return _guess(catalog, member, model, bases)
        except RequestError as err:
            raise RequestError(f"{err}; --base BASE says on which it is studied") from None
    if hint is not None or not bases:
        return hint or next(iter(member.claims), None)
    base = _guess(catalog, member, model, bases)
    fits = refuse_strangers(member, names_of_base(catalog, base)).refusal is None
    return base if fits else None


def _find(model: str) -> Member:
    member = find_member(model, "")
    if member.is_adapter and member.refusal is None:
        try:
            member = member.with_config()
        except ModelError as err:
            raise _unanswered(model, err) from err
    if member.refusal is not None and not member.claims:
        raise _unanswered(model, member.refusal)
    if member.folder is not None and not member.record.bytes_total:
        raise RequestError(f"{model}: {ModelError('no-weights', 'no model in this folder')}")
    return member


def _guess(catalog: Catalog, member: Member, model: str, bases: Sequence[str]) -> str:
    named = _named(catalog, member, bases)
    if member.is_adapter and member.claims and not named:
        stranger = refuse_strangers(member, Wanted(names=())).refusal
        raise RequestError(f"{model}: {stranger}; the catalog has: {', '.join(bases)}")
    candidates = named or bases
    if len(candidates) == 1:
        return candidates[0]
    raise RequestError(
        f"{model}: which family? Add --base, one of: {', '.join(candidates) or 'none yet'}"
    )


def _named(catalog: Catalog, member: Member, bases: Sequence[str]) -> list[str]:
    """Those of the bases that the model names; by their very names, if any are."""
    named = [base for base in bases if names_of_base(catalog, base).named_in(member.claims)]
    keys = set(map(base_key, member.claims))
    return [base for base in named if base_key(base) in keys] or named


def names_of_base(catalog: Catalog, base: str) -> Wanted:
    """The base as its members may name it; by its name alone, where its folder is no base."""
    try:
        return wanted_base(resolve_base(catalog, base))
    except BaseError:
        return Wanted(names=(base,))


def _unanswered(model: str, refusal: ModelError) -> RequestError:
    kind = UnknownModel if refusal.code in NOWHERE else RequestError
    return kind(f"{model}: {refusal}")


ROW_SHARE = 0.01
LEAST_ENTRIES = 20_000
"""Entries from which ratios show a spike in every matrix: of toy models more rows are read."""

MOST_ENTRIES = 500_000
"""Entries that are read of each model: of 50 million, a hundredth; of more, fewer."""


@dataclass(slots=True)
class RowSample:
    """The same rows of models of one base, (rows, in) by slot and part, in their stored types."""

    base: Base
    parts: jobs.BaseParts
    shapes: dict[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    """Of every tensor of the full models that were read, by source."""

    @classmethod
    def of_base(cls, catalog: Catalog, base: str) -> RowSample:
        """Raises `BaseError` where the base's files cannot be read."""
        opened = resolve_base(catalog, base)
        opened.plan = FEW_BYTES
        entries = sum(p.shape[0] * p.shape[1] for p in opened.weights().placed.placements)
        share = min(max(ROW_SHARE, LEAST_ENTRIES / max(1, entries)), MOST_ENTRIES / max(1, entries))
        share = min(share, jobs.MOST_SHARE)
        return cls(opened, jobs.BaseParts(opened, share))

    @property
    def modules(self) -> Mapping[Key, str]:
        """The name of the module that holds each matrix, as in the base's files."""
        return {p.key: p.module for p in self.base.weights().placed.placements}

    def of_the_base(self) -> dict[Key, torch.Tensor]:
        return {key: self.parts.matrix(key)[0] for key in sorted(self.parts.parts)}

    @jobs.single_torch_thread()
    def read(self, source: str) -> dict[Key, torch.Tensor]:
        """Those of the model in a folder or of a Hub id; of an adapter, added to the base's.

        Raises:
            ModelError: it cannot be read, or has not the base's layers.
        """
        with find_member(source, self.base.name).opened(FEW_BYTES) as (member, checkpoint):
            if not member.is_adapter:
                self.shapes[source] = {n: tuple(ref.shape) for n, ref in checkpoint.tensors.items()}
                placed = place_checkpoint(checkpoint, member.config)
                placed.require_known()
                require_same_layers(placed, self.base.weights().placed)
                read = jobs.read_parts(checkpoint, placed.placements, self.parts.parts)
                return {placement.key: rows.clone() for placement, rows in read}
            rows = self.of_the_base()

            def add(update: MatrixUpdate) -> None:
                key, delta = (update.slot, update.part), update.delta
                if delta is not None:
                    rows[key] = (rows[key].float() + dense(delta)).to(rows[key].dtype)

            job = jobs.IndexJob(base=self.base, parts=self.parts)
            collect_adapter(member, checkpoint, job, add)
        return rows
