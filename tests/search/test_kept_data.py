import numpy as np
import pytest
from catalogs import AXES, fill, make_data

from deltadex.search import (
    compare_kept,
    find_data,
    find_trained_on,
    find_trained_on_each,
    kept_data_sets,
    nearest_to_kept,
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


def test_the_nearest_models_are_those_of_find_trained_on(catalog):
    view = view_of(catalog)

    for data, models in nearest_to_kept(view, kept_data_sets(catalog, view), 3):
        expected = find_trained_on(catalog, data, k=3).models
        assert [(m.model, m.z) for m in models] == [(m.model, m.z) for m in expected]


def test_each_of_several_data_sets_is_answered_as_alone(catalog):
    sets = catalog.data_sets.all("base", view_of(catalog).recipe.id)

    table = find_trained_on_each(catalog, sets, k=4)

    assert list(table.models) == sorted(table.models)
    assert (table.names, table.z.shape) == ([data.name for data in sets], (2, 40))
    for data, answer, z in zip(sets, table.answers, table.z, strict=True):
        expected = find_trained_on(catalog, data, k=4).models
        assert answer.models == expected
        for near in expected:
            assert z[table.models.index(near.model)] == pytest.approx(near.z)


def test_filters_choose_the_models_of_a_table(catalog):
    from deltadex.store import Filters

    sets = catalog.data_sets.all("base", view_of(catalog).recipe.id)

    table = find_trained_on_each(catalog, sets, k=4, filters=Filters(where="id LIKE 'near%'"))

    assert set(table.models) == {f"near-{n}" for n in range(6)}
    assert table.answers[0].compared == 6


def test_a_family_without_kept_data_compares_none(tmp_path):
    with fill(tmp_path / "c.duckdb", strangers=8) as catalog:
        view = view_of(catalog)
        assert kept_data_sets(catalog, view) == []
        assert compare_kept(view, [], np.arange(3)) is None
