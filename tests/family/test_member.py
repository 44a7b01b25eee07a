"""How a base is spelled, which members a selection keeps, and where models are found."""

import shutil

import pytest
from factories import write_file, write_files
from model_folders import make_models

from deltadex.errors import ModelError, SourceError
from deltadex.indexer import IndexOptions, family
from deltadex.indexer.hub import HubModel
from deltadex.indexer.untrusted_text import base_key
from deltadex.records import ModelRecord

SPELLINGS = [
    "bert-base-uncased",
    "google-bert/bert-base-uncased",
    "BERT-Base-Uncased",
    "bert_base_uncased",
    "./bert-base-uncased",
    "/content/drive/My Drive/models/bert-base-uncased/",
    "../bases/bert-base-uncased",
    "D:\\DeepLearning\\绘图素材\\bert-base-uncased",
    "https://hub.example/google-bert/bert-base-uncased",
    "https://hub.example/bert-base-uncased/tree/main",
    "~/.cache/huggingface/hub/models--google-bert--bert-base-uncased/snapshots/" + "0a" * 20,
    "unsloth/bert-base-uncased-bnb-4bit",
    "unsloth/bert-base-uncased-unsloth-bnb-4bit",
    "TheBloke/bert-base-uncased-GPTQ",
    "'bert-base-uncased'",
    "outputs/bert-base-uncased/checkpoint-500",
]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_means_the_same_base(spelling):
    assert base_key(spelling) == "bertbaseuncased"
    assert family.same_base(spelling, "google-bert/bert-base-uncased")


OTHERS = ["bert-base-cased", "bert-large-uncased", "someone/bert-base-uncased-imdb"]


@pytest.mark.parametrize("other", [*OTHERS, "distilbert-base-uncased", "", ".", "/"])
def test_another_name_is_another_base(other):
    assert not family.same_base(other, "bert-base-uncased")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("klue/roberta-base", "roberta-base"),
        ("klue/roberta-base", "models--FacebookAI--roberta-base"),
        ("https://hub.example/klue/roberta-base", "roberta-base"),
        ("someone/Llama-3.2-1B-Instruct", "meta-llama/Llama-3.2-1B"),
        ("gpt2-medium", "gpt2"),
    ],
)
def test_one_last_name_of_two_owners_is_two_bases(one, other):
    assert base_key(one) != base_key(other)
    assert not family.same_base(one, other)
    assert not family.same_base(other, one)


@pytest.mark.parametrize("path", ["/data/roberta-base", "models/roberta-base", "..\\roberta-base"])
def test_a_path_tells_no_owner_so_that_it_fits_any(path):
    assert family.same_base(path, "klue/roberta-base")
    assert family.same_base("klue/roberta-base", path)
    assert base_key(path) == base_key("roberta-base")


def test_the_tuned_release_of_a_base_is_of_its_family_and_not_the_other_way_round():
    assert family.same_base("google/gemma-3-270m-it", "google/gemma-3-270m")
    assert not family.same_base("google/gemma-3-270m", "google/gemma-3-270m-it")


FILES = {
    "full": ("model.safetensors", "full", "safetensors"),
    "sharded": ("model.safetensors.index.json", "full", "safetensors"),
    "bin": ("pytorch_model.bin", "full", "bin"),
    "bins": ("pytorch_model.bin.index.json", "full", "bin"),
    "adapter": ("adapter_model.safetensors", "adapter", "safetensors"),
    "old-adapter": ("adapter_model.bin", "adapter", "bin"),
    "gguf": ("m-Q4.gguf", "quantized", "gguf"),
    "card": ("README.md", "other", "none"),
}


def hub_member(file, **fields):
    raw = {"id": "a/b", "siblings": [{"rfilename": file}], **fields}
    return family.member_of(HubModel.from_json(raw), "base", claims=())


def keeps(member, *exclude, **options):
    return family.is_wanted(member, IndexOptions(base="base", exclude=exclude, **options))


