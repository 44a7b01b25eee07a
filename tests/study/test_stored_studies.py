"""Stored studies: found again by their settings, read back, without load."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
from catalogs import make_catalog, make_indexed
from factories import make_bert, make_family
from running import TEXTS

import deltadex as dx
from deltadex.results import JsonRecord
from deltadex.study.registry import STUDIES, record_of
from deltadex.study.study import find_subject
from deltadex.study.texts import read_texts


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    folder = tmp_path_factory.mktemp("family")
    models = make_family(folder, pairs=("imdb",), runs=1)
    (folder / "texts.txt").write_text("\n".join(TEXTS))
    with dx.open(folder / "c.duckdb") as db:
        db.index(folder / "base", models)
        yield folder, db


def test_a_study_is_stored_under_the_settings_that_decide_its_numbers(family):
    folder, db = family
    texts = folder / "texts.txt"
    asked = {"scrambled": True, "keep_tokens": 500, "seed": 3, "max_tokens": 64}

    db.studies.rank("imdb-0", thetas=(0.9, 0.5, 0.9), weights=True)
    db.studies.geometry("imdb-0", texts=texts, batch_size=5, **asked)

    rows = db.sql("SELECT study, settings FROM study_results ORDER BY study")
    given = {"texts": read_texts(texts).digest, "reference": None, "method": "gram"}
    assert [(row["study"], json.loads(row["settings"])) for row in rows] == [
        ("geometry", asked | given | {"untrained": False, "version": 2}),
        ("rank", {"thetas": [0.5, 0.9], "subject": "weights", "version": 4}),
    ]


def test_studies_have_the_names_of_earlier_versions_in_the_store_and_on_the_database(family):
    _, db = family

    assert {record_of(study).name for study in STUDIES} == {
        *("rank", "spectrum", "components", "geometry", "layers", "ablation", "cka"),
        *("logit-lens", ""),  # nothing is stored of `correlate`
    }
    assert db.studies.rank("imdb-0").to_json() == db.studies.rank("imdb-0").to_json()
    with pytest.raises(AttributeError, match="no attribute 'ranks'"):
        db.ranks("imdb-0")


@dataclass(frozen=True, slots=True)
class Leaf(JsonRecord):
    value: float
    name: str | None


def test_arrays_become_lists_and_nan_becomes_null():
    leaf = Leaf(np.array([[1.0, np.nan]]), None)

    assert leaf.to_json() == {"value": [[1.0, None]], "name": None}


@pytest.mark.parametrize(
    ("kind", "named", "notes"),
    [
        ("adapter", "klue/roberta-base", 1),
        ("adapter", "/models/me/roberta", 0),
        ("full", "klue/roberta-base", 0),
    ],
)
def test_a_study_says_the_base_that_an_adapters_config_names(tmp_path, kind, named, notes):
    model = make_indexed("m", [1, 0, 0, 0], base="roberta-base", kind=kind, base_raw=named)
    with make_catalog(tmp_path / "c.duckdb", model) as catalog:
        said = find_subject(catalog, "m", None).base_notes["base_notes"]

    assert len(said) == notes
    assert all("its config names klue/roberta-base" in line for line in said)


def test_a_base_is_no_fine_tune_of_another_family_of_the_catalog(tmp_path):
    make_bert(tmp_path / "base", seed=0)
    base = str(tmp_path / "base")
    models = [make_indexed("m", [1, 0, 0, 0], base=name) for name in (base, "roberta-base")]
    with make_catalog(tmp_path / "c.duckdb", *models) as catalog:
        assert find_subject(catalog, base, None).base == base
