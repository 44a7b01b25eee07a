import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
from catalogs import write
from outcomes import RECIPE, indexed, numbered
from processes import process, said

from deltadex.search import StoredQuery, find_similar
from deltadex.store import Catalog, SketchMatrix
from deltadex.store.derived import row_files
from deltadex.store.derived.row_files import SketchFiles
from deltadex.store.files import derived_path


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    path = tmp_path_factory.mktemp("recorded") / "c.duckdb"
    write(path, *numbered(12))
    return path


@pytest.fixture
def path(recorded, tmp_path):
    """A catalog of twelve models."""
    return shutil.copy(recorded, tmp_path / "c.duckdb")


@pytest.fixture
def kept(path):
    """It with its file of sketches, and what it answers."""
    with Catalog.open(path) as catalog:
        _view(catalog).write_sketch_file()
        return path, _everything(catalog)


def _view(catalog):
    return catalog.family("base", RECIPE)


def _file(catalog):
    path = derived_path(catalog.path, "base", RECIPE.id, ".keys")
    return catalog.access.derived(SketchFiles).files[path]


def _keys(catalog):
    return [row.key for row in catalog.models()]


def _as_stored(catalog, keys):
    """The sketches of models by way of the catalog's slots."""
    return [
        _rows(SketchMatrix.of_rows([{s.slot: s.sketch for s in catalog.slots(key)}], RECIPE))[0]
        for key in keys
    ]


def _rows(matrix):
    """Weights and codes of each model by slot, of the slots that it has."""
    return [
        {
            slot: (matrix.weights[row, column].tolist(), matrix.codes[row, column].tobytes())
            for column, slot in enumerate(matrix.slots)
            if matrix.weights[row, column].any()
        }
        for row in range(len(matrix))
    ]


def _read(catalog, keys):
    return _rows(_view(catalog).sketches(np.array(keys)))


def test_rows_products_and_answers_are_those_of_the_catalog_in_any_order(catalog):
    keys = np.random.default_rng(1).permutation(_keys(catalog))[:7]
    stored, before = _as_stored(catalog, keys.tolist()), _everything(catalog)
    cosines = (sketches := _view(catalog).sketches(keys)).cosines(sketches)
    assert _rows(sketches) == stored

    _view(catalog).write_sketch_file()

    of_file = _file(catalog).matrix(keys)
    assert _rows(of_file) == _read(catalog, keys) == stored
    assert np.array_equal(of_file.cosines(of_file), cosines)
    assert _everything(catalog) == before


def test_new_models_are_added_and_old_rows_stay(catalog):
    _view(catalog).write_sketch_file()
    size = derived_path(catalog.path, "base", RECIPE.id, ".sketches").stat().st_size
    catalog.record(indexed("later", seed=99))
    keys = _keys(catalog)

    assert _file(catalog).matrix(np.array(keys)) is None
    assert _read(catalog, keys) == _as_stored(catalog, keys)

    _view(catalog).write_sketch_file()

    assert _file(catalog).matrix(np.array(keys)) is not None
    grown = derived_path(catalog.path, "base", RECIPE.id, ".sketches").stat().st_size
    # two slots of eight numbers of two bits, a weight and a square
    assert grown == size + 2 * (2 + 2 * 4)
    assert _read(catalog, keys) == _as_stored(catalog, keys)


