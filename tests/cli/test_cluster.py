import json

import numpy as np
import pytest
from catalogs import make_catalog, make_indexed
from click.testing import CliRunner

from deltadex.cli import main
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
    make_catalog(path, *models, *others).close()
    return path


def run(db, *arguments):
    return CliRunner().invoke(main, ["cluster", *arguments, "--db", str(db)])


def test_cluster_prints_the_contract(db):
    result = run(db, "--base", "base", "--json", "--unknown", "0")
    report = json.loads(result.stdout)

    assert result.exit_code == 0
    assert {
        "base", "recipe", "models", "clusters", "noise", "ari", "nmi", "silhouette",
        "suggestions", "hints", "abstained", "calibration",
    } <= set(report)  # fmt: skip
    assert set(report["clusters"][0]) == {
        "cluster", "name", "size", "datasets", "authors", "words", "terms", "models",
    }  # fmt: skip
    assert set(report["silhouette"]) == {"labels", "clusters"}
    assert set(report["calibration"]) >= {
        "precision", "coverage", "threshold", "target", "models", "curve",
    }  # fmt: skip
    assert set(report["calibration"]["curve"][0]) >= {"confidence", "precision", "coverage"}
    listed = [id for entry in report["clusters"] for id in entry["models"]] + report["noise"]
    assert sorted(listed) == sorted(f"[red]m{i}" for i in range(90))
    assert len(report["suggestions"]) + report["abstained"] == 30
    for entry in report["suggestions"]:
        assert entry["dataset"] == f"d{int(entry['model'].removeprefix('[red]m')) % 6}"
        assert set(entry) == {
            "model", "dataset", "confidence", "fdr", "verdict", "hint", "source",
            "words",
        }  # fmt: skip
        assert entry["confidence"] >= report["calibration"]["target"] == 0.8


def test_people_see_names_and_what_suggestions_are_known_from(db):
    output = run(db, "--base", "base").output

    assert "[red]m" in output
    assert "models with a suggested dataset: " in output
    assert "probability from 60 labelled models, 6 datasets" in output


def test_two_models_are_too_few_and_all_are_labelled_and_that_is_said(db):
    result = run(db, "--base", "other")

    assert result.exit_code == 0
    assert "2 models are too few for clusters of 3" in result.output
    assert "Every model has a dataset" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "add --base, one of: base, other"),
        (("--base", "nobody"), "there are: base, other"),
        (("--base", "base", "--min-size", "1"), "x>=2"),
        (("--base", "base", "--unknown", "1.1"), "0<=x<=1"),
        (("--base", "base", "--recipe", "none"), "recipes here: sketch"),
    ],
)
def test_what_cannot_be_clustered_is_refused_in_a_line(db, arguments, message):
    result = run(db, *arguments)

    assert result.exit_code == 2
    assert message in result.output
