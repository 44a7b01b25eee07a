import os
import textwrap
import threading

import faiss
import numpy as np
import pytest
from outcomes import RECIPE, indexed
from processes import process, said

from deltadex.errors import StoreFull
from deltadex.records import Slot
from deltadex.search import StoredQuery, find_similar
from deltadex.store import Catalog
from deltadex.store.derived import sketch_file as sketch_file_module
from deltadex.store.derived.sketch_file import SketchFile, SketchFiles
from deltadex.store.files import derived_path


@pytest.fixture
def catalog(tmp_path):
    with Catalog.open(tmp_path / "c.duckdb") as opened:
        for number in range(12):
            opened.record(indexed(f"m{number:02}", seed=number))
        yield opened


def _view(catalog):
    return catalog.family("base", RECIPE)


def _file(catalog):
    return catalog.access.derived(SketchFiles).files.get(("base", RECIPE.id))


def _keys(catalog):
    return [row.key for row in catalog.models()]


def _as_stored(catalog, keys):
    """The sketches of models by way of the catalog's slots."""
    return [
        {s.slot: s.sketch.astype(np.float64) for s in catalog.slots(key, RECIPE.id)} for key in keys
    ]


def _same(one, other):
    return [set(model) for model in one] == [set(model) for model in other] and all(
        np.array_equal(a[slot], b[slot]) for a, b in zip(one, other, strict=True) for slot in a
    )


def _read(catalog, keys):
    matrix = _view(catalog).sketches(np.array(keys))
    rows = [matrix.row(number) for number in range(len(keys))]
    sketches = [{s: row[columns] for s, columns in matrix.columns.of_slot.items()} for row in rows]
    return [{slot: some for slot, some in model.items() if some.any()} for model in sketches]


def test_rows_are_those_of_the_catalog_in_any_order(catalog):
    keys = _keys(catalog)[::-2]
    stored = _as_stored(catalog, keys)

    assert _same(_read(catalog, keys), stored)
    _view(catalog).write_sketch_file()
    assert _file(catalog).matrix(np.array(keys)) is not None
    assert _same(_read(catalog, keys), stored)


def test_answers_are_the_same_with_and_without_the_file(catalog):
    def answers():
        return [find_similar(catalog, StoredQuery(f"m{n:02}"), k=5).to_json() for n in range(12)]

    before = answers()
    _view(catalog).write_sketch_file()

    assert answers() == before


def test_products_and_lengths_are_those_of_numpy(catalog):
    _view(catalog).write_sketch_file()
    keys = np.random.default_rng(1).permutation(_keys(catalog))[:7].tolist()
    matrix = _view(catalog).sketches(np.array(keys))
    rows = np.stack([matrix.row(number) for number in range(len(matrix))])
    vectors = np.random.default_rng(0).normal(size=(3, matrix.columns.width)).astype(np.float32)

    assert np.allclose(matrix.dots(vectors), rows @ vectors.T, atol=1e-4)
    assert np.allclose(matrix.lengths, np.linalg.norm(rows, axis=1))


def test_one_vector_comes_from_the_file_as_from_the_catalog(catalog):
    keys = _keys(catalog)
    before = [_view(catalog).vectors(np.array([key])) for key in keys]
    _view(catalog).write_sketch_file()
    path = derived_path(catalog.path, "base", RECIPE.id, ".vectors")

    assert path.stat().st_size == len(keys) * RECIPE.dim * 4
    for key, vectors in zip(keys, before, strict=True):
        assert np.array_equal(_file(catalog).vector(key), vectors[0])
        assert np.array_equal(_view(catalog).vectors(np.array([key])), vectors)
    assert _file(catalog).vector(10_000) is None


def test_the_file_is_an_index_that_faiss_reads(catalog):
    _view(catalog).write_sketch_file()
    index = faiss.read_index(str(derived_path(catalog.path, "base", RECIPE.id, ".sketches")))
    matrix = _view(catalog).sketches(np.array(_keys(catalog)))

    assert index.ntotal == 12
    for row in range(12):
        assert np.array_equal(index.reconstruct(row), matrix.row(row).astype(np.float32))


def test_new_models_are_added_and_old_rows_stay(catalog):
    _view(catalog).write_sketch_file()
    size = derived_path(catalog.path, "base", RECIPE.id, ".sketches").stat().st_size
    catalog.record(indexed("later", seed=99))
    keys = _keys(catalog)

    assert _file(catalog).matrix(np.array(keys)) is None
    assert _same(_read(catalog, keys), _as_stored(catalog, keys))

    _view(catalog).write_sketch_file()

    assert _file(catalog).matrix(np.array(keys)) is not None
    grown = derived_path(catalog.path, "base", RECIPE.id, ".sketches").stat().st_size
    assert grown == size + 2 * 8  # two slots of four float16
    assert _same(_read(catalog, keys), _as_stored(catalog, keys))


