import shutil

import duckdb
import pytest
from catalogs import write
from merges import counts, merge
from outcomes import RECIPE, data_set, indexed

from deltadex.errors import RequestError
from deltadex.store import Catalog


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    path = tmp_path_factory.mktemp("two") / "a.duckdb"
    with Catalog.open(path) as catalog:
        catalog.record(indexed("x", seed=1))
        catalog.data_sets.save(data_set("reviews", seed=1))
        catalog.data_sets.save(data_set("chats", seed=2))
    return path


@pytest.fixture
def kept(two, a):
    """A catalog that keeps two data sets."""
    return shutil.copy(two, a)


def assert_equal(one, other):
    assert one.fingerprint.vector.tolist() == other.fingerprint.vector.tolist()
    assert one.fingerprint == other.fingerprint
    names = ("name", "base", "loss", "sha256", "examples", "settings", "counts", "sketches")
    assert [getattr(one, name) for name in names] == [getattr(other, name) for name in names]


def test_a_data_set_comes_back_as_it_was_kept_and_a_second_of_its_name_replaces_it(kept):
    with Catalog.open(kept) as catalog:
        assert_equal(catalog.data_sets.load("reviews"), data_set("reviews", seed=1))
        assert [s.name for s in catalog.data_sets.all("base", RECIPE.id)] == ["chats", "reviews"]
        assert catalog.data_sets.all("base", "other") == []
        catalog.data_sets.save(data_set("reviews", seed=3))

        assert_equal(catalog.data_sets.load("reviews"), data_set("reviews", seed=3))
        assert_equal(catalog.data_sets.load("chats"), data_set("chats", seed=2))
        assert len(catalog.data_sets.listed()) == 2


def test_a_name_in_two_families_needs_its_base(kept):
    second = data_set("reviews", seed=3, base="second")
    with Catalog.open(kept) as catalog:
        catalog.data_sets.save(second)
        with pytest.raises(RequestError, match="add --base: base, second"):
            catalog.data_sets.load("reviews")
        assert_equal(catalog.data_sets.load("reviews", "second"), second)


def test_a_merge_copies_data_sets_and_reports_another_of_the_same_name(kept, b):
    write(b, indexed("y", seed=2))
    with Catalog.open(b) as catalog:
        catalog.data_sets.save(data_set("reviews", seed=1))
        catalog.data_sets.save(data_set("chats", seed=9, sha256="9" * 64))

    document = merge(kept, b)

    assert (document["data_sets"], counts(document)) == (0, [1, 0, 0, 0])
    [conflict] = document["conflicts"]
    assert (conflict["about"], conflict["model"]) == ("data set", "chats")
    assert conflict["other"]["sha256"] == "9" * 64
    with Catalog.open(kept) as catalog:
        assert_equal(catalog.data_sets.load("chats"), data_set("chats", seed=2))


def test_no_column_holds_text_of_the_examples(kept):
    """The tables have these columns and no others: a new one is a decision about privacy."""
    with duckdb.connect(str(kept)) as connection:
        columns = {
            table: {row[0] for row in connection.execute(f"DESCRIBE {table}").fetchall()}
            for table in ("data_sets", "data_sketches")
        }
    assert columns == {
        "data_sets": {
            "base", "name", "recipe", "loss", "sha256", "examples", "settings", "counts",
            "vector", "norm", "made_at",
        },
        "data_sketches": {"base", "name", "part", "stack", "layer", "role", "sketch"},
    }  # fmt: skip
