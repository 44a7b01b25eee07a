"""What labels.csv and a card say: datasets, runs, and the parents of a merge."""

import pytest
from model_folders import make_models

from deltadex.errors import ModelError, SourceError
from deltadex.indexer.family import (
    MAX_PARENTS,
    Member,
    Wanted,
    card_bases,
    find_member,
    label_of,
    normalise,
    read_labels,
    refuse_strangers,
    split_card,
)
from deltadex.records import ModelRecord


@pytest.fixture
def path(tmp_path):
    return tmp_path / "labels.csv"


def _apply(path, id, folder=None):
    record = ModelRecord(id=id, base="b", dataset="guess", label_source="name", author="x")
    return read_labels(path).apply(record, folder)


def test_models_are_named_by_id_or_by_path_beside_the_file(tmp_path, path):
    path.write_text(
        "model,dataset,author,run,extra\nsub/m,imdb,ann,r1,?\nhub/id,squad,,\n", "utf-8-sig"
    )

    by_path = _apply(path, "m", (tmp_path / "sub" / "m").resolve())
    by_id = _apply(path, "hub/id")

    assert (by_path.dataset, by_path.author, by_path.run) == ("imdb", "ann", "r1")
    assert by_path.label_source == "labels"
    assert (by_id.dataset, by_id.author) == ("squad", "x")
    assert _apply(path, "else").dataset == "guess"


@pytest.mark.parametrize(
    ("content", "dataset", "author"),
    [
        ("model,dataset\nm,\n", None, "x"),
        ("model,author\nm,ann\n", "guess", "ann"),
        ('model;dataset\nm;"a;b, c"\n', "a;b, c", "x"),
        *((f"Model{s} dataset{s}author\nm{s}imdb{s}ann", "imdb", "ann") for s in ",;\t"),
    ],
    ids=["empty: unknown", "absent: nothing", "quoted separator", "commas", "semicolons", "tabs"],
)
def test_columns_are_separated_as_the_first_line_shows(path, content, dataset, author):
    path.write_text(content)

    record = _apply(path, "m")

    assert (record.dataset, record.author) == (dataset, author)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"name,dataset\n", "no column 'model'"),
        (b"model,dataset\nm,a\nm,b\n", "two labels"),
        (b"model,dataset\n./m,a\nm/,b\n", "two labels"),
        (b"model,dataset,Dataset\nm,a,b\n", "two columns 'dataset' in its header"),
        (b"model\n\xff\xfe\n", "cannot be read"),
    ],
)
def test_unusable_files_are_one_line(path, content, message):
    path.write_bytes(content)

    with pytest.raises(SourceError, match=message):
        read_labels(path)


@pytest.mark.parametrize("by_path", ["sub/m", "./sub/m/"])
def test_a_model_by_its_id_and_by_its_path_is_one_model(tmp_path, path, by_path):
    folder = tmp_path / "sub" / "m"
    member = Member(record=ModelRecord(id="m", base="b"), folder=folder.resolve())
    path.write_text(f"model,dataset\nm,x\n{by_path},x\nsub/m,x\n")
    assert read_labels(path).match([member])["unmatched"] == []

    path.write_text(f"model,dataset\nm,x\n{by_path},y\n")
    with pytest.raises(SourceError, match="'m' are one model, which has two labels"):
        read_labels(path).match([member])
    (tmp_path / "m").mkdir()  # what the first row names
    assert _apply(path, "m", member.folder).dataset == "y"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("imdb", "imdb"),
        ("stanfordnlp/imdb", "imdb"),
        ("nyu-mll/glue/mrpc", "glue/mrpc"),
        ("glue", None),
        ("rajpurkar/squad", "squad"),
        ("someone/my-data", "someone/my_data"),
        ("imagefolder", None),
        ("", None),
    ],
)
def test_well_known_names_lose_their_owner_and_collections_need_a_part(raw, expected):
    assert normalise(raw) == expected


def _values(label):
    return tuple(label[name] for name in ("dataset", "dataset_raw", "label_source"))


