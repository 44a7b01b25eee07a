"""Several data sets at once, through a real base."""

import csv
import json

import pytest
from click.testing import CliRunner
from factories import make_family, make_readable, write_labelled_texts

import deltadex as dx
from deltadex.cli import main
from deltadex.errors import DataError, RequestError
from deltadex.study import network

READING = {"max_tokens": 14}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """`c.duckdb` over four fine-tunes, and `sets` with three data sets and one that is none."""
    folder = tmp_path_factory.mktemp("each")
    models = make_family(folder)
    make_readable(folder / "base")
    sets = folder / "sets"
    sets.mkdir()
    for seed, name in enumerate(("reviews", "tweets")):
        write_labelled_texts(sets / f"{name}.csv", seed=seed, n=10)
    (sets / "posts").mkdir()
    write_labelled_texts(sets / "posts" / "train.csv", seed=2, n=10)
    (folder / "two").mkdir()
    write_labelled_texts(folder / "two" / "reviews.csv", seed=0, n=10)
    (folder / "two" / "numbers.csv").write_text("n\n1\n2\n3\n")
    (sets / "numbers.csv").write_text("n\n1\n2\n3\n")
    (sets / "readme.md").write_text("no data\n")
    with dx.open(folder / "c.duckdb") as db:
        db.index(folder / "base", models, labels=models / "labels.csv")
    return folder


@pytest.fixture(scope="module")
def compared(folder):
    """The table, and how often the base was loaded for it."""
    loaded = []
    load = network.load_task_model

    def counted(*args, **options):
        loaded.append(args)
        return load(*args, **options)

    with pytest.MonkeyPatch.context() as patch, dx.open(folder / "c.duckdb", read_only=True) as db:
        patch.setattr(network, "load_task_model", counted)
        return db.data.find_models_of_each(folder / "sets", k=2, **READING), len(loaded)


@pytest.fixture
def table(compared):
    return compared[0]


def test_each_data_set_has_the_answer_that_it_has_alone(folder, table):
    document = table.to_json()

    assert [row["data"] for row in table] == ["posts", "reviews", "tweets"]
    assert document["models"] == ["a-0", "a-1", "b-0", "b-1"]
    # the last, which the base was run for after the others
    entry = document["data"][-1]
    with dx.open(folder / "c.duckdb", read_only=True) as db:
        alone = db.data.find_models(folder / "sets" / "tweets.csv", k=4, **READING)
    z = dict(zip(document["models"], entry["z"], strict=True))
    assert {row["model"]: row["z"] for row in alone} == pytest.approx(z, abs=1e-3)
    control = alone.to_json()["query"]["control"]["z"]
    assert entry["control"]["z"] == pytest.approx(control, abs=1e-3)
    assert len(entry["nearest"]) == 2
    assert all(near["z"] == pytest.approx(z[near["model"]]) for near in entry["nearest"])


def test_the_base_is_loaded_once(compared):
    assert compared[1] == 1


def test_what_cannot_be_read_is_listed_and_stops_no_other(table):
    (failure,) = table.failed

    assert failure["data"] == "numbers"
    assert "no column of texts found" in failure["reason"]


def test_the_csv_has_every_z(table, tmp_path):
    head, *rows = csv.reader(table.save(tmp_path / "t.csv").read_text().splitlines())

    document = table.to_json()
    assert head == ["data", *document["models"]]
    assert [row[0] for row in rows] == ["posts", "reviews", "tweets"]
    assert [[float(z) for z in row[1:]] for row in rows] == [e["z"] for e in document["data"]]


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_picture_is_written(table, tmp_path, ending):
    assert table.save(tmp_path / f"t.{ending}").stat().st_size > 5_000


def test_the_command_writes_the_file_and_ends_with_done_in_part(folder, tmp_path):
    result = CliRunner().invoke(
        main,
        ["find-trained-on", str(folder / "two"), "--each", "--max-tokens", "14", "-k", "1",
         "-o", str(tmp_path / "t.csv"), "--db", str(folder / "c.duckdb"), "--json"],
    )  # fmt: skip

    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert set(document) == {
        "base", "recipe", "recipe_id", "compared", "calibration", "models", "bases", "data",
        "failed", "families", "left_out", "meaning",
    }  # fmt: skip
    assert set(document["data"][0]) == {
        "data", "loss", "examples", "sha256", "verdict", "references", "control", "nearest", "z",
        "families",
    }  # fmt: skip
    assert (tmp_path / "t.csv").read_text().startswith("data,a-0,")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--each", "--keep", "x"], "--keep names one data set"),
        (["-o", "t.pdf"], "name ends in one of: .csv"),
        (["--each", "-o", "t.pdf"], "ends in one of .csv, .md, .tex, .png, .svg, .html"),
    ],
)
def test_options_that_do_not_go_together_are_refused(folder, arguments, message):
    result = CliRunner().invoke(
        main,
        ["find-trained-on", str(folder / "sets"), *arguments, "--db", str(folder / "c.duckdb")],
    )

    assert result.exit_code == 2
    assert message in result.output


def test_wrong_folders_are_refused(folder, tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad" / "numbers.csv").write_text("n\n1\n2\n3\n")
    with dx.open(folder / "c.duckdb", read_only=True) as db:
        with pytest.raises(DataError, match=r"no such folder"):
            db.data.find_models_of_each(tmp_path / "none")
        with pytest.raises(DataError, match="no data file in it"):
            db.data.find_models_of_each(tmp_path / "empty")
        with pytest.raises(DataError, match=r"no data set could be read; .*no column of texts"):
            db.data.find_models_of_each(tmp_path / "bad", **READING)
        with pytest.raises(RequestError, match="several files"):
            db.data.find_models_of_each([])
        with pytest.raises(RequestError, match="at least 1"):
            db.data.find_models_of_each(folder / "sets", k=0)
