"""The walk over a family: complete, ordered, lazy, resumable, and unimpressed by oddities."""

import json
from dataclasses import replace

import pytest
from hub_standin import Fault, StandInHub
from hypothesis import given, settings
from hypothesis import strategies as st

from deltadex.errors import SourceError
from deltadex.indexer.hub import FamilyWalk, WalkCounts
from deltadex.indexer.hub.session import HubSession

WEIGHTS = {"model.safetensors": b""}


class Memory:
    """Listings kept as text, as a database would."""

    def __init__(self):
        self.saved: dict[str, str] = {}

    def load(self, parent):
        return json.loads(self.saved[parent]) if parent in self.saved else None

    def save(self, parent, models):
        self.saved[parent] = json.dumps(models)


def grow(hub, **children):
    """The base, and each child of the parent that it is said to have."""
    hub.add("org/base", WEIGHTS)
    for child, parent in children.items():
        hub.add(f"org/{child}", WEIGHTS, parents=(f"org/{parent}",))


def walk(base, session, memory=None, **options):
    family = FamilyWalk(base=base, memory=memory or Memory(), session=session, **options)
    return [model.id for model in family]


def listings(hub):
    """The names whose children were requested, pages and refusals included."""
    queries = [r.query for r in hub.log if r.path == "/api/models"]
    return [query.split("base_model%3Aorg%2F")[1].split("&")[0] for query in queries]


def listing_fault(kind, **options):
    return Fault(path="/api/models", where="hub", kind=kind, **options)


def test_a_family_is_walked_newest_first_through_cycles_and_not_below_quantised_copies(
    hub, session
):
    hub.page_size = 2
    hub.add("org/base", WEIGHTS, parents=("org/grandchild",))
    hub.add("org/old", WEIGHTS, parents=("org/base", "org/old"))
    hub.add("org/q4", {"m.Q4_K_M.gguf": b""}, parents=("org/base",), relation="quantized")
    hub.add("org/below-q4", WEIGHTS, parents=("org/q4",))
    hub.add("org/child", WEIGHTS, parents=("org/base", "org/grandchild"))
    hub.add("org/grandchild", WEIGHTS, parents=("org/child",))
    hub.add("org/merged", WEIGHTS, parents=("org/grandchild",), relation="merge")

    family = iter(FamilyWalk(base="org/base", memory=Memory(), session=session))
    first = [next(family).id, next(family).id]
    # a page is requested when its models are wanted; the other is refused: children are not counted
    assert [r.status for r in hub.log if r.path == "/api/models"] == [400, 200]
    found = [*first, *(model.id for model in family)]

    assert found == ["org/child", "org/q4", "org/old", "org/grandchild", "org/merged"]


def test_a_resumed_walk_asks_only_for_what_was_not_finished(hub, session):
    grow(hub, a="base", aa="a", b="base", bb="b", c="base", cc="c")
    memory, whole = Memory(), walk("org/base", session)
    hub.faults.append(listing_fault("status", nth=4, onward=True, status=503))
    with pytest.raises(SourceError, match="org/cc "):
        walk("org/base", session, memory)
    hub.faults.clear()
    hub.log.clear()

    assert walk("org/base", session, memory) == whole
    assert listings(hub) == ["b", "a", "cc", "bb", "aa"]


@pytest.mark.parametrize("refused", [{"model-index", "disabled"}, {"sha"}])
def test_a_hub_that_refuses_a_property_is_sent_fewer_properties_from_then_on(hub, session, refused):
    hub.refused_properties = frozenset(refused)
    grow(hub, a="base", aa="a")

    assert walk("org/base", session) == ["org/a", "org/aa"]
    n_refused = sum(r.status == 400 for r in hub.log)
    # the count of children is refused first
    assert n_refused == (3 if refused == {"sha"} else 2)


@pytest.mark.parametrize(
    "odd",
    [
        {"id": "org/odd", "siblings": [{}], "safetensors": {"parameters": {}}, "tags": []},
        {"siblings": []},
        "not an object",
    ],
)
def test_an_entry_that_huggingface_hub_cannot_read_costs_no_other_model(hub, session, odd):
    hub.page_size = 2
    hub.raw_entries = [odd, {"id": "org/last", "siblings": [{"rfilename": "model.safetensors"}]}]
    grow(hub, a="base")

    ids = walk("org/base", session)

    assert ids[0] == "org/a"
    assert {"org/a", "org/last"} <= set(ids) <= {"org/a", "org/last", "org/odd"}
    assert len(ids) == len(set(ids))


