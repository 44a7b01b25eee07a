"""How few requests a walk takes, and which models it finds under earlier names of their parents."""

from dataclasses import replace

import pytest
from hub_standin import Fault, StandInHub
from hypothesis import given, settings
from hypothesis import strategies as st
from test_listing import Memory, listings

from deltadex.indexer.hub import HubModel, WalkCounts, list_family
from deltadex.indexer.hub.session import HubSession

WEIGHTS = {"model.safetensors": b""}


def walk(base, session, memory=None, **options):
    counts = WalkCounts()
    family = list_family(
        base, remember=memory or Memory(), session=session, counts=counts, **options
    )
    return [model.id for model in family], counts


def parents(hub):
    """The names whose children were requested, pages and refusals included."""
    return [query.split("base_model%3A")[1].split("&")[0] for query in listings(hub)]


def test_children_are_requested_only_of_models_that_have_some(hub, session):
    hub.counts_children = True
    hub.add("org/base", WEIGHTS)
    for i in range(30):
        hub.add(f"org/m{i}", WEIGHTS, parents=("org/base" if i < 27 else "org/m0",))

    ids, counts = walk("org/base", session)

    assert len(ids) == 30
    assert parents(hub) == ["org%2Fbase", "org%2Fm0"]
    assert (counts.parents, counts.childless, counts.uncounted) == (2, 29, 0)


def test_without_counts_every_model_is_asked_and_the_walk_says_so(hub, session):
    hub.add("org/base", WEIGHTS)
    for i in range(3):
        hub.add(f"org/m{i}", WEIGHTS, parents=("org/base",))

    ids, counts = walk("org/base", session)

    assert len(ids) == 3
    assert counts.uncounted == 3
    assert counts.childless == 0


@pytest.mark.parametrize("told", [None, "many", {"finetune": None}, {"finetune": -1}, {}, True])
def test_a_count_that_is_none_is_not_taken_for_zero(told):
    assert HubModel.from_json({"id": "a/b", "childrenModelCount": told}).n_children is None


def test_counts_of_all_relations_are_added_up():
    told = {"finetune": 0, "adapter": 2, "merge": 0, "quantized": 3}

    assert HubModel.from_json({"id": "a/b", "childrenModelCount": told}).n_children == 5
    assert HubModel.from_json({"id": "a/b", "childrenModelCount": 4}).n_children == 4


def test_children_that_are_counted_and_not_listed_are_told(hub, session):
    hub.add("org/base", WEIGHTS)
    hub.add("org/a", WEIGHTS, parents=("org/base",))
    memory = Memory()
    told = {"id": "org/a", "tags": ["base_model:org/base"], "childrenModelCount": {"finetune": 3}}
    memory.save("org/base", [told])
    hub.add("org/aa", WEIGHTS, parents=("org/a",))

    ids, counts = walk("org/base", session, memory)

    assert ids == ["org/a", "org/aa"]
    assert counts.unlisted == {"org/a": 2}


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_depth_ends_the_walk_and_the_rest_is_counted(hub, session, depth):
    hub.add("org/base", WEIGHTS)
    for child, parent in (("a", "base"), ("b", "a"), ("c", "b"), ("d", "c")):
        hub.add(f"org/{child}", WEIGHTS, parents=(f"org/{parent}",))

    ids, counts = walk("org/base", session, depth=depth)

    assert ids == ["org/a", "org/b", "org/c"][:depth]
    assert counts.below_depth == 1


def test_children_that_name_the_base_without_its_owner_are_found(hub, session):
    hub.renamed["base"] = "org/base"
    hub.add("org/base", WEIGHTS)
    hub.add("org/late", WEIGHTS, parents=("org/base",))
    hub.add("org/early", WEIGHTS, parents=("base",))

    ids, counts = walk("org/base", session)

    assert ids == ["org/late", "org/early"]
    assert counts.renamed == {"base": "org/base"}


def test_children_that_name_a_parents_earlier_owner_are_found(hub, session):
    hub.renamed["old/mid"] = "new/mid"
    hub.add("org/base", WEIGHTS)
    hub.add("new/mid", WEIGHTS, parents=("org/base",))
    hub.add("org/merged", WEIGHTS, parents=("old/mid", "org/base"), relation="merge")
    hub.add("org/child", WEIGHTS, parents=("old/mid",))

    ids, counts = walk("org/base", session)

    assert sorted(ids) == ["new/mid", "org/child", "org/merged"]
    assert counts.renamed == {"old/mid": "new/mid"}


def test_a_card_that_disagrees_with_its_tag_tells_an_earlier_name(hub, session):
    hub.renamed["org/first-name"] = "org/mid"
    hub.add("org/base", WEIGHTS)
    hub.add("org/mid", WEIGHTS, parents=("org/base",))
    card = {"base_model": "org/first-name"}
    hub.add("org/tagged-anew", WEIGHTS, parents=("org/mid",), cardData=card)
    hub.add("org/tagged-before", WEIGHTS, parents=("org/first-name",), cardData=card)

    ids, _ = walk("org/base", session)

    assert sorted(ids) == ["org/mid", "org/tagged-anew", "org/tagged-before"]


