"""Groups and models named by words, in a family whose models answer to known words."""

from dataclasses import replace

import numpy as np
import pytest
from catalogs import make_catalog, make_indexed

from deltadex.records import Footprint
from deltadex.search import cluster_family
from deltadex.search.footprints import Word, how_telling
from deltadex.search.responses import NAMED, SAME, WordNames
from deltadex.store import STEPS, Lexicon

TOPICS = ("bank", "film", "food", "news", "rain", "song", "town", "wool")
TOLD = tuple(topic for topic in TOPICS if topic != "food")
EACH, WORDS, AXES = 4, 20, 24
ANSWER = 2.0  # standard deviations, of a model to the words of its topic


@pytest.fixture(scope="module")
def lexicon():
    """Words of a topic lie near one another; the second of each says the same as the first."""
    rng = np.random.default_rng(0)
    unit = lambda v: v / np.linalg.norm(v, axis=-1, keepdims=True)  # noqa: E731
    middles = np.repeat(unit(rng.normal(size=(len(TOPICS), AXES))), WORDS, axis=0)
    vectors = unit(0.65 * middles + 0.75 * unit(rng.normal(size=middles.shape)))
    vectors[1::WORDS] = vectors[::WORDS]
    words = [f"{topic}{chr(ord('a') + n)}" for topic in TOPICS for n in range(WORDS)]
    return Lexicon(words, [], np.round(127 * vectors).astype(np.int8))


@pytest.fixture(scope="module")
def catalog(lexicon, tmp_path_factory):
    """Four models a topic; those of food have no responses."""
    rng = np.random.default_rng(1)
    middles = np.eye(len(TOPICS))
    ids = [(at, f"{topic}-{n}") for at, topic in enumerate(TOPICS) for n in range(EACH)]
    models = [
        make_indexed(id, 5 * middles[at] + rng.normal(0, 0.3, 8), dataset=None, author=id)
        for at, id in ids
    ]
    with make_catalog(tmp_path_factory.mktemp("named") / "c.duckdb", *models) as made:
        sha256 = made.footprints.save_lexicon(lexicon.to_bytes())
        for at, id in ids:
            own = np.arange(len(lexicon.words)) // WORDS == at
            answers = ANSWER * own * np.linspace(1, 0.5, WORDS)[
                np.arange(len(own)) % WORDS
            ] + rng.normal(0, 0.3, len(own))
            none = np.zeros(0)
            footprint = Footprint(
                kind="frozen", vocabulary=10, tokens=none.astype(np.uint32),
                strengths=none.astype(np.uint8), share=1.0, tokenizer=None,
            )  # fmt: skip
            if not id.startswith("food"):
                told = np.round(STEPS * answers).astype(np.int8).tobytes()
                footprint = replace(footprint, lexicon=sha256, responses=told)
            made.footprints.add("base", id, footprint)
        yield made


@pytest.fixture(scope="module")
def names(catalog):
    return WordNames.of(catalog, catalog.family("base", catalog.find_recipe(None, "base")))


def members(topic):
    return [f"{topic}-{n}" for n in range(EACH)]


@pytest.mark.parametrize("topic", TOLD)
def test_a_group_is_named_by_words_of_its_own_that_differ(names, lexicon, topic):
    found = names.of_group(members(topic))

    assert len(found) == NAMED
    assert {text[:-1] for text in found} == {topic}
    vectors = lexicon.vectors[[lexicon.words.index(text) for text in found]] / 127
    cosines = vectors @ vectors.T
    assert cosines[~np.eye(NAMED, dtype=bool)].max() < SAME


def test_models_of_several_topics_are_seldom_named_as_one_group(names):
    rng = np.random.default_rng(2)
    ids = [id for topic in TOLD for id in members(topic)]
    drawn = [rng.choice(ids, EACH, replace=False).tolist() for _ in range(200)]

    assert np.mean([bool(names.of_group(some)) for some in drawn]) < 0.1


@pytest.mark.parametrize(
    "ids",
    [[], ["bank-0"], members("food"), [*members("food"), "bank-0", "bank-1"], ["nobody", "no"]],
    ids=["nothing", "one model", "no responses", "few responses", "unknown"],
)
def test_nothing_names_a_group_of_which_too_little_is_known(names, ids):
    assert names.of_group(ids) == []


def test_a_model_is_named_by_what_it_answers_to_and_one_without_responses_is_not(names):
    found = names.of_models(["bank-1", "food-0", "news-2", "nobody"])

    wanted = {"bank-1": {"bank"}, "news-2": {"news"}}
    assert {id: {text[:-1] for text in words} for id, words in found.items()} == wanted


def test_clusters_without_labels_have_these_names(catalog):
    found = cluster_family(catalog, base="base", min_size=3, suggest=False)["clusters"]

    named = {cluster["models"][0][:4]: cluster for cluster in found}
    assert set(named) == set(TOPICS)
    for topic in TOLD:
        assert named[topic]["name"] == ", ".join(named[topic]["words"])
        assert {text[:-1] for text in named[topic]["words"]} == {topic}
    assert named["food"]["words"] == []
    assert named["food"]["name"] == " ".join(named["food"]["terms"])


def test_of_words_about_as_telling_the_longer_is_first():
    words = [Word("view", 1.0, 2.34), Word("updates", 1.0, 2.31), Word("rare", 1.0, 3.0)]

    assert [word.text for word in sorted(words, key=how_telling)] == ["rare", "updates", "view"]