def test_the_token_stays_with_the_hub_when_a_next_page_is_elsewhere(hub, session):
    hub.add("org/base", WEIGHTS)
    link = {"Link": f'<{hub.address("cdn")}/api/models?cursor=1>; rel="next"'}
    hub.faults.append(listing_fault("body", nth=2, headers=link, body=b"[]"))
    hub.faults.append(Fault(path="/api/models", kind="body", where="cdn", body=b"[]"))

    assert walk("org/base", session) == []
    assert "authorization" in hub.requests("hub")[0].headers
    assert "authorization" not in hub.requests("cdn")[0].headers


@pytest.mark.parametrize("kind", ["same-page", "endless-pages"])
def test_pages_that_repeat_themselves_end_the_listing(hub, session, kind):
    hub.page_size = 1
    grow(hub, a="base", b="base", c="base")
    hub.faults.append(listing_fault(kind, query="base&", nth=2, onward=True))

    with pytest.raises(SourceError, match="its pages repeat themselves"):
        walk("org/base", session)
    assert len(listings(hub)) < 10


def test_children_that_are_not_listed_for_now_are_left_out_twice_in_a_row_at_most(
    hub, session, caplog
):
    caplog.set_level("WARNING", logger="deltadex")
    grow(hub, a="base", b="base", c="base")
    hub.faults += [listing_fault("status", query=f"Aorg%2F{name}&", nth=0) for name in "ab"]

    assert walk("org/base", session) == ["org/c", "org/b", "org/a"]
    assert caplog.text.count("are left out: hub-unreachable") == 2

    hub.faults.append(listing_fault("status", query="Aorg%2Fc&", nth=0))
    with pytest.raises(SourceError, match="the family of org/a cannot be listed"):
        walk("org/base", session)


@pytest.mark.parametrize("downloads", [1 << 70, -1])
def test_what_no_catalog_could_hold_is_mended_or_left_out(hub, session, downloads):
    hub.add("org/base", WEIGHTS)
    odd = {"createdAt": "yesterday", "downloads": downloads, "pipeline_tag": "\ud800x"}
    hub.raw_entries = [{"id": "../etc"}, {"id": "a\x00b"}, {"id": "org/odd", **odd}]

    model = next(iter(FamilyWalk(base="org/base", memory=Memory(), session=session)))

    assert model.id == "org/odd"
    assert (model.created_at, model.downloads) == (None, None)
    assert model.pipeline_tag == "\ufffdx"


def counted_walk(base, session, memory=None, **options):
    counts = WalkCounts()
    return walk(base, session, memory, counts=counts, **options), counts


@pytest.mark.parametrize("counts_children", [True, False])
def test_children_are_requested_only_of_models_that_have_some_or_are_not_counted(
    hub, session, counts_children
):
    hub.counts_children = counts_children
    grow(hub, **{f"m{i}": "base" if i < 27 else "m0" for i in range(30)})

    ids, counts = counted_walk("org/base", session)

    assert len(ids) == 30
    if counts_children:
        assert listings(hub) == ["base", "m0"]
    counted = (2, 29, 0) if counts_children else (31, 0, 30)
    assert (counts.parents, counts.childless, counts.uncounted) == counted


def test_children_that_are_counted_and_not_listed_are_told(hub, session):
    grow(hub, a="base")
    memory = Memory()
    told = {"id": "org/a", "tags": ["base_model:org/base"], "childrenModelCount": {"finetune": 3}}
    memory.save("org/base", [told])
    hub.add("org/aa", WEIGHTS, parents=("org/a",))

    ids, counts = counted_walk("org/base", session, memory)

    assert ids == ["org/a", "org/aa"]
    assert counts.unlisted == {"org/a": 2}


@pytest.mark.parametrize("depth", [1, 3])
def test_a_depth_ends_the_walk_and_the_rest_is_counted(hub, session, depth):
    grow(hub, a="base", b="a", c="b", d="c")

    ids, counts = counted_walk("org/base", session, depth=depth)

    assert ids == ["org/a", "org/b", "org/c"][:depth]
    assert counts.below_depth == 1


