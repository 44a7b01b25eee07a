"""Updates to fingerprints: factors of each ΔW, gauge-free features of them, one vector.

The default recipe, `sketch`, has per slot three kernels between two updates, each a cosine: of
U σ Vᵀ (`update`), of U √σ Uᵀ (`output`) and of V σ² Vᵀ (`input`). docs/fingerprints.md says why
these powers. A TensorSketch (Pham, Pagh 2013) estimates inner products of matrices Σ aᵢ bᵢᵀ wᵢ
without bias from `rank` vectors a side: two count-sketches, multiplied as spectra. All slots add up
under independent hashes.

A slot's blocks are kept as codes with one weight. Beside them is the linear sketch, a CountSketch
that is not normalised. Entry (i, j) of a slot's matrix is added, with sign s(i) t(j), to number
a(i) + j modulo `DIM` (Charikar, Chen, Farach-Colton 2002, with signs that are a product, as in
Pham, Pagh 2013). Inner products of two sketches estimate ⟨ΔW, ΔW'⟩ without bias, since the signs of
two entries agree as often as not; the shifts a decide the variance, near
(|ΔW|²|ΔW'|² + ⟨ΔW, ΔW'⟩²) / `DIM`.

The shift a(i) is a random number of the row's block of `BLOCK`, plus `step` for every row further
down in it: a block spans all `DIM` numbers. It is sketched by one product, since in a matrix whose
rows are shorter by `step` the same numbers are shifted so. A low-rank ΔW has the same sketch by way
of its factors' spectra.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import torch

from .. import records
from ..arrays import Float32, Int8
from ..errors import ModelError, RequestError, UnknownRecipe, offered
from ..records import LINEAR_DIM as DIM
from ..store import encode_sketch
from .delta import (
    LEAST_NORM,
    Delta,
    DenseDelta,
    Factors,
    Features,
    LowRankDelta,
    MatrixUpdate,
    factorise,
    largest_noise_sigma,
)
from .lexicon import BaseLexicon, stored_responses

BLOCK_DIMS = {"update": 1024, "output": 2048, "input": 1024}
"""Numbers of buckets that are drawn; a circular sketch folded to a length has them modulo it."""

SLOT_DIMS = {"update": 512, "output": 1024, "input": 512}
"""Lengths of the blocks of a slot's sketch and of the vector: those of the circular sketches that
are added up, as spectra."""

POWERS = {"update": 1.0, "output": 0.5, "input": 2.0}
WEIGHTS = {"update": 1.0, "output": 2.0, "input": 2.0}
LEAST_INPUT = 0.1
"""What is left of the input side's weight where an update is exactly of low rank."""


def sketch_recipe(rank: int, share: float = 1.0) -> records.Recipe:
    """The default recipe; `slot_blocks` holds the lengths of a sketch's blocks. A share makes it
    another."""
    slot_blocks = ",".join(f"{block}:{dim}" for block, dim in SLOT_DIMS.items())
    weights = ",".join(f"{block}:{weight:g}" for block, weight in WEIGHTS.items())
    return records.Recipe(
        name="sketch",
        rank=rank,
        dim=sum(SLOT_DIMS.values()),
        version=VERSIONS["sketch"],
        params=(
            ("bits", "2"),
            *((("rows", f"{share * 100:g}%"),) if share < 1 else ()),
            ("slot_blocks", slot_blocks),
            ("weights", weights),
        ),
    )


