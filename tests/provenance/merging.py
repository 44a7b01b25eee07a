"""Small families of updates as sketches, matrices and rows, and merges of them by plain code."""

import numpy as np
import torch
from catalogs import matrix_update

from deltadex.indexer import DenseDelta, LinearPool
from deltadex.indexer.fingerprint import sketch_recipe
from deltadex.records import Slot
from deltadex.store import FamilyUpdates

LAYERS, WIDTH = 3, 48
SLOTS = [Slot("encoder", layer, role) for layer in range(LAYERS) for role in ("q", "up")]
RECIPE = sketch_recipe(16)


def random_updates(number, *, seed=0, kin=()):
    """Updates (slots, WIDTH, WIDTH) of norm 1 to 2 a slot; `kin`: pairs (row, of) at cosine .5."""
    rng = torch.Generator().manual_seed(seed)
    updates = torch.randn(number, len(SLOTS), WIDTH, WIDTH, generator=rng) / WIDTH
    for row, of in kin:
        updates[row] = 0.5 * updates[of] + 0.75**0.5 * updates[row]
    sizes = 1 + torch.rand(number, 1, 1, 1, generator=rng)
    return updates * sizes


def sketched(updates, *, floor=0.0):
    """Their sketches and statistics, as the catalog has them; `floor`: |rounding| of a slot."""
    pooled, layers = [], []
    for update in updates:
        pool = LinearPool(RECIPE)
        for slot, matrix in zip(SLOTS, update, strict=True):
            kept = matrix_update(slot, DenseDelta(matrix.contiguous()), (WIDTH, WIDTH))
            pool.take(slot, pool.features(kept))
        sketch = pool.sketch()
        pooled.append(sketch.pooled)
        layers.append(np.stack([sketch.layers["encoder", layer] for layer in range(LAYERS)]))
    norms = updates.flatten(2).norm(dim=2).double().numpy()
    unknown = np.full(norms.shape, np.nan)
    return FamilyUpdates(
        keys=np.arange(len(updates)),
        sketched=np.ones(len(updates), dtype=np.bool_),
        pooled=np.stack(pooled),
        layers=np.stack(layers),
        layer_names=tuple(("encoder", layer) for layer in range(LAYERS)),
        slots=tuple(SLOTS),
        fro_norm=norms,
        noise_floor=np.full(norms.shape, floor),
        relative_norm=unknown,
        zero_share=(updates == 0).double().mean((2, 3)).numpy(),
        stable_rank=unknown,
    )


def trimmed(updates, density):
    """The largest entries of each matrix, as mergekit's `magnitude` keeps them."""
    kept = updates.flatten(2).abs()
    least = kept.sort(dim=2, descending=True).values[..., int(density * kept.shape[2]) - 1]
    return updates * (updates.abs() >= least[..., None, None])


def ties(updates, weights, density):
    """Yadav et al. 2023, with the mean over those that agree weighted, as mergekit has it."""
    weighted = trimmed(updates, density) * weights
    agree = weighted.sign() == (weighted.sum(0) >= 0) * 2.0 - 1
    divisor = (weights * agree).sum(0)
    return (weighted * agree).sum(0) / torch.where(divisor == 0, 1.0, divisor)


def dare(updates, weights, density, *, seed=0):
    """Yu et al. 2023."""
    rng = torch.Generator().manual_seed(seed)
    keep = torch.rand(updates.shape, generator=rng) < density
    return (updates * keep / density * weights).sum(0)


def column(*weights):
    return torch.tensor(weights)[:, None, None, None]


def rows_of(base, update, dtype=torch.float32):
    """A model's matrices by slot and part, stored in a type."""
    return {
        (slot, ""): (own + change).to(dtype)
        for slot, own, change in zip(SLOTS, base, update, strict=True)
    }