@pytest.mark.parametrize("name", ["org/base", "base"])
def test_children_that_name_the_base_without_its_owner_are_found(hub, session, name):
    hub.renamed["base"] = "org/base"
    grow(hub, late="base")
    hub.add("org/early", WEIGHTS, parents=("base",))

    ids, counts = counted_walk(name, session)

    assert ids == ["org/late", "org/early"]
    assert counts.renamed == {"base": "org/base"}


def test_a_listing_that_is_redirected_gives_one_family(hub, session):
    hub.redirects_listings = True
    grow(hub, mid="base")
    hub.add("org/renamed-mid", WEIGHTS, parents=("org/base",))
    hub.add("org/child", WEIGHTS, parents=("org/renamed-mid",))
    hub.renamed["org/mid"] = "org/renamed-mid"

    ids, counts = counted_walk("org/base", session)

    assert sorted(ids) == ["org/child", "org/mid", "org/renamed-mid"]
    assert len(ids) == len(set(ids))
    assert counts.renamed == {"org/mid": "org/renamed-mid"}


def test_a_bare_name_that_another_model_has_is_not_followed(hub, session):
    grow(hub, a="base")
    hub.add("base", WEIGHTS)
    hub.add("org/stranger", WEIGHTS, parents=("base",))

    ids, counts = counted_walk("org/base", session)

    assert (ids, counts.renamed) == (["org/a"], {})


def test_children_of_an_alias_are_the_bases(hub, session):
    grow(hub, a="base")
    hub.add("org/b", WEIGHTS, parents=("mirror/base-copy",))

    ids, _ = counted_walk("org/base", session, aliases=("mirror/base-copy", "./no/id"))

    assert ids == ["org/a", "org/b"]


def test_a_remembered_walk_looks_no_name_up_again(hub, session):
    hub.renamed["base"] = "org/base"
    grow(hub, mid="base")
    card = {"datasets": [{}, None, "imdb"]}
    hub.add("org/early", WEIGHTS, parents=("base", "old/mid"), cardData=card)
    memory, counts = Memory(), WalkCounts()
    first = list(FamilyWalk(base="org/base", memory=memory, session=session))
    hub.behave()

    second = list(FamilyWalk(base="org/base", memory=memory, session=session, counts=counts))

    assert second == first
    assert [model.card_data for model in second] == [model.card_data for model in first]
    assert [request.path for request in hub.log] == ["/api/models/org/base"]
    assert counts.remembered == counts.parents


def test_what_is_listed_without_a_token_is_not_taken_for_what_a_token_shows(hub, session):
    grow(hub, a="base")
    memory = Memory()
    counted_walk("org/base", replace(session, token=False), memory)
    hub.add("org/private", WEIGHTS, parents=("org/base",))

    with_token, _ = counted_walk("org/base", session, memory)
    without, _ = counted_walk("org/base", replace(session, token=False), memory)

    assert with_token == ["org/private", "org/a"]
    assert without == ["org/a"]


@settings(max_examples=8)
@given(parents=st.lists(st.integers(0, 9), min_size=1, max_size=12), counted=st.booleans())
def test_every_descendant_is_found_once_in_any_tree(parents, counted):
    """The walk against a tree that is walked in memory."""
    children = {}
    for i, parent in enumerate(parents):
        name = f"org/m{parent}" if parent < i else "org/base"
        children.setdefault(name, []).append(f"org/m{i}")
    memory = Memory()
    for name in ["org/base", *(f"org/m{i}" for i in range(len(parents)))]:
        listed = [{"id": id} for id in children.get(name, ())]
        if counted:
            listed = [m | {"childrenModelCount": len(children.get(m["id"], ()))} for m in listed]
        memory.save(name, listed)
    memory.save("base#current", [{"current": None}])
    with StandInHub() as hub:
        hub.add("org/base")
        session = HubSession(endpoint=hub.endpoint, token="hf_T")
        ids, counts = counted_walk("org/base", session, memory)

    assert sorted(ids) == sorted(f"org/m{i}" for i in range(len(parents)))
    assert counts.parents == (len(children) if counted else len(parents) + 1)
