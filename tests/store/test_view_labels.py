"""Labels that a view has in memory say what DuckDB would."""

import shutil

import pytest
from outcomes import RECIPE, indexed

from deltadex.records import ModelRecord
from deltadex.store import Catalog
from deltadex.store.tables import models as models_module


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    path = tmp_path_factory.mktemp("labels") / "c.duckdb"
    with Catalog.open(path) as catalog:
        for number in range(9):
            labels = {
                "base": "base" if number % 2 else "other",
                "dataset": f"d{number}" if number % 3 else None,
                "author": "a" if number % 4 else None,
            }
            catalog.record(indexed(f"m{number}", seed=number, run="r", **labels))
        catalog.record(indexed("m1", seed=20, base="other", dataset="twin"))
    return path


@pytest.fixture
def catalog(recorded, tmp_path):
    with Catalog.open(shutil.copy(recorded, tmp_path / "c.duckdb")) as opened:
        yield opened


def _in_memory(view):
    """Whether the view answers without a question to DuckDB."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(view._session), "execute", _refuse)
        try:
            view.labels_at(list(range(len(view))))
        except AssertionError:
            return False
    return True


def _refuse(*_):
    raise AssertionError("DuckDB was asked")


def _agrees(catalog, view):
    rows = list(range(len(view)))[::-1]
    stored = models_module.select_labels(catalog._session, view.keys.tolist())
    return view.labels_at(rows) == {
        row: stored[int(view.keys[row])] for row in rows if int(view.keys[row]) in stored
    }


@pytest.mark.parametrize("base", ["base", "other"])
def test_it_answers_as_the_catalog_does(catalog, base):
    view = catalog.family(base, RECIPE)
    assert not _in_memory(view)
    labels = view.labels

    assert _in_memory(view)
    assert _agrees(catalog, view)
    assert [labels.at(row) for row in range(len(view))] == list(
        view.labels_at(list(range(len(view)))).values()
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.record(indexed("m10", seed=30, base="other", dataset="new")),
        lambda c: c.record(indexed("m2", seed=31, base="other", dataset="again")),
        lambda c: c.remove("m4"),
        lambda c: c.relabel("other", [ModelRecord(id="m6", base="other", dataset="moved")]),
    ],
    ids=["added", "replaced", "removed", "relabelled"],
)
def test_a_change_is_seen_at_once(catalog, change):
    before = catalog.family("other", RECIPE)
    _ = before.labels

    change(catalog)

    assert not _in_memory(before)
    assert _agrees(catalog, before)
    after = catalog.family("other", RECIPE)
    _ = after.labels
    assert _in_memory(after)
    assert _agrees(catalog, after)


def test_an_older_snapshot_does_not_take_the_members_of_a_later_moment(catalog):
    before = catalog.family("base", RECIPE).keys.tolist()
    with catalog.reader() as reader:

        def read():
            reader.stats()  # the snapshot begins
            catalog.record(indexed("m3", seed=40, base="base"))
            later = catalog.family("base", RECIPE, is_current=True).keys.tolist()
            view = reader.family("base", RECIPE, is_current=True)
            return later, view.keys.tolist(), len(view.vectors())

        later, keys, n_vectors = reader.look(read)

    assert later != before
    assert len(later) == len(before)
    assert keys == before
    assert n_vectors == len(before)
