"""`index FOLDER` of models of several bases."""

import shutil

import pytest
from factories import configure, lora_files, make_bert, write_files
from running import run

import deltadex as dx
from deltadex.errors import SourceError
from deltadex.questions.index import show_report
from deltadex.questions.plan import show_plan


@pytest.fixture
def folder(made_family, tmp_path):
    """Models of two bases of the same shapes: `one/…` name theirs, `two/a-…` too, two/b-… none."""
    for name in ("one", "two"):
        shutil.copytree(made_family, tmp_path / name)
        shutil.copytree(made_family / "models", tmp_path / "all" / name)
    for model in ("one/a-0", "one/a-1", "one/b-0", "one/b-1", "two/a-0", "two/a-1"):
        base = tmp_path / model.split("/")[0] / "base"
        configure(tmp_path / "all" / model, _name_or_path=str(base))
    return tmp_path / "all"


def test_each_family_is_indexed_and_what_fits_no_base_is_named(folder, tmp_path):
    (folder / "one" / "a-0" / "lora_rank8.safetensors").write_bytes(b"")

    with dx.open(tmp_path / "c.duckdb") as db:
        report = db.index(folder)
        models = {row["model"]: row["base"] for row in db.models()}
        again = db.index(folder)

    document = report.to_json()
    assert models == {
        **{f"one/{run}": str(tmp_path / "one" / "base") for run in ("a-0", "a-1", "b-0", "b-1")},
        **{f"two/{run}": str(tmp_path / "two" / "base") for run in ("a-0", "a-1")},
    }
    assert (report.indexed, again.indexed, again.to_json()["unchanged"]) == (6, 0, 6)
    left_out = {row["model"]: row for row in document["left_out"]}
    other_form = left_out.pop("one/a-0/lora_rank8.safetensors")
    assert other_form["code"] == "unsupported-adapter"
    assert left_out.keys() == {"two/b-0", "two/b-1"}
    assert "names no base" in left_out["two/b-0"]["reason"]


def test_a_full_model_belongs_to_the_only_base_of_its_shape(folder, tmp_path):
    shutil.rmtree(folder / "two" / "a-0")
    shutil.rmtree(folder / "two" / "a-1")

    with dx.open(tmp_path / "c.duckdb") as db:
        document = db.index(folder).to_json()

    assert [family["base"] for family in document["families"]] == [str(tmp_path / "one" / "base")]
    assert (document["indexed"], document["left_out"]) == (6, [])


@pytest.mark.parametrize("file", ["model.safetensors", "adapter_config.json"])
def test_a_link_out_of_the_folder_beside_the_models_is_left_out_by_name(folder, tmp_path, file):
    (tmp_path / file).write_bytes((tmp_path / "one" / "base" / "model.safetensors").read_bytes())
    (folder / file).symlink_to(tmp_path / file)

    with dx.open(tmp_path / "c.duckdb") as db:
        document = db.index(folder).to_json()

    left_out = {row["model"]: row["code"] for row in document["left_out"]}
    assert (document["indexed"], left_out["all"]) == (6, "outside-folder")
    assert any("1 model left out (all): " in str(line) for line in show_report(document))


@pytest.mark.slow  # without a network the Hub is waited for
def test_a_base_that_is_not_there_leaves_its_models_out_with_a_reason(folder, tmp_path):
    for model in ("two/a-0", "two/a-1"):
        configure(folder / model, _name_or_path=str(tmp_path / "moved-away"))

    with dx.open(tmp_path / "c.duckdb") as db:
        document = db.index(folder).to_json()

    refused = {row["model"]: row for row in (*document["left_out"], *document["failed"])}
    assert (document["indexed"], set(refused)) == (6, {"two/a-0", "two/a-1"})
    assert {row["code"] for row in refused.values()} == {"needs-base"}


def test_two_owners_of_one_last_name_have_two_families_and_mirrors_one(tmp_path):
    base = make_bert(tmp_path / "base", seed=0)
    names = ("roberta-base", "FacebookAI/roberta-base", "klue/roberta-base")
    for model, name in enumerate(names):
        folder = write_files(tmp_path / "all" / str(model), lora_files(base))
        configure(folder, "adapter_config.json", base_model_name_or_path=name)

    with dx.open(tmp_path / "c.duckdb") as db:
        report = db.index(tmp_path / "all")
        family = {row["model"]: row["base"] for row in db.models()}

    assert report.indexed == 3
    assert family["0"] == family["1"] != family["2"] == "klue/roberta-base"


def test_a_folder_without_models_is_an_error(tmp_path):
    (tmp_path / "empty").mkdir()

    with dx.open(tmp_path / "c.duckdb") as db, pytest.raises(SourceError, match="no model"):
        db.index(tmp_path / "empty")


def test_labels_may_be_of_one_family_and_are_told_once(folder, tmp_path, caplog):
    labels = folder / "labels.csv"
    labels.write_text("model,dataset\none/a-0,imdb\none/a-1,imdb\nelsewhere,sst2\n")
    caplog.set_level("INFO", "deltadex")

    with dx.open(tmp_path / "c.duckdb") as db:
        families = db.index(folder, labels=labels).to_json()["families"]
        datasets = {row["model"]: row["dataset"] for row in db.models()}
        labels.write_text("model,dataset\nelsewhere,sst2\n")
        with pytest.raises(SourceError, match="1 row, 0 matched"):
            db.index(folder, labels=labels)

    assert [family["labels"]["matched"] for family in families] == [2, 0]
    assert datasets["one/a-0"] == "imdb"
    assert datasets["two/a-0"] != "imdb"
    assert len([line for line in caplog.messages if "name no model here" in line]) == 1


def test_a_plan_finds_the_families_of_a_folder_as_index_does(folder):
    with dx.open(None) as db:
        plan = db.plan(folder)

    lines = [line for line in show_plan(plan.to_json()) if isinstance(line, str)]
    bases = [str(folder.parent / name / "base") for name in ("one", "two")]
    planned = [(row["base"], row["models"]) for row in plan]
    assert planned == [(bases[0], 4), (bases[1], 2)]
    assert "of 4 models would be read" in lines[0]
    assert lines[-1].startswith("2 models left out (two/b-0, two/b-1): names no base")


def test_a_folder_of_which_every_model_is_left_out_ends_with_nothing_done(folder, tmp_path):
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "away").symlink_to(folder / "one" / "a-0")

    result = run(tmp_path, "index", linked)

    assert result.exit_code == 3
    assert "1 model left out (away)" in result.stdout
