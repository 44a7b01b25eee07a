"""Exported rankings: against brute force, and as the documented script reads them."""

import re
from pathlib import Path

import duckdb
import numpy as np
import pytest
from catalogs import PLAIN, SKETCH, make_catalog, make_indexed, unit

import deltadex as dx
from deltadex.errors import RequestError
from deltadex.search import evaluation

PAGE = Path(dx.__file__).parent / "docs" / "eval.md"
DATASETS = ("a", "b", "c", "d", "e", "f", None)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Two families of models whose one sketch is their vector; the last is labelled alone. Some
    vectors are equal, so that scores tie."""
    path, rng = tmp_path_factory.mktemp("rankings") / "c.duckdb", np.random.default_rng(0)
    vectors = {
        (base, f"{base}-{number:02}"): unit(rng.integers(-2, 3, size=4) + 0.1 * np.eye(4)[0])
        for base, n in (("one", 37), ("two", 11))
        for number in range(n)
    }
    outcomes = [
        make_indexed(
            id,
            vector,
            base=base,
            recipes=(SKETCH, PLAIN),
            dataset="alone" if place == len(vectors) - 1 else DATASETS[place % len(DATASETS)],
            author=f"author{place % 5}" if place % 3 else None,
            run=f"run{place // 2}",
        )
        for place, ((base, id), vector) in enumerate(vectors.items())
    ]
    make_catalog(path, *outcomes).close()
    return path


@pytest.fixture
def db(written, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with dx.open(written, read_only=True) as opened:
        yield opened


@pytest.mark.skipif(not PAGE.exists(), reason="not run from a checkout")
@pytest.mark.parametrize(
    ("options", "sample"),
    [
        ({}, True),
        ({"exclude": "author"}, False),
        ({"exclude": "run", "with_unlabelled": True}, True),
    ],
    ids=["plain", "author", "run"],
)
def test_the_documented_script_computes_the_evaluation(db, options, sample, monkeypatch):
    if sample:
        monkeypatch.setattr(evaluation, "EVERY_QUERY", 20)
        monkeypatch.setattr(evaluation, "SAMPLE", 13)
    ways = ("raw", "pooled")

    db.export_scores("scores.parquet", ways=ways, **options)
    (script,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    with duckdb.connect() as connection:
        answer = connection.sql(script).to_arrow_table().to_pylist()
    computed = {(row["base"], row["way"]): row for row in answer}

    rows = list(db.evaluate(compare=ways, **options))
    assert {(row["base"], row["way"]) for row in rows} == computed.keys()
    assert len(computed) == 4
    for row in rows:
        again = computed[row["base"], row["way"]]
        assert again["recipe"] == row["recipe_id"]
        assert again["queries"] == row["queries"]
        for measure in ("micro", "macro", "chance", "nn1"):
            assert again[measure] == round(row[measure], 12), measure
    assert any(row["sampled_queries"] for row in rows) == sample


def test_a_file_of_another_ending_is_refused(db, tmp_path):
    with pytest.raises(RequestError, match=r"end its name in \.parquet"):
        db.export_scores("scores.csv")
    assert list(tmp_path.iterdir()) == []