def test_a_listing_that_is_redirected_gives_one_family(hub, session):
    hub.redirects_listings = True
    hub.add("org/base", WEIGHTS)
    hub.add("org/mid", WEIGHTS, parents=("org/base",))
    hub.add("org/renamed-mid", WEIGHTS, parents=("org/base",))
    hub.add("org/child", WEIGHTS, parents=("org/renamed-mid",))
    hub.renamed["org/mid"] = "org/renamed-mid"

    ids, counts = walk("org/base", session)

    assert sorted(ids) == ["org/child", "org/mid", "org/renamed-mid"]
    assert len(ids) == len(set(ids))
    assert counts.renamed == {"org/mid": "org/renamed-mid"}


def test_a_name_that_another_model_has_now_is_not_followed(hub, session):
    hub.add("org/base", WEIGHTS)
    hub.add("new/mid", WEIGHTS, parents=("org/base",))
    hub.add("old/mid", WEIGHTS)
    hub.add("org/merged", WEIGHTS, parents=("old/mid", "org/base"), relation="merge")
    hub.add("org/stranger", WEIGHTS, parents=("old/mid",))

    ids, counts = walk("org/base", session)

    assert sorted(ids) == ["new/mid", "org/merged"]
    assert counts.renamed == {}


def test_children_of_an_alias_are_the_bases(hub, session):
    hub.add("org/base", WEIGHTS)
    hub.add("org/a", WEIGHTS, parents=("org/base",))
    hub.add("org/b", WEIGHTS, parents=("mirror/base-copy",))

    ids, _ = walk("org/base", session, aliases=("mirror/base-copy", "./no/id"))

    assert ids == ["org/a", "org/b"]


def test_a_remembered_walk_looks_no_name_up_again(hub, session):
    hub.renamed["base"] = "org/base"
    hub.add("org/base", WEIGHTS)
    hub.add("org/mid", WEIGHTS, parents=("org/base",))
    hub.add("org/early", WEIGHTS, parents=("base", "old/mid"))
    memory = Memory()
    first, _ = walk("org/base", session, memory)
    hub.behave()

    second, counts = walk("org/base", session, memory)

    assert second == first
    assert [request.path for request in hub.log] == ["/api/models/org/base"]
    assert counts.remembered == counts.parents


def test_what_is_listed_without_a_token_is_not_taken_for_what_a_token_shows(hub, session):
    hub.add("org/base", WEIGHTS)
    hub.add("org/a", WEIGHTS, parents=("org/base",))
    memory = Memory()
    walk("org/base", replace(session, token=False), memory)
    hub.add("org/private", WEIGHTS, parents=("org/base",))

    with_token, _ = walk("org/base", session, memory)
    without, _ = walk("org/base", replace(session, token=False), memory)

    assert with_token == ["org/private", "org/a"]
    assert without == ["org/a"]


def test_a_name_that_cannot_be_looked_up_costs_no_model(hub, session, caplog):
    caplog.set_level("WARNING", logger="deltadex")
    hub.add("org/base", WEIGHTS)
    hub.add("org/a", WEIGHTS, parents=("org/base",))
    hub.faults.append(Fault(path="/api/models/base", kind="status", where="hub", nth=0, status=503))

    assert walk("org/base", session)[0] == ["org/a"]
    assert "whether base is an earlier name" in caplog.text


def test_requests_are_counted_by_kind_with_the_limits_that_the_hub_states(hub, session):
    hub.limits = {"api": 700}
    hub.add("org/base", WEIGHTS)
    hub.add("org/a", WEIGHTS, parents=("org/base",))

    walk("org/base", session)

    assert session.traffic.counts == {"api": len(hub.log)}
    assert {kind: limit.requests for kind, limit in session.traffic.limits.items()} == {"api": 700}


@settings(max_examples=15)
@given(
    parents=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    counted=st.booleans(),
)
def test_every_descendant_is_found_once_in_any_tree(parents, counted):
    """The walk against a tree that is walked in memory."""
    children = {}
    for i, parent in enumerate(parents):
        name = f"org/m{parent}" if parent < i else "org/base"
        children.setdefault(name, []).append(f"org/m{i}")
    memory = Memory()
    for name in ["org/base", *(f"org/m{i}" for i in range(len(parents)))]:
        memory.save(
            name,
            [
                {"id": id} | ({"childrenModelCount": len(children.get(id, ()))} if counted else {})
                for id in children.get(name, ())
            ],
        )
    memory.save("base#current", [{"current": None}])
    with StandInHub() as hub:
        hub.add("org/base")
        session = HubSession(endpoint=hub.endpoint, token="hf_T")
        ids, counts = walk("org/base", session, memory)

    assert sorted(ids) == sorted(f"org/m{i}" for i in range(len(parents)))
    assert counts.parents == (len(children) if counted else len(parents) + 1)