def test_sources_are_believed_in_order():
    card = {"datasets": ["squad"]}

    text = "This is a fine-tuned version of [a](b) on the emotion dataset. It"

    tagged = label_of(name="x/y-imdb", tags=["dataset:stanfordnlp/imdb", "license:mit"], card=card)
    carded = label_of(name="x/y", card=card)
    named = label_of(name="someone/bert-finetuned-sst2")
    said = label_of(name="x/y", text=text)

    assert _values(tagged) == ("imdb", "stanfordnlp/imdb", "tags")
    assert _values(carded) == ("squad", "squad", "card")
    assert _values(named) == ("glue/sst2", "glue/sst2", "name")
    assert _values(said) == ("emotion", "emotion", "sentence")


def test_the_part_of_a_collection_comes_from_the_model_index_or_the_name():
    index = [
        {"results": [{"dataset": {"type": "glue", "args": "mrpc"}}, {"dataset": None}, 7]},
        None,
    ]

    assert label_of(name="x/y", card={"model-index": index})["dataset"] == "glue/mrpc"
    assert label_of(name="x/bert-cola", tags=["dataset:glue"])["dataset"] == "glue/cola"


@pytest.mark.parametrize("source", ["tags", "card", "model-index"])
def test_a_collection_without_a_part_is_kept_as_it_is_spelled_beside_a_guess_too(source):
    said = {
        "tags": {"tags": ["dataset:nyu-mll/glue"]},
        "card": {"card": {"datasets": ["nyu-mll/glue"]}},
        "model-index": {
            "card": {"model-index": [{"results": [{"dataset": {"type": "nyu-mll/glue"}}]}]}
        },
    }[source]

    assert _values(label_of(name="x/bert-imdb", **said)) == ("imdb", "nyu-mll/glue", "name")
    assert _values(label_of(name="x/run-7", **said)) == (None, "nyu-mll/glue", None)
    assert _values(label_of(name="x/bert-imdb")) == ("imdb", "imdb", "name")


@pytest.mark.parametrize("junk", [None, 3, {"a": 1}, [None, {}, 4], [[]]])
def test_junk_is_no_label(junk):
    label = label_of(name="x/y", card={"datasets": junk, "model-index": junk})
    assert _values(label) == (None, None, None)


def test_a_broken_card_is_an_empty_one():
    assert split_card("---\na: [b\n---\nbody") == ({}, "body")
    assert split_card("no front matter")[0] == {}
    front, body = split_card("---\nbase_model:\n- a/b\n- c\n---\nhello")
    assert (card_bases(front), body) == (("a/b", "c"), "hello")


CARD = "---\nbase_model:\n- x/one\n- y/two\n- x/one\n---\nA merge.\n"


@pytest.fixture
def merge(tmp_path):
    folder = make_models(tmp_path) / "a-0"
    (folder / "README.md").write_text(CARD)
    return folder


def test_all_parents_are_claims_and_a_note_and_a_merge_is_of_the_family_of_any(merge):
    member = find_member(str(merge), "b")

    assert member.claims[:2] == ("x/one", "y/two")
    assert member.record.notes == ("its card names the parents 'x/one', 'y/two'",)
    assert member.record.base_raw == "x/one"
    assert Wanted(names=("y/two",)).named_in(member.claims)
    assert not Wanted(names=("z/two",)).named_in(member.claims)
    stranger = refuse_strangers(member, Wanted(names=("three",), config={"model_type": "llama"}))
    assert isinstance(stranger.refusal, ModelError)
    assert "names base 'x/one' and 'y/two'" in stranger.refusal.reason


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (None, ()),
        ("x", ("x",)),
        ([" x ", 3, "", None, "y"], ("x", "y")),
        ({"a": 1}, ()),
        ([f"m{i}" for i in range(10_000)], tuple(f"m{i}" for i in range(MAX_PARENTS))),
    ],
)
def test_whatever_a_card_says_its_bases_are_a_few_names(value, names):
    assert card_bases({"base_model": value}) == names


def test_spellings_of_one_parent_are_no_merge(merge):
    card = CARD.replace("x/one", "google-bert/two").replace("y/two", "two")
    (merge / "README.md").write_text(card)

    assert find_member(str(merge), "b").record.notes == ()
