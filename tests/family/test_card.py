"""What a card says: its datasets, and the parents of a merge."""

import pytest
from factories import make_family

from deltadex.errors import ModelError
from deltadex.indexer import family as family_sources
from deltadex.indexer.card import (
    MAX_PARENTS,
    NO_LABEL,
    card_bases,
    label_of,
    normalise,
    split_card,
)
from deltadex.indexer.family import Wanted, find_member, refuse_strangers
from deltadex.indexer.hub import HubModel


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


def test_sources_are_believed_in_order():
    card = {"datasets": ["squad"]}

    tagged = label_of(name="x/y-imdb", tags=["dataset:stanfordnlp/imdb", "license:mit"], card=card)
    carded = label_of(name="x/y", card=card)
    named = label_of(name="someone/bert-finetuned-sst2")
    label = label_of(
        name="x/y", text="This is a fine-tuned version of [a](b) on the emotion dataset. It"
    )

    assert (tagged.dataset, tagged.dataset_raw, tagged.label_source) == (
        "imdb",
        "stanfordnlp/imdb",
        "tags",
    )
    assert (carded.dataset, carded.label_source) == ("squad", "card")
    assert (named.dataset, named.label_source) == ("glue/sst2", "name")
    assert (label.dataset, label.label_source) == ("emotion", "sentence")


def test_the_part_of_a_collection_comes_from_the_model_index_or_the_name():
    index = [
        {"results": [{"dataset": {"type": "glue", "args": "mrpc"}}, {"dataset": None}, 7]},
        None,
    ]

    assert label_of(name="x/y", card={"model-index": index}).dataset == "glue/mrpc"
    assert label_of(name="x/bert-cola", tags=["dataset:glue"]).dataset == "glue/cola"


@pytest.mark.parametrize("junk", [None, 3, {"a": 1}, [None, {}, 4], [[]]])
def test_junk_is_no_label(junk):
    assert label_of(name="x/y", card={"datasets": junk, "model-index": junk}) == NO_LABEL


def test_a_broken_card_is_an_empty_one():
    assert split_card("---\na: [b\n---\nbody") == ({}, "body")
    assert split_card("no front matter")[0] == {}
    front, body = split_card("---\nbase_model:\n- a/b\n- c\n---\nhello")
    assert (card_bases(front), body) == (("a/b", "c"), "hello")


CARD = "---\nbase_model:\n- x/one\n- y/two\n- x/one\n---\nA merge.\n"


@pytest.fixture
def merge(tmp_path):
    folder = make_family(tmp_path) / "a-0"
    (folder / "README.md").write_text(CARD)
    return folder


def test_all_parents_are_claims_and_a_note(merge):
    member = find_member(str(merge), "b")

    assert member.claims[:2] == ("x/one", "y/two")
    assert member.record.notes == ("its card names the parents 'x/one', 'y/two'",)
    assert member.record.base_raw == "x/one"


def test_a_merge_belongs_to_the_family_of_any_parent(merge):
    member = find_member(str(merge), "b")

    assert Wanted(names=("two",)).named_in(member.claims)


def test_a_merge_that_is_skipped_names_all_parents(merge):
    wanted = Wanted(names=("three",), config={"model_type": "llama"})

    refusal = refuse_strangers(find_member(str(merge), "b"), wanted).refusal

    assert isinstance(refusal, ModelError)
    assert "names base 'x/one' and 'y/two'" in refusal.reason


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
    card = CARD.replace("x/one", "google-bert/two")
    (merge / "README.md").write_text(card)

    assert find_member(str(merge), "b").record.notes == ()


def test_parents_on_the_hub_are_named_too(monkeypatch):
    model = HubModel(id="o/m", sha="0" * 40, base_models=("x/one", "y/two"))
    monkeypatch.setattr(family_sources, "describe", lambda id: model)

    assert "'y/two'" in find_member("o/m", "b").record.notes[0]
