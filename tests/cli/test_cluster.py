import json

import numpy as np
import pytest
from catalogs import make_indexed, write
from running import run

from deltadex.records import Recipe

RECIPES = (Recipe(name="sketch", rank=2, dim=32),)


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    """Six datasets of fifteen models, a third of them without their label, and a second base."""
    path = tmp_path_factory.mktemp("clusters") / "c.duckdb"
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(6, 32))
    vectors = [centres[i % 6] + 0.6 * rng.normal(size=32) for i in range(90)]
    models = [
        make_indexed(id, v, dataset=f"d{i % 6}" if i // 6 % 3 else None, author=id, recipes=RECIPES)
        for i, v in enumerate(vectors)
        for id in [f"[red]m{i}"]
    ]
    others = [
        make_indexed(id, rng.normal(size=32), dataset="d", author=id, base="other", recipes=RECIPES)
        for id in ("o0", "o1")
    ]
    return write(path, *models, *others)


def test_cluster_prints_the_contract(db):
    result = run(db, "cluster", "--base", "base", "--json", "--unknown", "0")
    report = json.loads(result.stdout)

    assert result.exit_code == 0
    assert set(report) >= {"base", "recipe", "models", "ari", "nmi", "silhouette", "hints"}
    assert set(report["clusters"][0]) >= {"cluster", "name", "size", "datasets", "authors"}
    assert set(report["calibration"]) >= {"precision", "coverage", "threshold", "curve"}
    listed = [id for entry in report["clusters"] for id in entry["models"]] + report["noise"]
    assert sorted(listed) == sorted(f"[red]m{i}" for i in range(90))
    assert len(report["suggestions"]) + report["abstained"] == 30
    for entry in report["suggestions"]:
        assert entry["dataset"] == f"d{int(entry['model'].removeprefix('[red]m')) % 6}"
        assert entry["confidence"] >= report["calibration"]["target"] == 0.8


def test_people_see_names_and_what_suggestions_are_known_from(db):
    enough, few = (run(db, "cluster", "--base", base).output for base in ("base", "other"))

    assert "[red]m" in enough
    assert "models with a suggested dataset: " in enough
    assert "probability from 60 labelled models, 6 datasets" in enough
    assert "too few models for clusters of 3 (2)" in few
    assert "Every model has a dataset" in few
