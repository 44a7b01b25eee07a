import numpy as np
import pytest
from catalogs import AXES, fill, make_data

from deltadex.search import (
    compare_kept,
    find_data,
    kept_data_sets,
)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    kept = (make_data("acme", AXES[0], groups=4), make_data("other", AXES[1], groups=2))
    with fill(tmp_path_factory.mktemp("kept") / "c.duckdb", kept=kept) as filled:
        yield filled


def view_of(catalog):
    return catalog.family("base", catalog.find_recipe(None, "base"))


def test_every_pair_is_what_find_data_says(catalog):
    view = view_of(catalog)

    compared = compare_kept(view, kept_data_sets(catalog, view), np.arange(len(view)))

    assert [data.name for data in compared.sets] == ["acme", "other"]
    for row in (0, 5, 30):
        expected = find_data(catalog, view.ids[row])["data"]
        listed = compared.neighbours(row)
        assert [near.data for near in listed] == [near["data"] for near in expected]
        assert [near.z for near in listed] == pytest.approx([near["z"] for near in expected])
        assert [near.fdr for near in listed] == pytest.approx([near["fdr"] for near in expected])