def _empty_spectra() -> dict[str, torch.Tensor]:
    return {b: torch.zeros(d // 2 + 1, dtype=torch.complex64) for b, d in SLOT_DIMS.items()}


@dataclass(slots=True)
class _SlotSpectra:
    spectra: dict[str, torch.Tensor] = field(default_factory=dict)
    squares: dict[str, float] = field(default_factory=lambda: dict.fromkeys(POWERS, 0.0))
    factored: float = 0.0
    total: float = 0.0
    noise: float = 0.0
    cut_axis: int | None = None

    @property
    def signal(self) -> float:
        """The share of the update that is not storage rounding, 0…1."""
        return max(0.0, 1.0 - self.noise / self.total)

    def is_seen_whole(self, block: str) -> bool:
        """Whether a block is: of a few rows only the input side is, of a few columns the output."""
        return self.cut_axis is None or block != ("output", "input")[self.cut_axis]


@dataclass(slots=True)
class SketchPool:
    """Adds up one model's slots; then gives its vector and the per-slot sketches. `powers`: of
    singular values, by block."""

    recipe: records.Recipe
    powers: Mapping[str, float] = field(default_factory=lambda: POWERS)
    _slots: dict[records.Slot, _SlotSpectra] = field(default_factory=dict)

    def features(self, update: MatrixUpdate, factors: Factors) -> Features:
        """One matrix's spectrum a block; may run in any thread: Fourier transforms of the
        TensorSketches of Σ σᵢᵖ aᵢ bᵢᵀ, (dim // 2 + 1,)."""
        if len(factors.sigma) == 0:
            return {}
        key, dims = f"{update.slot}/{update.part}", tuple(SLOT_DIMS.values())
        sketches = sketch_sides(factors.u, factors.v, self.recipe.seed, key, dims)
        features, start = {}, 0
        for block, dim in SLOT_DIMS.items():
            sides = sketches[start : start + 2 * dim].view(2, dim, -1)
            left, right = torch.fft.rfft(sides, dim=1)
            weights = (factors.sigma ** self.powers[block]).to(torch.complex64)
            features[block] = (left * right) @ weights
            start += 2 * dim
        return features

    def take(self, update: MatrixUpdate, factors: Factors, features: Features) -> None:
        sums = self._slots.setdefault(update.slot, _SlotSpectra())
        sigma = factors.sigma.numpy().astype(np.float64)
        for block, power in self.powers.items():
            sums.squares[block] += float((sigma ** (2 * power)).sum())
        sums.factored += float((sigma**2).sum())
        sums.total += factors.fro_norm**2
        sums.noise += update.noise_norm**2
        sums.cut_axis = update.cut_axis
        for block, spectrum in features.items():
            before = sums.spectra.get(block)
            sums.spectra[block] = spectrum if before is None else before + spectrum

    def vector(self) -> tuple[Float32[np.ndarray, " dim"], float]:
        """The pooled fingerprint, unit length, and its length before; zeros if no slot counts."""
        blocks = _empty_spectra()
        for sums in self._slots.values():
            scales = _block_scales(sums)
            for block, spectrum in sums.spectra.items():
                blocks[block] += spectrum * scales[block]
        return _unit(torch.cat(list(_sketches(blocks).values())))

    def slot_sketch(self, slot: records.Slot) -> bytes:
        """The codes of one slot's three blocks, with the slot's weight, or nothing where all of it
        was rounding."""
        sums = self._slots.get(slot)
        if sums is None:
            return b""
        weight = 0.0 if sums.squares["update"] == 0.0 else sums.signal**0.5
        weights = [weight * sums.is_seen_whole(block) for block in SLOT_DIMS]
        if not any(weights):
            return b""
        blocks = _sketches(sums.spectra or _empty_spectra())
        return encode_sketch([numbers.numpy() for numbers in blocks.values()], weights)


def _unit(vector: torch.Tensor) -> tuple[Float32[np.ndarray, " dim"], float]:
    norm = float(torch.linalg.vector_norm(vector.double()))
    return (vector / norm if norm > 0 else vector).numpy(), norm


def _sketches(spectra: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {block: torch.fft.irfft(spectra[block], n=dim) for block, dim in SLOT_DIMS.items()}


def _block_scales(sums: _SlotSpectra) -> dict[str, float]:
    """What each block of a slot is multiplied by: its cosine norm, times its weight's root.

    A slot counts by the share of its update that is not storage rounding. Its input side
    counts by the share that the factors leave out: an update of exactly low rank is an
    adapter's, whose input side still holds the random start of its A matrix, while in a full
    fine-tune it is data like the rest. A little is left, so that the two kinds can meet there.
    Where a side is not seen whole it does not count, and how much the factors leave out says
    nothing about the other one.
    """
    if sums.factored == 0.0:
        return dict.fromkeys(BLOCK_DIMS, 0.0)
    signal = sums.signal
    energy = min(1.0, sums.factored / (sums.total * signal)) if signal > 0 else 1.0
    share = {"update": 1.0, "output": 1.0, "input": max(LEAST_INPUT, 1.0 - energy)}
    if sums.cut_axis is not None:
        share = {block: float(sums.is_seen_whole(block)) for block in share}
    return {
        block: (signal * WEIGHTS[block] * share[block] / sums.squares[block]) ** 0.5
        for block in BLOCK_DIMS
    }


def hash_rows(seed: int, key: str, n_rows: int, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A count-sketch hash of `n_rows` coordinates: buckets (int64) and signs (float32)."""
    generator = _generator(f"{seed}/{key}/{n_rows}/{dim}")
    buckets = generator.integers(0, dim, size=n_rows, dtype=np.int64)
    signs = generator.integers(0, 2, size=n_rows, dtype=np.int8)
    return torch.from_numpy(buckets), torch.from_numpy(signs * 2.0 - 1.0).float()


def _generator(key: str) -> np.random.Generator:
    """Random numbers that depend on the key only, on every machine: Philox by its SHA-256."""
    digest = hashlib.sha256(key.encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))


SIDES = {"update": "uv", "output": "uu", "input": "vv"}
"""The factors whose products a block's sketch adds up."""


def sketch_sides(
    u: torch.Tensor, v: torch.Tensor, seed: int, key: str, dims: tuple[int, ...]
) -> torch.Tensor:
    """Count sketches of the columns of u and v, (n, rank), as each block of `BLOCK_DIMS` has them,
    folded to `dims`: (Σ 2 dim, rank), a block's left side before its right one; float32.

    Charikar, Chen, Farach-Colton 2002: inner products are preserved in expectation. All in one
    pass, each side under a hash of its own.
    """
    rows, starts, signs = _sides_hash(seed, key, len(u), len(v), dims)
    # not torch.nn.functional's, whose checks take as long
    sketches, *_ = torch.embedding_bag(torch.cat([u, v]), rows, starts, False, 0, False, signs)
    return sketches


@lru_cache(maxsize=4096)
def _sides_hash(
    seed: int, key: str, n_out: int, n_in: int, dims: tuple[int, ...]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The rows of every bucket in turn, those of v after those of u; where each bucket's begin,
    (Σ 2 dim,); the rows' signs.

    A bucket's rows are gathered and added, several times as fast as adding every row to its bucket.
    """
    rows, sizes, signs = [], [], []
    for (block, n_buckets), dim in zip(BLOCK_DIMS.items(), dims, strict=True):
        for name, side in zip("ab", SIDES[block], strict=True):
            n_rows = n_out if side == "u" else n_in
            buckets, own = hash_rows(seed, f"{key}/{block}/{name}", n_rows, n_buckets)
            in_turn = torch.argsort(buckets % dim, stable=True)
            rows.append(in_turn + (0 if side == "u" else n_out))
            signs.append(own[in_turn])
            sizes.append(torch.bincount(buckets % dim, minlength=dim))
    all_sizes = torch.cat(sizes)
    return torch.cat(rows).int(), (all_sizes.cumsum(0) - all_sizes).int(), torch.cat(signs)


BLOCK = 128
"""Consecutive rows under one random shift."""

RANKS_AT_ONCE = 64
"""Factors whose spectra are held at once: 0.5 MB a side."""


@dataclass(slots=True)
class LinearPool:
    """Adds up one model's matrices in float64."""

    recipe: records.Recipe
    _layers: dict[tuple[str, int], torch.Tensor] = field(default_factory=dict)

    def features(self, update: MatrixUpdate) -> torch.Tensor | None:
        """The sketch of one matrix's ΔW, (DIM,); None of an exact zero. May run in any thread."""
        if update.delta is None:
            return None
        hashes = _matrix_hash(self.recipe.seed, f"{update.slot}/{update.part}", update.shape)
        first = [0, 0]
        if update.cut_axis is not None:
            first[update.cut_axis] = update.cut_start
        if isinstance(update.delta, DenseDelta):
            return _sketch_dense(update.delta.matrix, hashes, *first)
        return _sketch_low_rank(update.delta, hashes, *first)

    def take(self, slot: records.Slot, features: torch.Tensor) -> None:
        key = slot.stack, slot.layer
        self._layers[key] = self._layers.get(key, 0.0) + features

    def sketch(self) -> records.LinearSketch:
        pooled = sum(self._layers.values(), torch.zeros(DIM, dtype=torch.float64))
        return records.LinearSketch(
            recipe=self.recipe.id,
            pooled=_stored(pooled),
            layers={
                # number k is added to number k modulo the shorter length
                key: _stored(numbers.view(-1, records.LINEAR_LAYER_DIM).sum(0))
                for key, numbers in sorted(self._layers.items())
            },
        )


@dataclass(frozen=True, slots=True, eq=False)
class MatrixHash:
    """The hash of one whole matrix's entries: the shift of each block of rows, 0…`DIM` − 1; the odd
    step from each row of a block to the next; signs, ±1."""

    shifts: tuple[int, ...]
    step: int
    row_signs: torch.Tensor
    column_signs: torch.Tensor


@lru_cache(maxsize=4096)
def _matrix_hash(seed: int, key: str, shape: tuple[int, int]) -> MatrixHash:
    n_rows, n_columns = shape
    generator = _generator(f"{seed}/{key}/linear/{n_rows}/{n_columns}")
    shifts = generator.integers(0, DIM, size=math.ceil(n_rows / BLOCK), dtype=np.int64)
    signs = generator.integers(0, 2, size=n_rows + n_columns, dtype=np.int8)
    values = torch.from_numpy(signs * 2.0 - 1.0).float()
    step = max(1, (DIM - n_columns) // BLOCK)
    step -= 1 - step % 2
    return MatrixHash(tuple(shifts.tolist()), step, values[:n_rows], values[n_rows:])


def _sketch_dense(
    matrix: torch.Tensor, hashes: MatrixHash, first_row: int, first_column: int
) -> torch.Tensor:
    """The sketch of a dense ΔW that begins at this row and column. Peak: a block of rows, again."""
    n_rows, n_columns = matrix.shape
    device = matrix.device
    row_signs = hashes.row_signs[first_row : first_row + n_rows].to(device)
    column_signs = hashes.column_signs[first_column : first_column + n_columns].to(device)
    # numbers and zeros; read as rows that are shorter by a step, row r begins r steps further on
    step = hashes.step
    width = n_columns + BLOCK * step
    memory = torch.empty(BLOCK * width, device=device)
    memory.view(BLOCK, width)[:, n_columns:] = 0.0
    signed = memory.view(BLOCK, width)[:, :n_columns]
    length = width - step
    shifted = memory[: BLOCK * length].view(BLOCK, length)
    longest = DIM + BLOCK * step + first_column + length
    sums = torch.zeros(math.ceil(longest / DIM) * DIM, dtype=torch.float64, device=device)
    row = 0
    while row < n_rows:
        block, inside = divmod(first_row + row, BLOCK)
        height = min(BLOCK - inside, n_rows - row)
        torch.mul(matrix[row : row + height], column_signs, out=signed[:height])
        start = hashes.shifts[block] + inside * step + first_column
        sums[start : start + length] += row_signs[row : row + height] @ shifted[:height]
        row += height
    return sums.view(-1, DIM).sum(0).cpu()


def _sketch_low_rank(
    delta: LowRankDelta, hashes: MatrixHash, first_row: int, first_column: int
) -> torch.Tensor:
    """The same of ΔW = left @ right: a sketch of an outer product is a circular convolution."""
    n_rows, rank = delta.left.shape
    n_columns = delta.right.shape[1]
    rows = torch.arange(first_row, first_row + n_rows)
    columns = torch.arange(first_column, first_column + n_columns)
    row_buckets = (torch.tensor(hashes.shifts)[rows // BLOCK] + rows % BLOCK * hashes.step) % DIM
    sums = torch.zeros(DIM // 2 + 1, dtype=torch.complex128)
    for start in range(0, rank, RANKS_AT_ONCE):
        part = slice(start, start + RANKS_AT_ONCE)
        left = _bucket(delta.left[:, part].double() * hashes.row_signs[rows, None], row_buckets)
        right = delta.right[part].T.double() * hashes.column_signs[columns, None]
        spectra = torch.fft.rfft(left, dim=0) * torch.fft.rfft(_bucket(right, columns % DIM), dim=0)
        sums += spectra.sum(1)
    numbers: torch.Tensor = torch.fft.irfft(sums, n=DIM)
    return numbers


def _bucket(rows: torch.Tensor, buckets: torch.Tensor) -> torch.Tensor:
    return rows.new_zeros(DIM, rows.shape[1]).index_add_(0, buckets, rows)


def _stored(numbers: torch.Tensor) -> Float32[np.ndarray, " features"]:
    stored: Float32[np.ndarray, " features"] = numbers.float().numpy()
    stored.flags.writeable = False
    return stored


SAME_SIZE = 1e-5
"""Entries of U closer than this share of themselves are equally large."""

Layout = tuple[tuple[str, str, int], ...]
"""The family's blocks in order: (stack, role, out)."""


def family_layout(matrices: Iterable[tuple[records.Slot, int]]) -> Layout:
    """The blocks of a family, from every (slot, out) that its base or members have."""
    blocks = {(slot.stack, slot.role, n_out) for slot, n_out in matrices}
    return tuple(
        sorted(blocks, key=lambda b: (records.stack_order(b[0]), records.role_order(b[1]), b[2]))
    )


def mean_factors_recipe(rank: int, layout: Layout) -> records.Recipe:
    digest = hashlib.sha256(json.dumps(layout).encode()).hexdigest()[:12]
    return records.Recipe(
        name="mean-factors",
        rank=rank,
        dim=rank * sum(n_out for _, _, n_out in layout),
        params=(("layout", digest),),
    )


@dataclass(slots=True)
class MeanFactorsPool:
    """The field's original recipe: UΣ of each matrix, averaged over layers, roles concatenated.

    After github.com/ArmelRandy/vectors (2023), which averaged U alone; here UΣ, encoder and
    decoder concatenated. Kept for comparison, and documented as unstable: singular vectors carry
    an arbitrary sign, and an arbitrary rotation among close singular values, so the mean over
    layers adds vectors whose signs mean nothing. The sign rule (largest entry of each U column
    is positive) makes the numbers reproducible, not comparable.
    """

    recipe: records.Recipe
    layout: Layout
    _sums: dict[tuple[str, str, int], tuple[torch.Tensor, int]] = field(default_factory=dict)

    def features(self, update: MatrixUpdate, factors: Factors) -> Features:
        signed = fix_signs(factors.u) * factors.sigma
        missing = self.recipe.rank - signed.shape[1]
        return {"mean": torch.nn.functional.pad(signed, (0, missing))}

    def take(self, update: MatrixUpdate, factors: Factors, features: Features) -> None:
        scaled = features["mean"]
        key = (update.slot.stack, update.slot.role, scaled.shape[0])
        total, count = self._sums.get(key, (torch.zeros_like(scaled), 0))
        self._sums[key] = (total + scaled, count + 1)

    def vector(self) -> tuple[Float32[np.ndarray, " dim"], float]:
        blocks = []
        for key in self.layout:
            total, count = self._sums.get(key, (torch.zeros(key[2], self.recipe.rank), 1))
            blocks.append((total / count).flatten())
        return _unit(torch.cat(blocks))


def fix_signs(u: torch.Tensor) -> torch.Tensor:
    """The columns of U, each with its largest entry made positive; of entries that are equally
    large but for rounding, the first: processors round differently."""
    if u.shape[1] == 0:
        return u
    sizes = u.abs()
    largest = (sizes >= sizes.amax(dim=0) * (1 - SAME_SIZE)).int().argmax(dim=0, keepdim=True)
    return u * torch.where(u.gather(0, largest) < 0, -1.0, 1.0)


DEFAULT_RECIPE = "sketch"
RECIPE_NAMES = ("sketch", "mean-factors")
VERSIONS = {"sketch": 3, "mean-factors": 1}

DEFAULT_RANK = {"sketch": 16, "mean-factors": 8}
POWER_STEPS = {"sketch": 0, "mean-factors": 2}
"""Those of the randomised SVD; two as `torch.svd_lowrank`, which the original recipe called."""

Pool = SketchPool | MeanFactorsPool
"""Takes the features of a model's matrices one at a time, then gives a vector."""


def make_recipe(name: str, rank: int | None, layout: Layout, share: float = 1.0) -> records.Recipe:
    """The recipe that users call `name`, for a family with this layout; `UnknownRecipe` lists the
    names there are."""
    if name == "sketch":
        return sketch_recipe(rank or DEFAULT_RANK[name], share)
    if name in RECIPE_NAMES and share < 1:
        raise RequestError(f"recipe {name} needs whole matrices: leave --budget out")
    if name == "mean-factors":
        return mean_factors_recipe(rank or DEFAULT_RANK[name], layout)
    raise UnknownRecipe(f"unknown recipe {name!r}{offered(name, RECIPE_NAMES)}")


def make_pool(recipe: records.Recipe, layout: Layout) -> Pool:
    """An empty pool for one model, or `UnknownRecipe` for a version that this deltadex cannot
    make."""
    if recipe.version != VERSIONS.get(recipe.name):
        raise UnknownRecipe(
            f"recipe {recipe.id} is version {recipe.version} of {recipe.name!r}, which this "
            "deltadex cannot make: choose another --recipe"
        )
    return SketchPool(recipe) if recipe.name == "sketch" else MeanFactorsPool(recipe, layout)


ROWS_AT_ONCE = 64
"""Rows of ΔW whose zeros are counted at once."""

EQUAL_MATRICES = "every layer matrix equals the base's"

ZERO_UPDATE = 1e-7
"""|ΔW| / |W| at or below which float32 storage cannot tell an update from none."""


@dataclass(slots=True)
class _SlotSums:
    rows: int = 0
    columns: int = 0
    update_sq: float = 0.0
    weight_sq: float | None = None
    noise_sq: float = 0.0
    entries: int = 0
    unchanged: float = 0.0
    sigmas: list[torch.Tensor] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MeasuredUpdate:
    """The measurements of one matrix's update, without its ΔW; no factors for an exact zero.
    `features`: for each recipe, the factors it looks at and what it makes of them; `answers`: how
    strongly it answers to each word of a lexicon."""

    update: MatrixUpdate
    zero_share: float
    linear: torch.Tensor | None = None
    factors: Factors | None = None
    features: tuple[tuple[Factors, Features], ...] = ()
    answers: torch.Tensor | None = None


@dataclass(slots=True)
class UpdateCollector:
    """Takes ΔW matrix by matrix; keeps statistics and pooled features, never the matrices."""

    recipes: Sequence[records.Recipe]
    layout: Layout
    lexicon: BaseLexicon | None = None
    _answers: torch.Tensor = field(default_factory=lambda: torch.zeros(1))
    _pools: list[Pool] = field(default_factory=list)
    _linear: LinearPool | None = None
    _slots: dict[records.Slot, _SlotSums] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._pools = [make_pool(recipe, self.layout) for recipe in self.recipes]
        linear = [recipe for recipe in self.recipes if recipe.has_linear_sketch]
        self._linear = LinearPool(linear[0]) if linear else None

    def measure(self, update: MatrixUpdate) -> MeasuredUpdate:
        """One matrix's update, factored and turned into features; may run in any thread."""
        delta, rest = update.delta, replace(update, delta=None)
        if delta is None:
            return MeasuredUpdate(rest, zero_share=1.0)
        zeros = zero_share(delta)
        linear = self._linear.features(update) if self._linear else None
        if delta.norm <= max(LEAST_NORM, ZERO_UPDATE * (update.weight_norm or 0.0)):
            return MeasuredUpdate(rest, zeros, linear)
        noise = largest_noise_sigma(update.noise_norm, delta.shape)
        found = [
            factorise(delta, r.rank, seed=r.seed, power_steps=POWER_STEPS[r.name])
            for r in self.recipes
        ]
        seen = [factors.above(noise) for factors in found]
        pairs = zip(self._pools, seen, strict=True)
        features = tuple((factors, pool.features(update, factors)) for pool, factors in pairs)
        answers = self.lexicon.answers(update, seen[0]) if self.lexicon is not None else None
        return MeasuredUpdate(rest, zeros, linear, found[0], features, answers)

    def take(self, measured: MeasuredUpdate) -> None:
        update = measured.update
        sums = self._slots.setdefault(update.slot, _SlotSums())
        sums.rows += update.shape[0]
        sums.columns = max(sums.columns, update.shape[1])
        if update.weight_norm is not None:
            sums.weight_sq = (sums.weight_sq or 0.0) + update.weight_norm**2
        sums.entries += math.prod(update.shape)
        sums.unchanged += measured.zero_share * math.prod(update.shape)
        if self._linear is not None and measured.linear is not None:
            self._linear.take(update.slot, measured.linear)
        if measured.factors is None:
            return
        if measured.answers is not None:
            self._answers = self._answers + measured.answers
        sums.update_sq += measured.factors.fro_norm**2
        sums.noise_sq += update.noise_norm**2
        sums.sigmas.append(measured.factors.sigma)
        for pool, (factors, features) in zip(self._pools, measured.features, strict=True):
            pool.take(update, factors, features)

    def fingerprints(self) -> tuple[records.Fingerprint, ...]:
        only_rounding = all(s.update_sq <= s.noise_sq for s in self._slots.values())
        results = []
        for pool in self._pools:
            vector, norm = pool.vector()
            if only_rounding or not norm > 0.0:
                raise ModelError("no-update", self._no_update())
            vector.flags.writeable = False
            results.append(records.Fingerprint(recipe=pool.recipe, vector=vector, norm=norm))
        return tuple(results)

    def _no_update(self) -> str:
        entries = sum(sums.entries for sums in self._slots.values())
        changed = entries - sum(sums.unchanged for sums in self._slots.values())
        if changed <= 0:
            return EQUAL_MATRICES
        share = max(1e-4, changed / entries)
        less = "less than " if changed < 1e-4 * entries else ""
        return (
            f"its update is smaller than the rounding of its numbers: {less}{share:.2%} of the "
            "entries of its layer matrices differ from the base's, rounded"
        )

    def responses(self) -> Int8[np.ndarray, " words"]:
        """What the model's update answers to, as `Footprint` has it."""
        return stored_responses(self._answers)

    def linear_sketch(self) -> records.LinearSketch | None:
        return None if self._linear is None else self._linear.sketch()

    def statistics(self) -> tuple[records.SlotStats, ...]:
        sketches = next((p for p in self._pools if isinstance(p, SketchPool)), None)
        rank = max(r.rank for r in self.recipes)
        return tuple(
            _statistics(slot, sums, rank, sketches) for slot, sums in sorted(self._slots.items())
        )


def _statistics(
    slot: records.Slot, sums: _SlotSums, rank: int, sketches: SketchPool | None
) -> records.SlotStats:
    merged = torch.cat(sums.sigmas) if sums.sigmas else torch.zeros(0)
    sigma = merged.sort(descending=True).values[:rank].numpy()
    energy = float(np.square(sigma, dtype=np.float64).sum())
    relative = math.sqrt(sums.update_sq / sums.weight_sq) if sums.weight_sq else None
    return records.SlotStats(
        slot=slot,
        shape=(sums.rows, sums.columns),
        fro_norm=math.sqrt(sums.update_sq),
        relative_norm=relative,
        sigma=sigma,
        energy=min(1.0, energy / sums.update_sq) if sums.update_sq else 0.0,
        stable_rank=sums.update_sq / float(sigma[0]) ** 2 if len(sigma) else 0.0,
        noise_floor=math.sqrt(sums.noise_sq),
        sketch=sketches.slot_sketch(slot) if sketches else b"",
        zero_share=sums.unchanged / sums.entries if sums.entries else None,
    )


def zero_share(delta: Delta) -> float:
    """Share of ΔW's entries that are exactly 0, 0…1; of a low-rank update those in rows and columns
    that its factors leave at 0: where products of other entries cancel, it is not seen."""
    if not isinstance(delta, DenseDelta):
        rows, columns = delta.left.any(dim=1), delta.right.any(dim=0)
        return 1.0 - float(rows.double().mean() * columns.double().mean())
    matrix = delta.matrix
    if matrix.device.type != "cpu":
        return 1.0 - float(torch.count_nonzero(matrix)) / max(1, matrix.numel())
    # some rows at a time, which stay in the processor's cache: several times as fast as torch
    rows = matrix.T if matrix.stride(-1) != 1 else matrix
    numbers = rows.numpy()
    starts = range(0, len(numbers), ROWS_AT_ONCE)
    n_changed = sum(
        int(np.count_nonzero(numbers[start : start + ROWS_AT_ONCE] != 0)) for start in starts
    )
    return 1.0 - n_changed / max(1, numbers.size)
