"""Attached indexes beside a catalog: one answer, each neighbour with its source."""

import io
import logging
import shutil

import numpy as np
import pytest
from factories import make_family
from published_families import BASE, RECIPE, family, fill, indexed, publish
from pyarrow import parquet
from running import document, run

import deltadex as dx
from deltadex.errors import BadFilter, BadIndex, RequestError, UnknownBase
from deltadex.records import Recipe
from deltadex.store import BaseRecord, Catalog
from deltadex.store.published import publication


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    with Catalog.open(folder / "theirs.duckdb") as catalog:
        for place, (id, vector) in enumerate(family(20).items()):
            labels = {"dataset": f"d{place % 3}", "author": id.split("/")[0], "downloads": place}
            catalog.record(indexed(id, vector, kind=("full", "adapter")[place % 2], **labels))
    publish(folder / "theirs.duckdb", folder / "index")
    return folder


@pytest.fixture
def index(published, tmp_path):
    """An index of twenty models, beside the catalog that it is of."""
    return shutil.copytree(published, tmp_path, dirs_exist_ok=True) / "index"


@pytest.fixture
def empty(tmp_path, index):
    """A catalog without models that the index is attached to."""
    with dx.open(tmp_path / "mine.duckdb") as db:
        db.attach(index, name="theirs")
        yield db


@pytest.fixture
def own(tmp_path, empty):
    """Puts models into the catalog that the index is attached to, and opens it."""

    def filled(models):
        empty.close()
        return dx.open(fill(tmp_path / "mine.duckdb", models))

    return filled


def near(db):
    return db.find_similar("author-1/model-7", k=99)


def test_an_empty_catalog_answers_from_the_index_as_its_publisher_does(tmp_path, empty):
    """The oracle: the publisher's own catalog, which has vectors alone."""
    with dx.open(tmp_path / "theirs.duckdb") as theirs:
        wanted = theirs.find_similar("author-1/model-7", k=19)
    found = empty.find_similar("author-1/model-7", k=19)

    # other commands keep to the catalog
    assert (len(empty.models()), empty.bases, len(empty.stats())) == (0, [], 0)
    assert len(empty.sql("SELECT * FROM attachments")) == 1
    assert {hit["source"] for hit in found} == {"theirs"}
    # of 16 numbers with eight bits each
    for key, tolerance in (("z", 0.05), ("cosine", 5e-3), ("fdr", 0.05)):
        theirs = {hit["model"]: hit[key] for hit in wanted}
        assert {hit["model"]: hit[key] for hit in found} == pytest.approx(theirs, abs=tolerance)
    document = found.to_json()
    assert (document["compared"], document["attached"]) == (19, ["theirs"])
    assert document["query"]["dataset"] == "d1"


def test_an_attached_copy_of_a_query_counts_in_no_rate(empty):
    by_id = empty.find_similar("author-1/model-7", k=9)
    vector = family(20)["author-1/model-7"]
    copy, *others = empty.find_similar(vector, k=10, base=BASE, kind="adapter")

    assert (copy["model"], copy["verdict"]) == ("author-1/model-7", "copy")
    assert [hit["model"] for hit in others] == [hit["model"] for hit in by_id]
    # the published vector has eight bits a number
    for key, tolerance in (("z", 0.01), ("fdr", 0.01)):
        assert [h[key] for h in others] == pytest.approx([h[key] for h in by_id], abs=tolerance)


def test_filters_apply_to_attached_models(empty):
    by_dataset = empty.find_similar("author-1/model-7", k=99, dataset="d2")
    by_author = empty.find_similar("author-1/model-7", k=99, author="author-0")
    where = empty.find_similar(
        "author-1/model-7", k=99, where="kind = 'full' AND downloads > 10 AND source IS NULL"
    )

    assert {hit["dataset"] for hit in by_dataset} == {"d2"}
    assert {hit["author"] for hit in by_author} == {"author-0"}
    assert {hit["model"] for hit in where} == {
        f"author-{n % 3}/model-{n}" for n in (12, 14, 16, 18)
    }
    assert where.to_json()["compared"] == 4
    assert len(empty.find_similar("author-1/model-7", where="base = 'no'")) == 0
    with pytest.raises(BadFilter):
        empty.find_similar("author-1/model-7", where="1; DROP TABLE published")