@pytest.mark.parametrize("harm", ["sketches", "vectors", "keys", "all"])
def test_a_file_cut_short_is_used_as_far_as_it_is_whole(kept, harm):
    path, _ = kept
    for ending in ("sketches", "vectors", "keys"):
        file = derived_path(path, "base", RECIPE.id, "." + ending)
        if harm in (ending, "all"):
            os.truncate(file, file.stat().st_size // 2 + 3)

    with Catalog.open(path) as catalog:
        _view(catalog).write_sketch_file()
        keys = _keys(catalog)

        assert _file(catalog).matrix(np.array(keys)) is not None
        assert _read(catalog, keys) == _as_stored(catalog, keys)


@pytest.mark.slow
def test_rows_of_models_that_are_gone_are_cleared_away(catalog, monkeypatch):
    monkeypatch.setattr(row_files, "AT_ONCE", 4)
    for seed in range(50, 74):
        _view(catalog).write_sketch_file()
        catalog.record(indexed(f"m{(seed - 50) % 12:02}", seed=seed))
    _view(catalog).write_sketch_file()
    keys = _keys(catalog)

    assert len(_file(catalog)._content[1].keys) <= 2 * 12 + 5
    assert _read(catalog, keys) == _as_stored(catalog, keys)


def test_one_process_writes_the_file_and_the_others_read_it(catalog):
    _view(catalog).write_sketch_file()
    code = """
    import numpy as np
    from deltadex.store.derived.row_files import SketchFiles
    from outcomes import RECIPE
    with Catalog.open(path) as catalog:
        view = catalog.family("base", RECIPE)
        view.write_sketch_file()
        files = catalog.access.derived(SketchFiles)
        matrix = view.sketches(np.array([2, 1]))
        (read,) = files.files.values()
        print(int(read.claim()), read.matrix(np.array([2, 1])) is not None, flush=True)
        print(matrix.codes.tobytes().hex(), flush=True)
    """
    with process(catalog.path, code) as other:
        assert said(other) == "0 True"
        codes = bytes.fromhex(said(other))
    rows = _as_stored(catalog, [2, 1])
    assert codes == b"".join(row[slot][1] for row in rows for slot in sorted(row))


# damage while a service reads it


@pytest.mark.parametrize("how", ["changed", "cut short"])
@pytest.mark.parametrize("ending", [".sketches", ".vectors", ".keys"])
def test_damaged_rows_are_never_answered_with_and_the_file_is_made_again(kept, caplog, ending, how):
    path, before = kept
    file = derived_path(path, "base", RECIPE.id, ending)
    whole = file.read_bytes()
    with Catalog.open(path) as catalog:
        if ending != ".keys":
            assert _everything(catalog) == before
        _harm(file) if how == "changed" else os.truncate(file, 0)
        if ending != ".keys":
            assert _everything(catalog) == before
    with Catalog.open(path) as catalog:
        assert _everything(catalog) == before
        _view(catalog).write_sketch_file()
        assert _everything(catalog) == before

    # without a line of its own, a file of keys is none
    assert "damaged" in caplog.text or (ending, how) == (".keys", "cut short")
    assert file.read_bytes() == whole


def _everything(catalog):
    keys = np.array(_keys(catalog))
    view = _view(catalog)
    found = [find_similar(catalog, StoredQuery(id), k=11).to_json() for id in ("m00", "m03")]
    return found, _rows(view.sketches(keys)), view.vectors_at(np.arange(12)).tolist()


def _harm(file):
    """Change bytes here and there, of keys those of checksums, in place: readers have the file
    open."""
    data = np.frombuffer(file.read_bytes(), np.uint8).copy()
    places = np.linspace(0, len(data) - 1, 5).astype(int)
    if file.suffix == ".keys":
        places = len(data) - 1 - 32 * np.array([0, 4, 11])
    data[places] ^= 0x40
    with file.open("r+b") as opened:
        opened.write(data.tobytes())


# rows and files in the places of others


def test_files_of_another_catalog_recipe_or_slots_are_not_read(kept):
    path, _ = kept
    wide = replace(RECIPE, rank=5)
    with Catalog.open(path) as catalog:
        for number in range(12):
            catalog.record(indexed(f"x{number}", seed=number + 50, base="b", recipe=wide))
        catalog.family("b", wide).write_sketch_file()
        before = _everything(catalog)
    stems = [derived_path(path, "base", RECIPE.id), derived_path(path, "b", wide.id)]
    for ending in (".sketches", ".vectors"):
        files = [stem.with_suffix(ending) for stem in stems]
        contents = [file.read_bytes() for file in files]
        for file, content in zip(files, reversed(contents), strict=True):
            file.write_bytes(content)

    with Catalog.open(path, read_only=True) as catalog:
        assert _everything(catalog) == before
        _view(catalog).write_sketch_file()
        slots = stems[0].with_suffix(".keys")
        slots.write_bytes(slots.read_bytes().replace(b'"q"', b'"k"'))
    with Catalog.open(path, read_only=True) as catalog:
        assert _everything(catalog) == before
