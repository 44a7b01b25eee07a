import pytest

from deltadex.indexer.family.card import NO_LABEL, card_bases, label_of, normalise, split_card


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

    assert (tagged.dataset, tagged.raw, tagged.source) == ("imdb", "stanfordnlp/imdb", "tags")
    assert (carded.dataset, carded.source) == ("squad", "card")
    assert (named.dataset, named.source) == ("glue/sst2", "name")
    assert (label.dataset, label.source) == ("emotion", "sentence")


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