@pytest.mark.parametrize("n_own", [3, 18])
def test_own_and_attached_models_are_ranked_together_and_the_own_one_wins(own, n_own):
    models = family(n_own, first=15)
    with own(models) as db:
        found = db.find_similar("author-0/model-15", k=99)
        alone = db.find_similar("author-0/model-15", k=99, attached=False)

    everything = {**family(20), **models}
    assert len(found) == len(everything) - 1
    assert {hit["model"]: hit["source"] for hit in found} == {
        id: None if id in models else "theirs" for id in everything if id != "author-0/model-15"
    }
    z = [hit["z"] for hit in found]
    assert z == sorted(z, reverse=True)
    rates = [hit["fdr"] for hit in found]
    assert rates == sorted(rates)
    assert [hit["rank"] for hit in found] == list(range(1, len(everything)))
    assert found.to_json()["compared"] == len(everything) - 1
    assert {hit["source"] for hit in alone} == {None}
    assert alone.to_json()["attached"] == []


def test_an_index_of_another_recipe_base_or_shape_is_not_searched(tmp_path, index, caplog):
    other = Recipe(name="sketch", rank=3, dim=16, params=RECIPE.params, version=3)
    fill(tmp_path / "recipe.duckdb", family(3), recipe=other)
    fill(tmp_path / "base.duckdb", family(3), base="example/another")
    fill(tmp_path / "shape.duckdb", family(3))
    fill(tmp_path / "mine.duckdb", family(2, first=50))
    for name, width in (("shape", 4), ("mine", 8)):
        with Catalog.open(tmp_path / f"{name}.duckdb") as catalog:
            catalog.save_base(BaseRecord(base=BASE, shapes={"encoder.0.q": (width, 4)}))
    with dx.open(tmp_path / "mine.duckdb") as db, caplog.at_level(logging.INFO, "deltadex"):
        db.attach(index)
        for name in ("recipe", "base", "shape"):
            publish(tmp_path / f"{name}.duckdb", tmp_path / name)
            db.attach(tmp_path / name)
        found = db.find_similar("author-2/model-50", k=99)

    assert {hit["source"] for hit in found} == {None, "index"}
    assert "recipe is not searched" in caplog.text
    assert caplog.text.count("base is not searched: its models are of example/another") == 1


# Attaching, refreshing, detaching


