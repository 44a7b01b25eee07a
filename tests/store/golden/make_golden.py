"""Writes catalog-VERSION.duckdb.gz and what it must answer for ever, catalog-VERSION.json.

    python tests/store/golden/make_golden.py

Run it once for a release whose schema or file format is new; files of earlier releases stay as
they are.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

import numpy as np

import deltadex
from deltadex.records import Fingerprint, Indexed, ModelRecord, Recipe, Refused, Slot, SlotStats
from deltadex.search import StoredQuery, evaluate, find_similar
from deltadex.store import BaseRecord, Catalog

HERE = Path(__file__).parent
BASE, OTHER_BASE = "example/base-tiny", "example/base-other"
SKETCH = Recipe(name="sketch", rank=2, dim=16, params=(("slot_blocks", "update:8"),))
MEAN = Recipe(name="mean-factors", rank=2, dim=6, seed=5, version=2)
SLOTS = (Slot("encoder", 0, "q"), Slot("encoder", 0, "up"), Slot("encoder", 1, "q"))


def make_golden() -> Path:
    """The catalog of this version, beside its answers."""
    name = f"catalog-{'.'.join(deltadex.__version__.split('.')[:2])}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.duckdb"
        with Catalog.open(path) as catalog:
            _fill(catalog)
        with Catalog.open(path, read_only=True) as catalog:
            answers = json.dumps(answered(catalog), indent=1, ensure_ascii=False)
        packed = gzip.compress(path.read_bytes(), mtime=0)
    (HERE / f"{name}.json").write_text(answers + "\n", encoding="utf-8")
    target = HERE / f"{name}.duckdb.gz"
    target.write_bytes(packed)
    return target


def answered(catalog: Catalog) -> dict[str, object]:
    """All that a catalog says of what it holds."""
    indexed = catalog.models(status="indexed")
    return {
        "models": [row.to_json() for row in catalog.models()],
        "failures": catalog.failures(),
        "bases": [_family(catalog, base) for base in catalog.bases()],
        "recipes": sorted(catalog.recipes()),
        "slots": {row.id: [_slot(s) for s in catalog.slots(row.key)] for row in indexed},
        "sketches": {
            row.id: [
                np.frombuffer(s.sketch, "<f2").tolist() for s in catalog.slots(row.key, SKETCH.id)
            ]
            for row in indexed
        },
        "vectors": {
            f"{base} {recipe.name}": dict(zip(ids, vectors.tolist(), strict=True))
            for base in catalog.bases()
            for recipe in (SKETCH, MEAN)
            for ids, vectors in [catalog.family(base, recipe).by_id()]
        },
        "studies": {row.id: catalog.studies(row.key).latest("rank") for row in indexed},
        "listing": catalog.listings(BASE).load(BASE),
        "nearest": [
            find_similar(catalog, StoredQuery(row.id, row.base), k=3, recipe=recipe.name).to_json()
            for row in indexed
            for recipe in (SKETCH, MEAN)
            if recipe.id in row.recipes
        ],
        "purity": evaluate(catalog, base=BASE, with_unlabelled=True)["micro"],
    }


def _fill(catalog: Catalog) -> None:
    catalog.save_base(
        BaseRecord(
            base=BASE,
            revision="abc123",
            architecture="TinyModel",
            shapes={"encoder.0.q": (4, 3)},
            layout=(("encoder", "q", 2),),
        )
    )
    for number, id in enumerate(("a/rot-0", "a/rot-1", "b/blau-0", "b/blau-ü 1", "c/unlabelled")):
        dataset = id.partition("/")[2].partition("-")[0] if "-" in id else None
        catalog.record(_indexed(id, number, dataset, recipes=(SKETCH, MEAN)))
    catalog.record(_indexed("d/elsewhere", 9, None, base=OTHER_BASE, recipes=(SKETCH,)))
    broken = ModelRecord(id="e/broken", base=BASE, source="hub", author="e", bytes_total=77)
    catalog.record(Refused(model=broken, code="truncated", reason="ends early", seconds=0.5))
    catalog.record(_indexed("f/gone", 8, "rot", recipes=(SKETCH,)))
    catalog.remove("f/gone")
    catalog.studies(catalog.model("a/rot-0").key).save("rank", {"rank": 2}, {"found": [1, 2.5]})
    catalog.listings(BASE).save(BASE, [{"id": "a/rot-0", "downloads": 3}])


def _indexed(
    id: str, seed: int, dataset: str | None, *, base: str = BASE, recipes: tuple[Recipe, ...]
) -> Indexed:
    rng = np.random.default_rng(seed)
    # models of a dataset share most of their numbers
    shared = np.random.default_rng(len(dataset) if dataset else 100 + seed)
    return Indexed(
        model=ModelRecord(
            id=id,
            base=base,
            revision=f"{seed:040x}",
            signature=f"sig-{seed}",
            content_sha256=f"{seed:064x}",
            kind="adapter" if seed % 2 else "full",
            method="lora" if seed % 2 else "full",
            source="hub",
            author=id.partition("/")[0],
            run=id,
            dataset=dataset,
            dataset_raw=dataset and dataset.title(),
            label_source="tags" if dataset else None,
            license="apache-2.0",
            downloads=10 * seed,
            created_at="2026-01-02T03:04:05Z",
            bytes_total=1000 + seed,
            notes=("a note",) if seed == 2 else (),
        ),
        fingerprints=tuple(
            Fingerprint(recipe=recipe, vector=_unit(shared, rng, recipe.dim), norm=1.5 + seed)
            for recipe in recipes
        ),
        slots=tuple(
            SlotStats(
                slot=slot,
                shape=(4, 3),
                fro_norm=1.0 + number,
                relative_norm=None if seed % 2 else 0.01,
                sigma=np.array([1.0, 0.5], dtype=np.float32),
                energy=0.75,
                stable_rank=1.25,
                noise_floor=1e-6,
                sketch=_unit(shared, rng, 8).astype("<f2").tobytes(),
            )
            for number, slot in enumerate(SLOTS)
        ),
        bytes_read=500,
        seconds=0.25,
    )


def _unit(shared: np.random.Generator, own: np.random.Generator, dim: int) -> np.ndarray:
    vector = shared.normal(size=dim) + 0.3 * own.normal(size=dim)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def _family(catalog: Catalog, base: str) -> dict[str, object]:
    family = catalog.base(base)
    if family == BaseRecord(base=base):
        return {"base": base, "known": None}
    slots = {"shapes": dict(family.shapes), "layout": family.layout}
    return {"base": base, "known": [family.revision, family.architecture, slots]}


def _slot(stats: SlotStats) -> list[object]:
    slot = stats.slot
    return [
        *(slot.stack, slot.layer, slot.role, *stats.shape, stats.fro_norm, stats.relative_norm),
        *(stats.sigma.tolist(), stats.energy, stats.stable_rank, stats.noise_floor),
    ]


if __name__ == "__main__":
    make_golden()
