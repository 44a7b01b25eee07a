"""Precision and coverage of suggested datasets, on labelled models that were not calibrated on.

    python benchmarks/suggestions.py [--db CATALOG] [--seeds 40] [--families plain "12 datasets"]

The labels of 30 % of the models are hidden at random, and those of all models of some datasets;
these models are suggested a dataset. Nothing but the labels that were kept is used for it.
Without a catalog, synthetic families are recorded in one, of a difficulty that is known.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from deltadex.records import Fingerprint, Indexed, ModelRecord, Recipe
from deltadex.search import LabelledModels, family_views, labelled_models
from deltadex.search.suggestions import suggest_datasets
from deltadex.store import Catalog

HIDDEN = 0.3
"""Share of the labelled models whose label is hidden."""

RECIPE = Recipe(name="sketch", rank=1, dim=512, params=(("centring", "kind"),))


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """A family: datasets' directions of unequal strength, authors' habits, noise of length 1."""

    models: int = 400
    datasets: int = 48
    strength: float = 0.8
    habit: float = 0.2
    weak: float = 0.0
    twins: int = 0


FAMILIES = {
    "clear": Synthetic(strength=1.2),
    "plain": Synthetic(),
    "faint": Synthetic(strength=0.3),
    "a third is weak": Synthetic(weak=0.33),
    "habits": Synthetic(habit=0.8),
    "4 pairs of near twins": Synthetic(twins=4),
    "12 datasets": Synthetic(datasets=12, models=200),
    "6 datasets, 60 models": Synthetic(datasets=6, models=60),
}


def records(made: Synthetic) -> Iterator[Indexed]:
    """Models of a made family; dataset i + 1 of a pair of twins is near dataset i."""
    rng = np.random.default_rng(0)
    centres = unit(rng.normal(size=(made.datasets, RECIPE.dim)))
    for pair in range(made.twins):
        centres[2 * pair + 1] = unit(centres[2 * pair] + 0.7 * centres[2 * pair + 1])
    habits = unit(rng.normal(size=(made.models // 2, RECIPE.dim)))
    common = unit(rng.normal(size=RECIPE.dim))
    for i in range(made.models):
        dataset, author = rng.integers(made.datasets), rng.integers(len(habits))
        strength = made.strength * rng.uniform(0.6, 1.2) * (0.2 if rng.random() < made.weak else 1)
        noise = unit(rng.normal(size=RECIPE.dim))
        vector = unit(common + strength * centres[dataset] + made.habit * habits[author] + noise)
        model = ModelRecord(id=f"m{i}", base="base", dataset=f"d{dataset}", author=f"a{author}")
        fingerprint = Fingerprint(recipe=RECIPE, vector=vector.astype(np.float32), norm=1.0)
        yield Indexed(model=model, fingerprints=(fingerprint,), slots=(), bytes_read=0, seconds=0)


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def ask(family: LabelledModels, seed: int, n_hidden: int, unknown: float) -> Counter[str]:
    """Counts of one split: models of known and unknown datasets, suggestions, right ones."""
    rng = np.random.default_rng(seed)
    labelled = [id for id, label in zip(family.ids, family.labels, strict=True) if label]
    asked = set(rng.permutation(labelled)[: round(HIDDEN * len(labelled))].tolist())
    datasets = sorted({label for label in family.labels if label is not None})
    hidden = set(rng.permutation(datasets)[:n_hidden].tolist())
    labels = tuple(
        None if id in asked or label in hidden else label
        for id, label in zip(family.ids, family.labels, strict=True)
    )
    truth = {
        id: label
        for id, label, shown in zip(family.ids, family.labels, labels, strict=True)
        if label is not None and shown is None
    }
    listed, _ = suggest_datasets(replace(family, labels=labels), unknown)
    counts = Counter("known" if label in labels else "unknown" for label in truth.values())
    counts["active"] = int(any(not one.hint for one in listed))
    for one in listed:
        if one.model in truth:
            kind = "hint" if one.hint else "suggestion"
            counts.update([kind])
            counts[f"right {kind}"] += truth[one.model] == one.dataset
    return counts


def report(name: str, family: LabelledModels, seeds: int, unknown: float) -> None:
    n_datasets = len({label for label in family.labels if label is not None})
    for hidden in (0, n_datasets // 3):
        counts: Counter[str] = Counter()
        for seed in range(seeds):
            counts.update(ask(family, seed, hidden, unknown))
        known, right = counts["known"], counts["right suggestion"]
        cells = (
            name,
            f"{hidden} of {n_datasets}",
            share(counts["unknown"], known + counts["unknown"], 2),
            counts["suggestion"],
            share(right, counts["suggestion"], 3),
            share(right, known, 2),
            counts["hint"],
            share(counts["right hint"], counts["hint"], 2),
            share(right + counts["right hint"], known, 2),
            f"{counts['active']}/{seeds}",
        )
        print("|", " | ".join(map(str, cells)), "|", flush=True)


def share(part: int, whole: int, decimals: int) -> str:
    return f"{part / whole:.{decimals}f}" if whole else "–"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--db", type=Path, help="A catalog with labels.")
    parser.add_argument("--name", default="catalog")
    parser.add_argument("--only", nargs="*", help="Datasets whose labels count.")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--unknown", type=float, default=1.0)
    parser.add_argument(
        "--families", nargs="+", default=list(FAMILIES), choices=list(FAMILIES), metavar="FAMILY",
        help=f"Made families, without --db: {'; '.join(FAMILIES)}.",
    )  # fmt: skip
    options = parser.parse_args()
    heads = (
        "family", "hidden", "unknown", "suggested", "precision", "recall", "hints", "right",
        "recall with hints", "splits with any",
    )  # fmt: skip
    print("|", " | ".join(heads), "|")
    print("|" + " --- |" * len(heads))
    if options.db:
        with Catalog.open(options.db, read_only=True, create=False) as catalog:
            for family in map(labelled_models, family_views(catalog, None, None)):
                if options.only:
                    labels = [d if d in options.only else None for d in family.labels]
                    family = replace(family, labels=tuple(labels))
                report(options.name, family, options.seeds, options.unknown)
        return
    for name in options.families:
        with tempfile.TemporaryDirectory() as folder:
            with Catalog.open(Path(folder) / "c.duckdb") as catalog:
                for one in records(FAMILIES[name]):
                    catalog.record(one)
                family = labelled_models(*family_views(catalog, None, None))
            report(name, family, options.seeds, options.unknown)


if __name__ == "__main__":
    main()
