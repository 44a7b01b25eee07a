"""Traits in files: rows that are read are those that were written, and answers stay the same."""

import numpy as np
import pytest
from catalogs import write
from outcomes import RECIPE, indexed, numbered
from patients import flip
from processes import process, said

from deltadex.search import StoredQuery, family_scores, find_similar, neighbours
from deltadex.search.family_scores import FamilyScores
from deltadex.store import Catalog, TraitFile
from deltadex.store.files import derived_path

KEYS = np.array([3, 9, 4])
SUMS = np.array([30, 2**63 + 90, 40], np.uint64)
ROWS = np.arange(15.0).reshape(3, 5)


def _file(tmp_path, depends_on=b"cohort", n_numbers=5):
    return TraitFile(tmp_path / "f.traits", depends_on, n_numbers)


@pytest.mark.parametrize("other", [{"depends_on": b"others"}, {"n_numbers": 4}])
def test_files_of_another_cohort_are_made_anew(tmp_path, other):
    _file(tmp_path).append(KEYS, SUMS, ROWS)
    file = _file(tmp_path, **other)
    assert not file.read(KEYS, SUMS)[0].any()
    n_numbers = other.get("n_numbers", 5)

    file.append(KEYS[:1], SUMS[:1], ROWS[:1, :n_numbers])

    assert _file(tmp_path, **other).read(KEYS, SUMS)[0].tolist() == [True, False, False]
    assert file.read(KEYS, SUMS)[0].tolist() == [True, False, False]
    assert not _file(tmp_path).read(KEYS, SUMS)[0].any()


@pytest.mark.parametrize("ending", [".traits", ".traitkeys"])
@pytest.mark.parametrize("cut", [1, 50])
def test_a_file_cut_short_gives_whole_rows_and_is_continued(tmp_path, ending, cut):
    _file(tmp_path).append(KEYS, SUMS, ROWS)
    path = tmp_path / f"f{ending}"
    path.write_bytes(path.read_bytes()[:-cut])
    file = _file(tmp_path)

    found, rows = file.read(KEYS, SUMS)
    np.testing.assert_array_equal(rows, ROWS[found])
    assert not found[2]
    file.append(KEYS[~found], SUMS[~found], ROWS[~found])

    found, rows = _file(tmp_path).read(KEYS, SUMS)
    np.testing.assert_array_equal(rows, ROWS[found])
    assert found[2]


def test_a_file_cut_short_under_its_readers_is_continued(tmp_path):
    file = _file(tmp_path)
    for _ in range(2):
        file.append(KEYS, SUMS, ROWS)
        np.testing.assert_array_equal(file.read(KEYS, SUMS)[1], ROWS)
        (tmp_path / "f.traits").write_bytes(b"")
        assert not file.read(KEYS, SUMS)[0].any()


def test_changed_numbers_and_rows_exchanged_with_entries_or_checksums_are_noticed(tmp_path):
    def exchanged(path, size, start=0, part=slice(None)):
        data = np.frombuffer(path.read_bytes()[start:], np.uint8).reshape(3, size).copy()
        data[[0, 2], part] = data[[2, 0], part]
        path.write_bytes(path.read_bytes()[:start] + data.tobytes())

    numbers, entries = tmp_path / "f.traits", tmp_path / "f.traitkeys"
    for part in (slice(None), slice(8, 24), slice(16, 24)):  # all, without the key, checksum only
        _file(tmp_path).append(KEYS, SUMS, ROWS)
        exchanged(numbers, 40)
        exchanged(entries, 24, entries.read_bytes().index(b"\n") + 1, part)

        assert _file(tmp_path).read(KEYS, SUMS)[0].tolist() == [False, True, False]
        numbers.unlink()
        entries.unlink()

    _file(tmp_path).append(KEYS, SUMS, ROWS)
    flip(numbers, 5 * 8 + 3)
    assert _file(tmp_path).read(KEYS, SUMS)[0].tolist() == [True, False, True]


@pytest.fixture
def large(path, monkeypatch):
    """A family of 24 models that counts as large, with a cohort of 6."""
    monkeypatch.setattr(family_scores, "COHORT", 6)
    monkeypatch.setattr(neighbours, "COMPARED_WHOLE", 4)
    monkeypatch.setattr(neighbours, "CANDIDATES", 12)
    monkeypatch.setattr(family_scores, "TRAIT_FILE_MIN_MODELS", 8)
    write(path, *numbered(24))
    return path


def _answers(path, *, computes=True):
    with pytest.MonkeyPatch.context() as patch, Catalog.open(path) as catalog:
        if not computes:
            view = catalog.family("base", RECIPE)
            FamilyScores.of(view)
            patch.setattr(FamilyScores, "prepare", _prepare_queries_alone)
        return [
            find_similar(catalog, StoredQuery(f"m{number:02}", "base"), k=5).to_json()
            for number in range(0, 24, 4)
        ]


_prepare = FamilyScores.prepare


def _prepare_queries_alone(self, features, kinds, rows):
    assert len(rows) == 1, "traits of candidates were computed again"
    return _prepare(self, features, kinds, rows)


def _endings(path):
    stem = derived_path(path, "base", RECIPE.id)
    return [stem.with_suffix(ending) for ending in (".traits", ".traitkeys")]


def test_answers_are_the_same_with_and_without_the_file_also_of_a_changed_cohort(
    large, monkeypatch
):
    without = _answers(large)
    assert all(path.exists() for path in _endings(large))

    assert _answers(large, computes=False) == without

    for path in _endings(large):
        path.unlink()
    assert _answers(large) == without

    with Catalog.open(large) as catalog:
        for number in range(24, 30):
            catalog.record(indexed(f"m{number:02}", seed=number))
        catalog.remove("m05")
        catalog.record(indexed("m07", seed=90))

    kept = _answers(large)

    monkeypatch.setattr(family_scores, "TRAIT_FILE_MIN_MODELS", 10_000)
    assert _answers(large) == kept


def test_processes_that_write_at_once_leave_a_file_that_reads(tmp_path):
    code = """
    import numpy as np
    from deltadex.store import TraitFile
    file = TraitFile(path.parent / "f.traits", b"cohort", 5)
    for number in range(200):
        keys = np.array([number + 1000 * seed])
        file.append(keys, keys.astype(np.uint64), np.full((1, 5), float(keys[0])))
    print("done", flush=True)
    """
    path = tmp_path / "c.duckdb"
    with (
        process(path, code.replace("seed", "1")) as one,
        process(path, code.replace("seed", "2")) as two,
    ):
        assert said(one) == said(two) == "done"

    keys = np.array([*range(1000, 1200), *range(2000, 2200)])
    found, rows = _file(tmp_path).read(keys, keys.astype(np.uint64))
    assert found.sum() >= 100
    np.testing.assert_array_equal(rows, np.repeat(keys[found][:, None], 5, axis=1))
