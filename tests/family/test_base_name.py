import pytest

from deltadex.indexer.family import base_key
from deltadex.indexer.family.member import same_base

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
    assert same_base(spelling, "google-bert/bert-base-uncased")


@pytest.mark.parametrize(
    "other",
    [
        "bert-base-cased",
        "bert-large-uncased",
        "someone/bert-base-uncased-imdb",
        "distilbert-base-uncased",
        "",
        ".",
        "/",
    ],
)
def test_another_name_is_another_base(other):
    assert not same_base(other, "bert-base-uncased")


def test_the_tuned_release_of_a_base_is_of_its_family_and_not_the_other_way_round():
    assert same_base("google/gemma-3-270m-it", "google/gemma-3-270m")
    assert not same_base("google/gemma-3-270m", "google/gemma-3-270m-it")
    assert same_base("D:\\models\\gemma3-270m", "google/gemma-3-270m-it")
    assert not same_base("gpt2-medium", "gpt2")
