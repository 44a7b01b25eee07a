"""Labels in memory say what DuckDB would."""

import pytest
from outcomes import indexed
from processes import process, said

from deltadex.records import ModelRecord
from deltadex.store import Catalog, directory
from deltadex.store.reading import select_labels, select_stored


@pytest.fixture
def catalog(tmp_path):
    with Catalog.open(tmp_path / "c.duckdb") as opened:
        for number in range(9):
            opened.record(
                indexed(
                    f"m{number}",
                    seed=number,
                    base="base" if number % 2 else "other",
                    dataset=f"d{number}" if number % 3 else None,
                    author="a" if number % 4 else None,
                    run="r",
                )
            )
        opened.record(indexed("m1", seed=20, base="other", dataset="twin"))
        yield opened


def _from_memory(catalog):
    return directory._kept(catalog.access, catalog._connection) is not None


def _agrees(catalog):
    ids = [*(f"m{number}" for number in range(12)), ""]
    keys = {base: [row.key for row in catalog.models(base=base)] for base in ("base", "other")}
    return all(
        catalog.labels_of([*of_base[::-1], -5, 10_000])
        == select_labels(catalog._connection, of_base)
        for of_base in keys.values()
    ) and all(
        sorted(catalog.stored_models(id, base), key=repr)
        == sorted(select_stored(catalog._connection, id, base), key=repr)
        for id in ids
        for base in (None, "base", "other", "none")
    )


def test_it_answers_as_the_catalog_does(catalog):
    catalog.keep_labels_at_hand()

    assert _from_memory(catalog)
    assert _agrees(catalog)


def test_readers_share_it(catalog):
    catalog.keep_labels_at_hand()

    with catalog.reader() as reader:
        assert _from_memory(reader)
        assert _agrees(reader)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.record(indexed("m10", seed=30, dataset="new")),
        lambda c: c.record(indexed("m2", seed=31, base="other", dataset="again")),
        lambda c: c.remove("m3"),
        lambda c: c.relabel("base", [ModelRecord(id="m5", base="base", dataset="moved")]),
    ],
    ids=["added", "replaced", "removed", "relabelled"],
)
def test_a_change_is_seen_at_once(catalog, change):
    catalog.keep_labels_at_hand()

    change(catalog)

    assert not _from_memory(catalog)
    assert _agrees(catalog)
    catalog.keep_labels_at_hand()
    assert _from_memory(catalog)
    assert _agrees(catalog)


def test_a_change_by_another_process_is_seen_at_once(catalog):
    catalog.keep_labels_at_hand()
    code = """
    with Catalog.open(path) as catalog:
        catalog.record(indexed("m11", seed=40, dataset="from elsewhere"))
    print("done", flush=True)
    """

    with process(catalog.path, code) as other:
        assert said(other) == "done"

    assert [stored.dataset for stored in catalog.stored_models("m11")] == ["from elsewhere"]


def test_an_empty_catalog_has_none(tmp_path):
    with Catalog.open(tmp_path / "empty.duckdb") as catalog:
        catalog.keep_labels_at_hand()

        assert catalog.labels_of([1, 2]) == {}
        assert catalog.stored_models("m1") == []
