"""Precision and coverage of suggested datasets, on labelled models that were not calibrated on.

    python benchmarks/suggestions.py [--db CATALOG] [--seeds 40] [--families plain "12 datasets"]

Half of the authors (or runs) keep their labels, and so does none of the models of some hidden
datasets; the other half is suggested a dataset. Calibration sees only the labels that were kept.
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
from deltadex.search.clusters import suggest_datasets
from deltadex.store import Catalog

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
    units = [
        author or run or id
        for id, author, run in zip(family.ids, family.authors, family.runs, strict=True)
    ]
    names = sorted(set(units))
    kept = set(rng.permutation(names)[: len(names) // 2].tolist())
    datasets = sorted({label for label in family.labels if label is not None})
    hidden = set(rng.permutation(datasets)[:n_hidden].tolist())
    labels = tuple(
        label if unit in kept and label not in hidden else None
        for unit, label in zip(units, family.labels, strict=True)
    )
    truth = {
        id: label
        for id, label, shown in zip(family.ids, family.labels, labels, strict=True)
        if label is not None and shown is None
    }
    suggestions, calibration = suggest_datasets(replace(family, labels=labels), unknown)
    counts = Counter(active=int(calibration.threshold is not None))
    counts.update("known" if label in labels else "unknown" for label in truth.values())
    for one in suggestions:
        if one.model in truth:
            where = "known" if truth[one.model] in labels else "unknown"
            counts.update([f"suggested {where}"])
            counts["right"] += truth[one.model] == one.dataset
    return counts


def report(name: str, family: LabelledModels, seeds: int) -> None:
    n_datasets = len({label for label in family.labels if label is not None})
    for hidden, unknown in ((0, 0.0), (0, 0.5), (n_datasets // 3, 0.5)):
        counts: Counter[str] = Counter()
        for seed in range(seeds):
            counts.update(ask(family, seed, hidden, unknown))
        n = counts["suggested known"] + counts["suggested unknown"]
        met = share(counts["unknown"], counts["known"] + counts["unknown"], 2)
        precision = share(counts["right"], n, 3)
        coverage = share(counts["suggested known"], counts["known"], 2)
        print(
            f"| {name} | {hidden} of {n_datasets} | {met} | {unknown} | {n} | {precision} | "
            f"{coverage} | {counts['active']}/{seeds} |",
            flush=True,
        )


def share(part: int, whole: int, decimals: int) -> str:
    return f"{part / whole:.{decimals}f}" if whole else "–"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--db", type=Path, help="A catalog with labels.")
    parser.add_argument("--name", default="catalog")
    parser.add_argument("--only", nargs="*", help="Datasets whose labels count.")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument(
        "--families", nargs="+", default=list(FAMILIES), choices=list(FAMILIES), metavar="FAMILY",
        help=f"Made families, without --db: {'; '.join(FAMILIES)}.",
    )  # fmt: skip
    options = parser.parse_args()
    heads = "family", "hidden", "unknown, met", "unknown, assumed", "suggested", "precision"
    print("|", " | ".join((*heads, "coverage", "splits with any")), "|")
    print("|", " --- |" * 8)
    if options.db:
        with Catalog.open(options.db, read_only=True, create=False) as catalog:
            for family in map(labelled_models, family_views(catalog, None, None)):
                if options.only:
                    labels = [d if d in options.only else None for d in family.labels]
                    family = replace(family, labels=tuple(labels))
                report(options.name, family, options.seeds)
        return
    for name in options.families:
        with tempfile.TemporaryDirectory() as folder:
            with Catalog.open(Path(folder) / "c.duckdb") as catalog:
                for one in records(FAMILIES[name]):
                    catalog.record(one)
                family = labelled_models(*family_views(catalog, None, None))
            report(name, family, options.seeds)


if __name__ == "__main__":
    main()