def test_a_slot_that_no_model_had_makes_the_file_anew(catalog, monkeypatch):
    _view(catalog).write_sketch_file()
    wider = indexed("wider", seed=5)
    more = [*wider.slots, *(_moved(slot) for slot in wider.slots)]
    catalog.record(_with_slots(wider, more))
    keys = _keys(catalog)

    _view(catalog).write_sketch_file()

    assert _file(catalog).matrix(np.array(keys)) is not None
    assert _same(_read(catalog, keys), _as_stored(catalog, keys))


def _moved(slot):
    from dataclasses import replace

    return replace(slot, slot=Slot("decoder", slot.slot.layer, "k"))


def _with_slots(outcome, slots):
    from dataclasses import replace

    return replace(outcome, slots=tuple(slots))


def test_another_opening_goes_on_with_the_file(tmp_path):
    path = tmp_path / "c.duckdb"
    for number in range(3):
        with Catalog.open(path) as catalog:
            catalog.record(indexed(f"m{number}", seed=number))
            _view(catalog).write_sketch_file()
            keys = _keys(catalog)
            assert _same(_read(catalog, keys), _as_stored(catalog, keys))
            assert len(_file(catalog)._rows.keys) == number + 1


@pytest.mark.parametrize("harm", ["rows", "vectors", "keys", "slots", "all"])
def test_a_file_cut_short_is_used_as_far_as_it_is_whole(tmp_path, harm):
    path = tmp_path / "c.duckdb"
    with Catalog.open(path) as catalog:
        for number in range(8):
            catalog.record(indexed(f"m{number}", seed=number))
        _view(catalog).write_sketch_file()
    for ending in ("rows", "vectors", "keys", "slots"):
        file = derived_path(path, "base", RECIPE.id, "." + ending.replace("rows", "sketches"))
        if harm in (ending, "all"):
            os.truncate(file, file.stat().st_size // 2 + 3)

    with Catalog.open(path) as catalog:
        _view(catalog).write_sketch_file()
        keys = _keys(catalog)

        assert _file(catalog).matrix(np.array(keys)) is not None
        assert _same(_read(catalog, keys), _as_stored(catalog, keys))


def test_rows_of_models_that_are_gone_are_cleared_away(catalog, monkeypatch):
    monkeypatch.setattr(sketch_file_module, "AT_ONCE", 4)
    for number in range(12):
        _view(catalog).write_sketch_file()
        catalog.record(indexed(f"m{number:02}", seed=number + 50))
    for number in range(12):
        _view(catalog).write_sketch_file()
        catalog.record(indexed(f"m{number:02}", seed=number + 70))
    _view(catalog).write_sketch_file()
    keys = _keys(catalog)

    assert len(_file(catalog)._rows.keys) <= 2 * 12 + 5
    assert _same(_read(catalog, keys), _as_stored(catalog, keys))


def test_one_process_writes_the_file_and_the_others_read_it(catalog):
    _view(catalog).write_sketch_file()
    code = """
    from deltadex.store.derived.sketch_file import SketchFiles
    from outcomes import RECIPE
    with Catalog.open(path) as catalog:
        view = catalog.family("base", RECIPE)
        view.write_sketch_file()
        files = catalog.access.derived(SketchFiles)
        matrix = view.sketches([2, 1])
        (read,) = files.read.values()
        print(len(files.files), read.matrix(np.array([2, 1])) is not None, flush=True)
        values = np.concatenate([matrix.row(0), matrix.row(1)])
        print(*(round(float(v), 3) for v in values), flush=True)
    """
    with process(catalog.path, "import numpy as np\n" + textwrap.dedent(code)) as other:
        assert said(other) == "0 True"
        values = [float(word) for word in said(other).split()]
    rows = [np.concatenate([m[s] for s in sorted(m)]) for m in _as_stored(catalog, [2, 1])]
    assert np.allclose(values, np.concatenate(rows), atol=1e-3)


def test_a_full_disk_leaves_the_catalog_to_be_read(catalog, monkeypatch):
    monkeypatch.setattr(sketch_file_module, "SPARE_BYTES", 1 << 60)

    with pytest.raises(StoreFull, match="GiB"):
        _view(catalog).write_sketch_file()
    keys = _keys(catalog)

    assert _same(_read(catalog, keys), _as_stored(catalog, keys))


def test_threads_read_while_the_file_grows(catalog):
    _view(catalog).write_sketch_file()
    keys = _keys(catalog)
    stored = _as_stored(catalog, keys)
    wrong, ended = [], threading.Event()

    def read():
        with catalog.reader() as reader:
            while not ended.is_set():
                if not _same(_read(reader, keys), stored):
                    wrong.append(True)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(20):
        catalog.record(indexed(f"new{number}", seed=number))
        _view(catalog).write_sketch_file()
    ended.set()
    for thread in threads:
        thread.join()

    assert not wrong


def test_a_folder_that_refuses_the_file_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "open", _refuse)

    assert SketchFile.open(tmp_path / "x.sketches") is None


def _refuse(*args, **kwargs):
    raise PermissionError(13, "refused")