def test_a_full_model_is_read_beside_the_folder_that_the_published_base_was(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    models = make_family(tmp_path)
    with dx.open(tmp_path / "theirs.duckdb") as db:
        db.index(tmp_path / "base", models)
        db.publish(tmp_path / "index", base_name="ours/net")
    (tmp_path / "base").rename(tmp_path / "net")
    with dx.open(None) as mine:
        mine.attach(tmp_path / "index")
        with pytest.raises(RequestError, match=r"needs-base: base ours/net.*; --base FOLDER reads"):
            mine.find_similar(models / "a-0")
        with pytest.raises(UnknownBase, match="there are: ours/net"):
            mine.find_similar(models / "a-0", base=str(models))

        near = mine.find_similar(models / "a-0", base=str(tmp_path / "net"), k=1)

    assert [(hit["model"], hit["source"]) for hit in near] == [("a-0", "index")]


def test_a_refresh_fetches_only_what_is_new(tmp_path, index, empty, monkeypatch):
    monkeypatch.setattr(publication, "PART_MODELS", 4)
    publish(tmp_path / "theirs.duckdb", index)
    empty.attached.refresh("theirs")
    fill(tmp_path / "theirs.duckdb", family(2, first=60))
    done = publish(tmp_path / "theirs.duckdb", index)

    row = empty.attached.refresh("theirs")[0]

    assert (row["models"], row["serial"]) == (22, 3)
    assert done["written_bytes"] < row["bytes"]
    assert row["fetched_bytes"] == (
        done["written_bytes"] + (index / "deltadex-index.json").stat().st_size
    )
    assert "author-0/model-60" in [hit["model"] for hit in near(empty)]
    folder = tmp_path / "mine.duckdb.attached" / "theirs"
    assert len(list(folder.glob("manifest-*"))) == 1


def test_neither_an_older_copy_nor_another_index_takes_the_place_of_one(tmp_path, index, empty):
    shutil.copytree(index, tmp_path / "older")
    publish(tmp_path / "theirs.duckdb", index, exclude=["author-2/model-2"])
    empty.attached.refresh()
    shutil.rmtree(index)
    shutil.copytree(tmp_path / "older", index)
    with pytest.raises(BadIndex, match="older copy"):
        empty.attached.refresh()

    found = [hit["model"] for hit in near(empty)]
    assert len(found) == 18
    assert "author-2/model-2" not in found
    shutil.rmtree(index)
    publish(fill(tmp_path / "new.duckdb", family(2)), index)
    with pytest.raises(BadIndex, match="another index now"):
        empty.attached.refresh()
    assert [hit["model"] for hit in near(empty)] == found


def test_a_name_is_used_once_and_is_plain(tmp_path, index, empty):
    shutil.copytree(index, tmp_path / "copy")
    for name, match in (("theirs", "attached from"), ("../up", "cannot be the name"), ("", None)):
        if match:
            with pytest.raises(RequestError, match=match):
                empty.attach(tmp_path / "copy", name=name)
        else:
            assert empty.attach(tmp_path / "copy", name=name)[0]["name"] == "copy"
    with pytest.raises(RequestError, match="no attached index 'x'; attached: copy, theirs"):
        empty.attached.remove("x")


def vector_bytes(part):
    """Where the vectors of a part of one row group are."""
    stored = b"".join(parquet.read_table(io.BytesIO(part))["vector"].to_pylist())
    return range(start := part.index(stored), start + len(stored))


def test_a_file_that_is_longer_than_the_manifest_says_is_refused(tmp_path, index, empty):
    shutil.copytree(index, tmp_path / "longer")
    with next((tmp_path / "longer").glob("*.parquet")).open("ab") as file:
        file.write(b"x")

    with pytest.raises(BadIndex, match="is longer than the manifest says"):
        empty.attach(tmp_path / "longer")


def test_what_changes_in_a_copy_is_noticed_when_it_is_read_and_fetched_again(tmp_path, empty):
    folder = tmp_path / "mine.duckdb.attached" / "theirs"
    wanted = near(empty).to_json()
    [path] = folder.glob("models-*")
    rng, whole = np.random.default_rng(0), path.read_bytes()
    for _ in range(5):
        changed = bytearray(whole)
        changed[rng.choice(vector_bytes(whole))] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        with pytest.raises(BadIndex, match=f"{path.name}: .*changed.*attach --refresh"):
            near(empty)
    shutil.rmtree(folder.parent)
    with pytest.raises(BadIndex, match="attach --refresh"):
        near(empty)

    empty.attached.refresh("theirs")

    assert near(empty).to_json() == wanted


# The command line


def test_the_commands(tmp_path, index):
    db = tmp_path / "mine.duckdb"
    attached = run(db, "attach", str(index), "--name", "theirs")
    nobody = run(db, "find-similar", "nobody")
    listed = document(db, "attach", "--list")
    found = run(db, "find-similar", "author-1/model-7", "-k", "2")
    answer = document(db, "find-similar", "author-1/model-7")
    refreshed = run(db, "attach", "--refresh")
    removed = run(db, "attach", "--remove", "theirs")

    assert attached.stdout.startswith(f"theirs: 20 models of {BASE} ({RECIPE.id})")
    assert [row["name"] for row in listed["attached"]] == ["theirs"]
    assert "source" in found.stdout
    assert "nor in theirs" in nobody.stderr
    assert {hit["source"] for hit in answer["neighbours"]} == {"theirs"}
    assert "20 models" in refreshed.stdout
    assert removed.stdout == "no index is attached\n"
    assert not list(db.with_name("mine.duckdb.attached").iterdir())
