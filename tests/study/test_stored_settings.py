"""Studies that earlier versions stored are found again: their settings, written out."""

import json

import pytest
from factories import make_family

import deltadex as dx
from deltadex.study.ablation.ablation import Ablation
from deltadex.study.lens.logit_lens import LogitLens
from deltadex.study.registry import STUDIES, record_of
from deltadex.study.texts import read_texts

TEXTS = [" ".join(str(5 + (i * 7 + j) % 50) for j in range(12)) for i in range(24)]

OF_FILES = {"rank", "spectrum"}
"""Studies that run no network."""

WRITTEN = {
    "rank": {"thetas": [0.5, 0.9], "subject": "weights", "version": 3},
    "spectrum": {"subjects": ["update", "weights"], "draws": 2, "seed": 0, "version": 1},
    "components": {
        "texts": "T",
        "max_tokens": 64,
        "version": 1,
        "against": "B",
        "special_tokens": True,
        "heads": False,
        "linear": False,
    },
    "geometry": {
        "texts": "T",
        "max_tokens": 64,
        "version": 2,
        "reference": None,
        "method": "power",
        "untrained": False,
        "scrambled": True,
        "keep_tokens": 500,
        "seed": 3,
    },
    "cka": {
        "texts": "T",
        "max_tokens": 64,
        "version": 1,
        "against": "B",
        "keep_tokens": 300,
        "seed": 0,
    },
    "layers": {
        "texts": "T",
        "max_tokens": 64,
        "version": 2,
        "transfer": "T",
        "untrained": False,
        "embedding": True,
        "punctuation": True,
        "context_texts": "T",
        "sweep_context": [6, 12],
        "sweep_texts": [],
        "also": ["sst2-0"],
        "keep_tokens": 100,
        "most_texts": 300,
        "seed": 0,
    },
}
GIVEN = {
    "rank": {"thetas": (0.9, 0.5, 0.9), "weights": True},
    "spectrum": {"draws": 2},
    "components": {"special_tokens": True, "against": "B"},
    "geometry": {"method": "power", "scrambled": True, "keep_tokens": 500, "seed": 3},
    "cka": {"keep_tokens": 300},
    "layers": {
        "transfer": "texts.txt",
        "untrained": False,
        "sweep_context": (12, 6),
        "also": ["sst2-0"],
        "keep_tokens": 100,
    },
}


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    folder = tmp_path_factory.mktemp("family")
    models = make_family(folder, pairs=("imdb", "sst2"))
    (folder / "texts.txt").write_text("\n".join(TEXTS))
    with dx.open(folder / "c.duckdb") as db:
        db.index(folder / "base", models)
        yield folder, db


@pytest.mark.parametrize("study", WRITTEN)
def test_a_study_is_stored_under_the_settings_of_earlier_versions(family, study):
    folder, db = family
    texts, base = folder / "texts.txt", str(folder / "base")
    digests = {"T": read_texts(texts).digest, "B": base}
    given = {"transfer": texts, "against": base}
    asked = {key: given.get(key, value) for key, value in GIVEN[study].items()}
    if study not in OF_FILES:
        asked |= {"texts": texts, "max_tokens": 64, "batch_size": 5}

    getattr(db.studies, study)("imdb-0", **asked)

    (stored,) = db.sql(f"SELECT settings FROM study_results WHERE study = '{study}'")
    expected = {
        key: digests.get(value, value) if isinstance(value, str) else value
        for key, value in WRITTEN[study].items()
    }
    assert json.loads(stored["settings"]) == expected


def test_settings_of_studies_that_tiny_models_lack():
    ablation = Ablation("m", texts="t", again=True, device="cuda", base="b", runs=5)
    lens = LogitLens("m", texts="t", against="gpt2", batch_size=2)

    assert ablation.settings(texts="T", tasks=["masked"]) == {
        "texts": "T",
        "max_tokens": 128,
        "version": 1,
        "senses": None,
        "tags": None,
        "tasks": ["masked"],
        "runs": 5,
        "most_items": 3000,
        "seed": 0,
    }
    assert lens.settings(texts="T") == {
        "texts": "T",
        "max_tokens": 128,
        "version": 1,
        "against": "gpt2",
    }


def test_the_names_of_stored_studies_are_those_of_earlier_versions():
    assert {record_of(study).name for study in STUDIES} == {
        *("rank", "spectrum", "components", "geometry", "layers", "profile", "ablation", "cka"),
        *("logit-lens", ""),  # nothing is stored of `correlate`
    }


def test_a_study_answers_to_the_name_that_it_had_on_the_database(family):
    _, db = family

    assert db.rank("imdb-0").to_json() == db.studies.rank("imdb-0").to_json()
    with pytest.raises(AttributeError, match="no attribute 'ranks'"):
        db.ranks("imdb-0")
