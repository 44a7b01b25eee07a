import json
import re

import numpy as np
import pytest
from catalogs import AXES, DIM, fill, make_data

from deltadex.questions.map.map import Map, map_family, placed_columns
from deltadex.questions.map.nearest import data_place
from deltadex.search import TrainedModel, find_data

KEPT = (
    make_data("acme-chats", AXES[0]),
    make_data("elsewhere", np.random.default_rng(9).normal(size=DIM), examples=64),
)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    path = tmp_path_factory.mktemp("places") / "c.duckdb"
    with fill(path, kept=KEPT, strangers=26, apart=10.0) as filled:
        yield filled


def near(model, z, verdict="perhaps"):
    return TrainedModel(
        rank=1, model=model, cosine=0.1, score=0.5, z=z, z_error=None, fdr=0.01,
        probability=0.99, verdict=verdict, dataset=None, author=None, run=None, base="base",
    )  # fmt: skip


def test_a_data_set_stands_among_the_models_near_it(catalog):
    document = placed_columns(catalog, Map(layout="pca"))[0]

    chats, elsewhere = document["data"]
    assert (chats["name"], chats["examples"], chats["loss"]) == ("acme-chats", 512, "causal")
    assert chats["verdict"] != "no model stands out"
    assert elsewhere["verdict"] == "no model stands out"
    assert {one["model"][:4] for one in chats["nearest"]} == {"near"}
    places = dict(
        zip(document["models"], zip(document["x"], document["y"], strict=True), strict=True)
    )
    way = {model: np.hypot(chats["x"] - x, chats["y"] - y) for model, (x, y) in places.items()}
    nearest = sorted(way, key=way.__getitem__)[:6]
    assert {model[:4] for model in nearest} == {"near"}
    assert json.loads(json.dumps(document)) == document


def test_the_place_is_the_mean_of_those_that_stand_out_weighted_by_z():
    places = {"a": (0.0, 0.0), "b": (4.0, 8.0), "c": (100.0, 100.0)}
    models = [near("a", 9.0), near("b", 3.0), near("c", 2.0, "no model stands out")]

    assert data_place(models, places) == pytest.approx((1.0, 2.0))


def test_a_page_lists_the_data_nearest_to_each_model(catalog, tmp_path):
    written = map_family(catalog, Map(tmp_path / "map.html", layout="pca"))

    text = (tmp_path / "map.html").read_text("utf-8")
    page = json.loads(re.search(r'id="data">(.*?)</script>', text).group(1))
    assert [one["name"] for one in written["data"]] == ["acme-chats", "elsewhere"]
    for model, listed in zip(page["map"]["models"], page["nearest_data"], strict=True):
        expected = find_data(catalog, model)["data"]
        assert [row[0] for row in listed] == [one["data"] for one in expected]
        for (_, z, fdr, verdict), one in zip(listed, expected, strict=True):
            assert (z, fdr) == pytest.approx((one["z"], one["fdr"]), abs=1e-3)
            assert page["verdicts"][verdict] == one["verdict"]
