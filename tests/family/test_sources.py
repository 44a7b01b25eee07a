import os

import pytest
from factories import make_family

from deltadex.errors import ModelError, SourceError
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


def walked(folder, caplog):
    """Ids or reason codes of what is found, and what is said of the rest."""
    caplog.clear()
    members = list(folder_members(folder, "b", leave_out=None))
    assert all((m.refusal is None) == (m.folder is not None) for m in members)
    return {m.record.id: m.refusal and m.refusal.code for m in members}, caplog.text


def test_links_to_folders_inside_the_given_one_are_followed_once(tmp_path, caplog):
    models = make_family(tmp_path)
    store = models / ".store"
    store.mkdir()
    for name in ("a-0", "a-1"):
        (models / name).rename(store / name)
    (models / "imdb").symlink_to(store / "a-0")
    (models / "group").mkdir()
    (models / "group" / "relative").symlink_to("../.store/a-1")
    (models / "again").symlink_to("imdb")
    (models / "b-2").symlink_to("b-1")
    (store / "a-1" / "loop").symlink_to(models)
    (tmp_path / "link").symlink_to(models)

    found, said = walked(tmp_path / "link", caplog)

    assert found == dict.fromkeys(["b-0", "b-1", "again", "group/relative"])
    assert said == ""


def test_links_out_of_the_given_folder_are_named_and_not_followed(tmp_path, caplog):
    models = make_family(tmp_path)
    (models / "a-0").rename(tmp_path / "elsewhere")
    (models / "imdb").symlink_to(tmp_path / "elsewhere")
    (models / "up").symlink_to(tmp_path)
    (models / "gone").symlink_to("nowhere")

    found, said = walked(models, caplog)

    assert found == dict.fromkeys(["a-1", "b-0", "b-1"]) | {"imdb": "outside-folder"}
    assert "gone (links to nothing)" in said
    assert "up (links that lead out of it)" in said


def test_a_link_that_leads_out_later_is_not_followed(tmp_path):
    models = make_family(tmp_path)
    (models / ".store").mkdir()
    (models / "a-0").rename(models / ".store" / "a-0")
    (models / "imdb").symlink_to(".store/a-0")
    (member,) = (m for m in folder_members(models, "b", leave_out=None) if m.record.id == "imdb")

    (models / ".store").rename(tmp_path / "moved")
    (models / ".store").symlink_to(tmp_path / "moved")

    with pytest.raises(ModelError, match="outside-folder"):
        member.files.content("config.json")


def test_every_folder_that_is_left_out_is_said_in_one_line(tmp_path, caplog):
    models = make_family(tmp_path, pairs=("a",), runs=6)
    for number in range(5):
        (models / f"a-{number}").rename(models / f".a-{number}")
    (models / "__pycache__").mkdir()
    (models / ".git" / "objects").mkdir(parents=True)
    (models / "closed").symlink_to("closed")

    found, said = walked(models, caplog)

    assert found == {"a-5": None}
    (line,) = said.splitlines()
    assert ".a-0, .a-1, .a-2 and 2 more (models in folders that are hidden" in line
    assert "closed (links to nothing)" in line
    assert ".git" not in line


@pytest.mark.skipif(os.geteuid() == 0, reason="root lists every folder")
def test_a_folder_that_cannot_be_listed_is_said(tmp_path, caplog):
    models = make_family(tmp_path)
    (models / "a-0").chmod(0)

    found, said = walked(models, caplog)

    assert "a-0" not in found
    assert "a-0 (cannot be listed)" in said


@pytest.mark.parametrize("name", ["new\nline", "trailing\n", "esc\x1b[31m", "b\udcff", " "])
def test_a_model_is_found_whatever_characters_its_folder_has(tmp_path, name, caplog):
    models = make_family(tmp_path)
    (models / "a-0").rename(models / name)
    (models / "linked").mkdir()
    (models / "linked" / name).symlink_to(models.parent / "base")

    found, said = walked(models, caplog)

    stored = name.replace("\udcff", "\\udcff")
    assert found[stored] is None
    assert found[f"linked/{stored}"] == "outside-folder"
    assert said == ""
