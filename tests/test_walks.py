"""The walks of the documentation, which are the arithmetic without streams, kinds and files, beside
what the package stores and answers."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from factories import finetune, make_bert, save_models

import deltadex as dx

DOCS = Path(dx.__file__).parent / "docs"


@pytest.fixture(scope="module")
def walks():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS))
        yield [importlib.import_module(name) for name in ("walk_tensor", "walk_query")]
    for name in ("walk_tensor", "walk_query"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """Twelve fine-tunes in four pairs; wide enough that no number of a sketch is an exact 0."""
    folder = tmp_path_factory.mktemp("walked")
    base = make_bert(folder / "base", seed=0, width=128)
    for pair in range(4):
        shared = finetune(base, seed=pair)
        for run in range(3):
            tuned = finetune(shared, seed=100 * pair + run + 9, scale=0.04)
            save_models(folder, {f"{pair}-{run}": tuned})
    with dx.open(folder / "c.duckdb") as db:
        db.index(folder / "base", folder / "models", footprints=False)
        yield folder, db


def weights(folder, id):
    return folder / "base" / "model.safetensors", folder / "models" / id / "model.safetensors"


def test_the_walk_of_a_tensor_ends_at_the_stored_fingerprint(family, walks):
    folder, db = family
    (base,) = db._catalog.bases()
    ids, vectors = db._catalog.family(base, db._catalog.find_recipe(None)).by_id()

    assert len(ids) == 12
    for id, vector in zip(ids, vectors, strict=True):
        walked = walks[0].fingerprint(*weights(folder, id))
        assert np.abs(walked - vector).max() < 1e-5


def test_the_walk_of_a_query_ends_at_the_z_of_find_similar(family, walks):
    folder, db = family
    ids = sorted(path.name for path in (folder / "models").iterdir())
    z = walks[1].z_scores([walks[1].codes(*weights(folder, id)) for id in ids])

    for id in ids:
        rows = db.find_similar(id, k=20).to_json()["neighbours"]
        found = {row["model"]: row["z"] for row in rows}
        walked = {other: z[ids.index(id), place] for place, other in enumerate(ids) if other != id}
        # a number at a threshold of the two bits may fall on either side
        assert found == pytest.approx(walked, abs=0.02, rel=0.01)
