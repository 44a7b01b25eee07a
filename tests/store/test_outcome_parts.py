"""Outcomes as Parquet parts, and parts in a catalog."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outcomes import OTHER, RECIPE, indexed
from pyarrow import parquet

from deltadex.errors import StoreDamaged, StoreError
from deltadex.records import Recipe, Refused
from deltadex.store import (
    Catalog,
    Part,
    PartFolder,
    commit_part,
    content_sha256,
    merge_catalogs,
)

EARLY, LATE = "2020-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"


def refused(id, code="truncated", **record):
    return Refused(model=indexed(id, **record).model, code=code, reason="short", bytes_read=3)


def part(*outcomes, lease="0" * 16, base="base", written_at=LATE, recipes=(RECIPE,), **more):
    return Part(
        lease=lease,
        base=base,
        recipes=tuple(recipes),
        outcomes=outcomes,
        written_at=written_at,
        **more,
    )


def commit(catalog, *parts):
    known = catalog.known("base")
    return [len(commit_part(catalog, one, known)) for one in parts]


@pytest.fixture
def catalog(tmp_path):
    with Catalog.open(tmp_path / "c.duckdb") as opened:
        yield opened


@pytest.fixture
def folder(tmp_path):
    return PartFolder(str(tmp_path / "parts"))


def test_a_part_is_read_as_it_was_written(folder):
    plain = indexed("plain", seed=2, recipe=OTHER, sketched=False)
    models = (indexed("org/a", seed=1, notes=("odd",), author="ü"), plain, refused("c"))
    layout = (("encoder", "q", 4),)
    written = part(
        *models, recipes=(RECIPE, OTHER), revision="abc", architecture="bert", layout=layout
    )

    read = folder.read(folder.write(written))

    assert read == written
    for before, after in zip(models[:2], read.outcomes[:2], strict=True):
        for ours, theirs in zip(before.fingerprints, after.fingerprints, strict=True):
            assert np.array_equal(ours.vector, theirs.vector)
        for ours, theirs in zip(before.slots, after.slots, strict=True):
            assert (ours.sketch, ours.sigma.tolist()) == (theirs.sketch, theirs.sigma.tolist())
    assert np.array_equal(read.outcomes[0].linear.pooled, models[0].linear.pooled)
    assert read.outcomes[0].linear.layers.keys() == models[0].linear.layers.keys()
    assert read.outcomes[1].linear is None


def test_a_catalog_of_parts_says_the_same_as_one_that_recorded_each_model(
    catalog, tmp_path, folder
):
    models = [indexed(f"m{n}", seed=n, content_sha256=str(n % 3)) for n in range(9)]
    models += [refused("bad"), indexed("plain", seed=3, recipe=OTHER, sketched=False)]
    with Catalog.open(tmp_path / "one.duckdb") as one_by_one:
        for outcome in models:
            one_by_one.record(outcome)
        one_by_one.settle_copies("base")
        expected = content_sha256(one_by_one)
    for start in range(0, len(models), 4):
        folder.write(part(*models[start : start + 4], lease=str(start), recipes=(RECIPE, OTHER)))

    merge_catalogs(catalog, [folder.url])

    assert content_sha256(catalog) == expected
    assert merge_catalogs(catalog, [folder.url]).to_json()["unchanged"] == len(models)
    assert content_sha256(catalog) == expected


@settings(max_examples=4, deadline=None)
@given(order=st.permutations(range(5)), again=st.lists(st.integers(0, 4), max_size=4))
def test_neither_order_nor_repetition_of_parts_changes_a_catalog(tmp_path_factory, order, again):
    parts = [
        part(*(indexed(f"m{2 * n + i}", seed=2 * n + i) for i in range(2)), lease=str(n))
        for n in range(5)
    ]
    hashes = set()
    for sequence in (range(5), (*order, *again)):
        with Catalog.open(tmp_path_factory.mktemp("c") / "c.duckdb") as catalog:
            counts = commit(catalog, *(parts[number] for number in sequence))
            hashes.add(content_sha256(catalog))

            assert sum(counts) == 10

    assert len(hashes) == 1


def test_an_older_reading_does_not_replace_a_later_one(catalog):
    catalog.record(indexed("m", seed=1, signature="new"))

    assert commit(catalog, part(indexed("m", seed=2, signature="old"), written_at=EARLY)) == [0]
    assert catalog.known("base")["m"].signature == "new"


def test_a_later_reading_of_changed_files_replaces_the_earlier_one(catalog):
    catalog.record(indexed("m", seed=1, signature="old"))

    assert commit(catalog, part(indexed("m", seed=2, signature="new"))) == [1]
    assert catalog.known("base")["m"].signature == "new"


@pytest.mark.parametrize("code", ["hub-unreachable", "gated", "id-taken"])
def test_a_fault_that_may_pass_does_not_replace_a_fingerprint(catalog, code):
    catalog.record(indexed("m", signature="old"))

    assert commit(catalog, part(refused("m", code, signature="new"))) == [0]
    assert catalog.known("base")["m"].status == "indexed"


def test_a_part_adds_a_recipe_to_a_model_that_is_there(catalog):
    catalog.record(indexed("m", seed=1))

    assert commit(catalog, part(indexed("m", recipe=OTHER, sketched=False), recipes=(OTHER,))) == [
        1
    ]
    assert set(catalog.known("base")["m"].recipes) == {RECIPE.id, OTHER.id}


def test_merging_parts_keeps_what_the_target_has_of_other_weights(catalog, folder):
    catalog.record(indexed("m", seed=1, signature="ours", content_sha256="1"))
    folder.write(part(indexed("m", seed=2, signature="theirs", content_sha256="2")))

    merged = merge_catalogs(catalog, [folder.url]).to_json()

    assert (merged["added"], merged["differing"]) == (0, 1)
    assert merged["conflicts"][0]["about"] == "weights"
    assert catalog.known("base")["m"].signature == "ours"


def test_every_changed_byte_of_a_part_is_noticed(folder):
    path = folder.write(part(indexed("m", seed=1), indexed("n", seed=2)))
    original = folder.read(path)
    place = f"{folder.url}/{path}"
    with open(place, "rb") as file:
        content = file.read()
    rng = np.random.default_rng(0)
    n_noticed = 0
    for position in rng.integers(0, len(content), size=150):
        changed = bytearray(content)
        changed[position] ^= 1 << int(rng.integers(8))
        with open(place, "wb") as file:
            file.write(changed)
        try:
            # what a byte that no reader uses holds does not matter
            assert folder.read(path) == original
        except StoreDamaged:
            n_noticed += 1

    assert n_noticed > 100


@pytest.mark.parametrize("kept", [0, 1, 100, -1])
def test_a_part_that_was_cut_off_is_left_out_of_a_merge(catalog, folder, kept):
    path = folder.write(part(indexed("a", seed=1), lease="a"))
    folder.write(part(indexed("b", seed=2), lease="b"))
    with open(f"{folder.url}/{path}", "rb+") as file:
        file.truncate(kept if kept >= 0 else len(file.read()) - 1)

    merged = merge_catalogs(catalog, [folder.url]).to_json()

    assert (merged["added"], len(merged["damaged"])) == (1, 1)
    assert [row.id for row in catalog.models()] == ["b"]
    assert list(folder.known("base")) == ["b"]


def test_a_parquet_file_of_something_else_is_no_part(folder, tmp_path):
    path = folder.write(part(indexed("m")))
    parquet.write_table(
        parquet.read_table(f"{folder.url}/{path}").replace_schema_metadata(), tmp_path / "x"
    )
    (tmp_path / "x").rename(f"{folder.url}/{path}")

    with pytest.raises(StoreDamaged, match="not a part that `deltadex index --parts` wrote"):
        folder.read(path)


def test_a_part_whose_vector_is_not_of_its_recipe_is_refused(catalog):
    wide = replace(RECIPE, dim=16)
    wrong = indexed("m")
    wrong = replace(wrong, fingerprints=(replace(wrong.fingerprints[0], recipe=wide),))

    with pytest.raises(StoreError, match="dimensions"):
        commit(catalog, part(wrong, recipes=(wide,)))

    assert catalog.models() == []


def test_a_base_with_any_name_has_a_folder_of_its_own(folder):
    names = ["org/base", "/a/very/long/path" * 20, "/a/very/long/path" * 20 + "x", "..", "a b"]
    for name in names:
        folder.write(part(indexed("m", base=name), base=name))

    assert [len(folder.paths(name)) for name in names] == [1] * len(names)
    assert len(folder.paths()) == len(names)


def test_parts_at_any_address_of_fsspec_are_written_and_read(catalog):
    folder = PartFolder("memory://bucket/parts")
    path = folder.write(part(indexed("m", seed=1)))

    assert folder.paths("base") == [path]
    assert merge_catalogs(catalog, [folder.url]).to_json()["added"] == 1
    folder.remove_family("base")
    assert folder.paths() == []


def test_an_address_that_fsspec_cannot_open_is_one_line():
    with pytest.raises(StoreError, match="nonsense://x"):
        PartFolder("nonsense://x")


def test_removed_parts_leave_no_empty_folders(folder, tmp_path):
    folder.write(part(indexed("m")))
    folder.write(part(indexed("m", base="b"), base="b"))
    recipe = next((tmp_path / "parts" / "base=base").iterdir())
    (recipe / ".part-1.parquet.4000000.0.partial").write_bytes(b"of a writer that was killed")

    folder.remove_family("base")
    assert not recipe.parent.exists()
    assert len(folder.paths()) == 1
    folder.remove_family("b")
    assert not (tmp_path / "parts").exists()


def test_recipes_of_a_part_are_what_their_ids_promise(folder):
    recipe = Recipe(name="sketch", rank=8, dim=4, params=(("rows", "2%"), ("b", "x")))
    model = indexed("m", recipe=recipe)

    assert folder.read(folder.write(part(model, recipes=(recipe,)))).recipes == (recipe,)
