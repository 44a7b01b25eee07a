"""Labels that a view has in memory say what DuckDB would; of one moment."""

import pytest
from outcomes import RECIPE, indexed

from deltadex.records import ModelRecord
from deltadex.store import Catalog
from deltadex.store.tables import models as models_module


@pytest.fixture
def catalog(path):
    with Catalog.open(path) as opened:
        for number in range(9):
            labels = {
                "base": "base" if number % 2 else "other",
                "dataset": f"d{number}" if number % 3 else None,
                "author": "a" if number % 4 else None,
            }
            opened.record(indexed(f"m{number}", seed=number, run="r", **labels))
        opened.record(indexed("m1", seed=20, base="other", dataset="twin"))
        yield opened


def _agrees(catalog, view):
    rows = list(range(len(view)))[::-1]
    stored = models_module.select_labels(catalog, view.keys.tolist())
    return view.labels_at(rows) == {
        row: stored[int(view.keys[row])] for row in rows if int(view.keys[row]) in stored
    }


def test_it_answers_as_the_catalog_does_also_after_every_change(catalog):
    for base in ("base", "other"):
        view = catalog.family(base, RECIPE)
        labels = view.labels
        assert _agrees(catalog, view)
        of_rows = view.labels_at(list(range(len(view))))
        assert [labels.at(row) for row in range(len(view))] == list(of_rows.values())

    moved = ModelRecord(id="m6", base="other", dataset="moved")
    for change in (
        lambda: catalog.record(indexed("m10", seed=30, base="other", dataset="new")),
        lambda: catalog.record(indexed("m2", seed=31, base="other", dataset="again")),
        lambda: catalog.remove("m4"),
        lambda: catalog.relabel("other", [moved]),
    ):
        before = catalog.family("other", RECIPE)
        _ = before.labels
        change()
        assert _agrees(catalog, before)
        assert _agrees(catalog, catalog.family("other", RECIPE))


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