@pytest.mark.parametrize("name", FILES)
def test_kind_and_format_are_those_of_the_files(name):
    file, kind, form = FILES[name]

    assert (family.kind_of(hub_member(file)), family.format_of(hub_member(file))) == (kind, form)


@pytest.mark.parametrize(
    ("exclusion", "left_out"),
    [
        ("adapters", {"adapter", "old-adapter"}),
        ("bin", {"bin", "bins", "old-adapter"}),
        ("full", {"full", "sharded", "bin", "bins"}),
        ("gguf", {"gguf"}),
        ("merges", set()),
        ("quantized", {"gguf"}),
    ],
)
def test_an_exclusion_leaves_out_what_its_name_says(exclusion, left_out):
    assert {n for n, (file, *_) in FILES.items() if not keeps(hub_member(file), exclusion)} == (
        left_out
    )


def test_models_below_the_least_downloads_are_left_out_but_unknown_ones_kept():
    counts = (None, 0, 9, 10, 11)
    members = [family.Member(record=ModelRecord(id="a", base="b", downloads=n)) for n in counts]

    assert [keeps(one, min_downloads=10) for one in members] == [True, False, False, True, True]


def test_merges_are_those_that_the_hub_says_or_that_name_several_parents():
    tagged = hub_member("model.safetensors", tags=["base_model:merge:x/y", "base_model:x/y"])
    listed = hub_member("model.safetensors", cardData={"base_model": ["x/one", "y/two"]})

    assert family.kind_of(tagged) == family.kind_of(listed) == "merge"
    assert not keeps(tagged, "merges")
    assert not keeps(listed, "full")


def test_quantised_weights_under_a_usual_name_are_quantised_and_not_for_their_tags():
    types = {"parameters": {"I32": 700, "F16": 300}}
    packed = hub_member("model.safetensors", tags=["4-bit", "awq"], safetensors=types)
    tagged = hub_member("model.safetensors", tags=["4-bit", "awq"])

    assert (family.kind_of(packed), family.kind_of(tagged)) == ("quantized", "full")
    assert not keeps(packed, "quantized")
    assert keeps(packed, "gguf")


def test_models_are_found_at_any_depth_and_named_by_their_path(tmp_path):
    models = make_models(tmp_path)
    (models / "a-0").rename(models / "deep")
    (models / "deep").rename(tmp_path / "x")
    (models / "one" / "two").mkdir(parents=True)
    (tmp_path / "x").rename(models / "one" / "two" / "a-0")
    (models / ".hidden").symlink_to(models / "a-1")
    (models / "loop").symlink_to(models)

    members = [
        m.record.id for m in family.folder_members(tmp_path, "b", leave_out=tmp_path / "base")
    ]

    assert members == ["models/a-1", "models/b-0", "models/b-1", "models/one/two/a-0"]


def test_a_folder_that_is_a_model_is_one_and_a_list_names_paths_beside_it(tmp_path):
    models = make_models(tmp_path)
    (models / "list.txt").write_text("# a comment\na-0\n\nb-1  # and another\n./nothing\n")

    (alone,) = family.folder_members(models / "a-0", "b", leave_out=None)
    members = list(family.listed_members(models / "list.txt", "b"))

    assert alone.record.id == "a-0"
    assert [m.record.id for m in members[:2]] == ["a-0", "b-1"]
    assert members[2].refusal.code == "not-found"
    assert family.find_member("./none", "b").refusal.code == "not-found"
    with pytest.raises(SourceError, match="no such folder"):
        list(family.folder_members(tmp_path / "none", "b", leave_out=None))


def test_checkpoints_of_a_run_share_it(tmp_path):
    models = make_models(tmp_path)
    for step in ("checkpoint-10", "checkpoint-20"):
        shutil.copytree(models / "b-0", models / "a-0" / step)

    runs = {m.record.id: m.record.run for m in family.folder_members(models, "b", leave_out=None)}

    assert runs["a-0"] == runs["a-0/checkpoint-10"] == runs["a-0/checkpoint-20"] == "a-0"


