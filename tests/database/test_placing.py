import json
import re

import numpy as np
import pytest
from catalogs import make_catalog, make_indexed

from deltadex.questions.map.map import Map, map_family
from deltadex.records import Recipe
from deltadex.search import StoredQuery, find_similar

RECIPE = Recipe(name="sketch", rank=2, dim=6)


def make_family(path):
    models, rng = [], np.random.default_rng(0)
    for i in range(12):
        vector = np.eye(6)[i % 3] * 3 + rng.normal(size=6) * 0.3
        known = {"dataset": f"d{i % 3}", "kind": "full" if i % 2 else "adapter"}
        models.append(make_indexed(f"m{i}", vector, recipes=(RECIPE,), **known))
    return make_catalog(path, *models)


def drawn_models(path):
    """What the page holds of each model: its kind, and the evidence of its nearest by id."""
    text = path.read_text("utf-8")
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)
    page = json.loads(data.group(1))
    names, kinds = page["map"]["models"], page["map"]["kinds"]
    return {
        name: {
            "kind": kinds[page["map"]["kind"][i]],
            "neighbours": {
                names[place]: (*numbers, page["verdicts"][verdict])
                for place, *numbers, verdict in page["neighbours"][i]
            },
        }
        for i, name in enumerate(names)
    }


@pytest.mark.parametrize("layout", ["auto", "pca", pytest.param("umap", marks=pytest.mark.slow)])
def test_every_model_is_drawn_with_its_nearest(tmp_path, layout):
    with make_family(tmp_path / "c.duckdb") as catalog:
        drawn = map_family(catalog, Map(tmp_path / "map.html", layout=layout))
        neighbours = find_similar(catalog, StoredQuery("m3"), k=6).neighbours

    models = drawn_models(tmp_path / "map.html")
    assert drawn["models"] == len(models) == 12
    assert drawn["layout"] == ("tsne" if layout == "auto" else layout)
    assert models["m3"]["kind"] == "full"
    listed = models["m3"]["neighbours"]
    assert list(listed) == [n.model for n in neighbours]
    assert set(list(listed)[:3]) == {"m0", "m6", "m9"}
    for n in neighbours:
        *numbers, verdict = listed[n.model]
        assert numbers == pytest.approx([n.z, n.probability, n.fdr, n.cosine], abs=1e-4)
        assert verdict == n.verdict
