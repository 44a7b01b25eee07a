import pytest
from factories import make_family

from deltadex.errors import SourceError
from deltadex.indexer.family import find_member, folder_members, listed_members


def test_models_are_found_at_any_depth_and_named_by_their_path(tmp_path):
    models = make_family(tmp_path)
    (models / "a-0").rename(models / "deep")
    (models / "deep").rename(tmp_path / "x")
    (models / "one" / "two").mkdir(parents=True)
    (tmp_path / "x").rename(models / "one" / "two" / "a-0")
    (models / ".hidden").symlink_to(models / "a-1")
    (models / "loop").symlink_to(models)

    members = [m.record.id for m in folder_members(tmp_path, "b", leave_out=tmp_path / "base")]

    assert members == ["models/a-1", "models/b-0", "models/b-1", "models/one/two/a-0"]


def test_a_folder_that_is_a_model_is_one(tmp_path):
    models = make_family(tmp_path)

    (member,) = folder_members(models / "a-0", "b", leave_out=None)

    assert member.record.id == "a-0"


def test_a_list_names_paths_beside_it(tmp_path):
    models = make_family(tmp_path)
    (models / "list.txt").write_text("# a comment\na-0\n\nb-1  # and another\n./nothing\n")

    members = list(listed_members(models / "list.txt", "b"))

    assert [m.record.id for m in members[:2]] == ["a-0", "b-1"]
    assert members[2].refusal.code == "not-found"
    assert find_member("./none", "b").refusal.code == "not-found"


def test_a_missing_folder_says_so(tmp_path):
    with pytest.raises(SourceError, match="no such folder"):
        list(folder_members(tmp_path / "none", "b", leave_out=None))


def test_checkpoints_of_a_run_share_it(tmp_path):
    models = make_family(tmp_path)
    for step in ("checkpoint-10", "checkpoint-20"):
        (models / "a-0" / step).mkdir()
        for name in ("config.json", "model.safetensors"):
            (models / "a-0" / step / name).write_bytes((models / "a-0" / name).read_bytes())

    runs = {m.record.id: m.record.run for m in folder_members(models, "b", leave_out=None)}

    assert runs["a-0"] == runs["a-0/checkpoint-10"] == runs["a-0/checkpoint-20"] == "a-0"
