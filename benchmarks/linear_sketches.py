"""What linear sketches of one layer cost against those of one slot: the weights of merges.

    python benchmarks/linear_sketches.py [--models 60] [--layers 12] [--width 64] [--merges 20]

Models are random updates of 6 matrices a layer, siblings at cosine 0.56 in datasets of four.
Merges of 2 to 4 of them, with weights of their own in every layer, by the formulas of mergekit:
linear, TIES (density 0.2), DARE (densities 0.5 and 0.1), and linear with noise as long as a third
of the update. Parents are found in the pooled sketch by orthogonal matching pursuit, up to four,
weights below 0.08 dropped; weights are then fitted in every layer, with no negative ones. The error
is the mean of |fitted − true| / sum of the true weights, after the fitted ones are scaled to the
same sum. `all entries` fits the matrices themselves.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import nnls

from deltadex.indexer.delta import DenseDelta, MatrixUpdate
from deltadex.indexer.fingerprint import LinearPool, sketch_recipe
from deltadex.records import LINEAR_LAYER_DIM, Slot

ROLES = ("q", "k", "v", "o", "up", "down")
SIBLINGS, COSINE = 4, 0.56
MOST_PARENTS, LEAST_WEIGHT = 4, 0.08
Model = torch.Tensor
"""(layers, roles, out, in)."""


def make_models(n_models: int, layers: int, width: int) -> list[Model]:
    generator = torch.Generator().manual_seed(0)
    shape = layers, len(ROLES), width, width
    models = []
    for number in range(n_models):
        if number % SIBLINGS == 0:
            shared = torch.randn(shape, generator=generator)
        own = torch.randn(shape, generator=generator)
        models.append(COSINE**0.5 * shared + (1 - COSINE) ** 0.5 * own)
    return models


def linear(parts: list[Model], rng: torch.Generator) -> Model:
    return sum(parts, torch.zeros_like(parts[0]))


def noisy(parts: list[Model], rng: torch.Generator) -> Model:
    merged = linear(parts, rng)
    noise = torch.randn(merged.shape, generator=rng)
    return merged + noise * (merged.norm() / noise.norm() / 3)


def ties(parts: list[Model], rng: torch.Generator) -> Model:
    trimmed = []
    for part in parts:
        least = part.abs().flatten(2).quantile(0.8, dim=2)[..., None, None]
        trimmed.append(part * (part.abs() >= least))
    stacked = torch.stack(trimmed)
    agrees = stacked.sign() == stacked.sum(0).sign()
    return (stacked * agrees).sum(0)


def dare(density: float) -> Callable[[list[Model], torch.Generator], Model]:
    def merge(parts: list[Model], rng: torch.Generator) -> Model:
        kept = [p * (torch.rand(p.shape, generator=rng) < density) / density for p in parts]
        return linear(kept, rng)

    return merge


MERGES = {
    "linear": linear,
    "linear, noise 1/3": noisy,
    "TIES 0.2": ties,
    "DARE 0.5": dare(0.5),
    "DARE 0.1": dare(0.1),
}


def sketched(model: Model) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pooled (1024,), by layer (layers, 256), by slot (layers, roles × 256)."""
    recipe = sketch_recipe(16)
    whole, slots = LinearPool(recipe), []
    for layer, matrices in enumerate(model):
        for role, matrix in zip(ROLES, matrices, strict=True):
            slot = Slot("encoder", layer, role)
            update = MatrixUpdate(
                slot=slot,
                part="",
                delta=DenseDelta(matrix),
                shape=(matrix.shape[0], matrix.shape[1]),
                noise_norm=0.0,
                weight_norm=None,
            )
            features = whole.features(update)
            assert features is not None
            whole.take(slot, features)
            slots.append(features.view(-1, LINEAR_LAYER_DIM).sum(0).numpy())
    sketch = whole.sketch()
    layers = np.stack([sketch.layers[key] for key in sorted(sketch.layers)])
    return sketch.pooled, layers, np.stack(slots).reshape(len(model), -1)


def find_parents(merged: np.ndarray, models: np.ndarray) -> set[int]:
    """Orthogonal matching pursuit with non-negative weights."""
    chosen: list[int] = []
    residual = merged
    lengths = np.linalg.norm(models, axis=1)
    for _ in range(MOST_PARENTS):
        scores = models @ residual / lengths
        scores[chosen] = -np.inf
        chosen.append(int(scores.argmax()))
        weights, _ = nnls(models[chosen].T, merged)
        residual = merged - weights @ models[chosen]
    return {number for number, weight in zip(chosen, weights, strict=True) if weight > LEAST_WEIGHT}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--merges", type=int, default=20)
    options = parser.parse_args()
    models = make_models(options.models, options.layers, options.width)
    sketches = [sketched(model) for model in models]
    pooled = np.stack([sketch[0] for sketch in sketches])
    print("| merge | parents found | all entries | 256 a slot | 256 a layer | 1,024 pooled |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, merge in MERGES.items():
        rng, random = torch.Generator().manual_seed(1), np.random.default_rng(1)
        n_found, errors = 0, []
        for _ in range(options.merges):
            parents = random.choice(len(models), size=random.integers(2, 5), replace=False)
            mean = random.dirichlet(np.full(len(parents), 8.0))
            weights = np.stack([random.dirichlet(60 * mean) for _ in range(options.layers)])
            parts = [
                models[parent] * torch.tensor(weights[:, i]).float()[:, None, None, None]
                for i, parent in enumerate(parents)
            ]
            merged = merge(parts, rng)
            own = sketched(merged)
            n_found += find_parents(own[0], pooled) == set(parents.tolist())
            exact = [merged.flatten(1).numpy(), *own[2:0:-1]]
            known = [np.stack([models[p].flatten(1).numpy() for p in parents])]
            known += [np.stack([sketches[p][form] for p in parents]) for form in (2, 1)]
            by_form = [
                np.mean([_error(k[:, layer], e[layer], weights[layer]) for layer in range(len(e))])
                for k, e in zip(known, exact, strict=True)
            ]
            of_all = _error(np.stack([sketches[p][0] for p in parents]), own[0], weights.mean(0))
            errors.append([*by_form, of_all])
        figures = " | ".join(f"{error:.3f}" for error in np.mean(errors, axis=0))
        print(f"| {name} | {n_found} of {options.merges} | {figures} |", flush=True)


def _error(parents: np.ndarray, merged: np.ndarray, weights: np.ndarray) -> float:
    fitted, _ = nnls(parents.T.astype(np.float64), merged.astype(np.float64))
    scaled = fitted * (weights.sum() / max(fitted.sum(), 1e-12))
    return float(np.abs(scaled - weights).mean() / weights.sum())


if __name__ == "__main__":
    main()
