"""A merge's card names several parents."""

import pytest
from factories import make_family

from deltadex.errors import ModelError
from deltadex.indexer.family import Wanted, find_member, refuse_strangers
from deltadex.indexer.family import sources as family_sources
from deltadex.indexer.family.card import MAX_PARENTS, card_bases
from deltadex.indexer.hub import HubModel

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
