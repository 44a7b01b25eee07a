import json

import numpy as np
import pytest
from catalogs import make_indexed, write
from running import document, run

from deltadex.records import Recipe

RECIPES = (Recipe(name="sketch", rank=2, dim=32),)


def models():
    """Six datasets of fifteen models, a third of them without their label."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(6, 32))
    vectors = [centres[i % 6] + 0.6 * rng.normal(size=32) for i in range(90)]
    return [
        make_indexed(id, v, dataset=f"d{i % 6}" if i // 6 % 3 else None, author=id, recipes=RECIPES)
        for i, v in enumerate(vectors)
        for id in [f"[red]m{i}"]
    ]


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    """Those, and a second base."""
    path, rng = tmp_path_factory.mktemp("clusters") / "c.duckdb", np.random.default_rng(1)
    others = [
        make_indexed(id, rng.normal(size=32), dataset="d", author=id, base="other", recipes=RECIPES)
        for id in ("o0", "o1")
    ]
    return write(path, *models(), *others)


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


def test_the_order_in_which_models_came_changes_no_answer(tmp_path):
    orders = models(), models()[::-1]
    a, b = (write(tmp_path / f"{n}.duckdb", *each) for n, each in enumerate(orders))

    assert document(a, "cluster") == document(b, "cluster")
    ours, theirs = (document(db, "map", "-o", tmp_path / "map.html") for db in (a, b))
    assert ours["models"] == theirs["models"]
    assert {**document(a, "eval"), "cost": 0} == {**document(b, "eval"), "cost": 0}
