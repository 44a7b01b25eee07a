import json
import re

import numpy as np
import pytest

from deltadex.errors import EmptyCatalog, RequestError
from deltadex.records import Fingerprint, Indexed, ModelRecord, Recipe
from deltadex.store import Catalog
from deltadex.web import map_family

RECIPE = Recipe(name="sketch", rank=2, dim=6)


def make_catalog(path, *, bases=("base",), per_base=12):
    catalog = Catalog.open(path)
    for base in bases:
        rng = np.random.default_rng(0)
        for i in range(per_base):
            vector = np.eye(6, dtype=np.float32)[i % 3] * 3 + rng.normal(size=6) * 0.3
            vector = (vector / np.linalg.norm(vector)).astype(np.float32)
            record = ModelRecord(
                id=f"m{i}",
                base=base,
                dataset=f"d{i % 3}",
                kind="full" if i % 2 else "adapter",
            )
            made = Fingerprint(recipe=RECIPE, vector=vector, norm=1.0)
            catalog.record(
                Indexed(model=record, fingerprints=(made,), slots=(), bytes_read=0, seconds=0.0)
            )
    return catalog


def drawn_models(path):
    text = path.read_text("utf-8")
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)
    return {model["model"]: model for model in json.loads(data.group(1))["models"]}


@pytest.mark.parametrize("layout", ["pca", "tsne"])
def test_every_model_is_drawn_with_its_nearest(tmp_path, layout):
    with make_catalog(tmp_path / "c.duckdb") as catalog:
        count = map_family(catalog, tmp_path / "map.html", layout=layout)

    models = drawn_models(tmp_path / "map.html")
    assert count == len(models) == 12
    assert models["m3"]["kind"] == "full"
    nearest = [name for name, _ in models["m3"]["neighbours"]]
    assert len(nearest) == 6
    assert set(nearest[:3]) == {"m0", "m6", "m9"}


def test_a_map_shows_one_family(tmp_path):
    with make_catalog(tmp_path / "c.duckdb", bases=("one", "two"), per_base=2) as catalog:
        with pytest.raises(RequestError, match="add --base, one of: one, two"):
            map_family(catalog, tmp_path / "map.html")

        assert map_family(catalog, tmp_path / "map.html", base="two") == 2


def test_an_empty_catalog_has_no_map(tmp_path):
    with (
        make_catalog(tmp_path / "c.duckdb", bases=()) as catalog,
        pytest.raises(EmptyCatalog),
    ):
        map_family(catalog, tmp_path / "map.html")