def walked(folder, caplog):
    """Ids or reason codes of what is found, and what is said of the rest."""
    caplog.clear()
    members = list(family.folder_members(folder, "b", leave_out=None))
    assert all((m.refusal is None) == (m.folder is not None) for m in members)
    return {m.record.id: m.refusal and m.refusal.code for m in members}, caplog.text


def test_links_to_folders_inside_the_given_one_are_followed_once(tmp_path, caplog):
    models = make_models(tmp_path)
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
    models = make_models(tmp_path)
    (models / "a-0").rename(tmp_path / "elsewhere")
    (models / "imdb").symlink_to(tmp_path / "elsewhere")
    (models / "up").symlink_to(tmp_path)
    (models / "gone").symlink_to("nowhere")

    found, said = walked(models, caplog)

    assert found == dict.fromkeys(["a-1", "b-0", "b-1"]) | {"imdb": "outside-folder"}
    assert "gone (links to nothing)" in said
    assert "up (links that lead out of it)" in said


def test_a_link_that_leads_out_later_is_not_followed(tmp_path):
    models = make_models(tmp_path)
    (models / ".store").mkdir()
    (models / "a-0").rename(models / ".store" / "a-0")
    (models / "imdb").symlink_to(".store/a-0")
    (member,) = (
        m for m in family.folder_members(models, "b", leave_out=None) if m.record.id == "imdb"
    )

    (models / ".store").rename(tmp_path / "moved")
    (models / ".store").symlink_to(tmp_path / "moved")

    with pytest.raises(ModelError, match="outside-folder"):
        member.files.content("config.json")


def test_every_folder_that_is_left_out_is_said_in_one_line(tmp_path, caplog):
    models = make_models(tmp_path, *(f"a-{run}" for run in range(6)))
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


FOREIGN = ["pytorch_lora_weights.safetensors", "lora.npz", "lora_rank8.safetensors"]


def test_every_adapter_of_another_form_is_one_member_with_its_reason(tmp_path):
    models = make_models(tmp_path)
    for folder in ("styles", "a-0"):
        write_files(models / folder, dict.fromkeys(FOREIGN, b"\0" * 16))

    members = {m.record.id: m for m in family.folder_members(models, "b", leave_out=None)}

    other = {f"{folder}/{file}" for folder in ("styles", "a-0") for file in FOREIGN}
    assert members.keys() == {"a-0", "a-1", "b-0", "b-1"} | other
    assert {members[id].refusal.code for id in other} == {"unsupported-adapter"}
    assert all(members[id].refusal is None for id in members.keys() - other)
    refusal = family.find_member(str(models / "styles"), "b").refusal
    assert refusal is not None
    assert refusal.code == "unsupported-adapter"


@pytest.mark.parametrize(
    "file", ["tf_model.h5", "flax_model.msgpack", "weights.npz", "epoch3.ckpt", "style.safetensors"]
)
def test_a_folder_of_weights_in_any_form_is_a_member(tmp_path, file):
    write_file(tmp_path / "all" / "m" / file, b"\0" * 16)

    (member,) = family.folder_members(tmp_path / "all", "b", leave_out=None)

    assert member.record.id == "m"
    with pytest.raises(ModelError, match=r"no-weights|truncated|bad-header"):
        member.checkpoint()


@pytest.mark.parametrize("name", ["new\nline", "trailing\n", "esc\x1b[31m", "b\udcff", " "])
def test_a_model_is_found_whatever_characters_its_folder_has(tmp_path, name, caplog):
    models = make_models(tmp_path)
    (models / "a-0").rename(models / name)
    (models / "linked").mkdir()
    (models / "linked" / name).symlink_to(models.parent / "base")

    found, said = walked(models, caplog)

    stored = name.replace("\udcff", "\\udcff")
    assert found[stored] is None
    assert found[f"linked/{stored}"] == "outside-folder"
    assert said == ""
