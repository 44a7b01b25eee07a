"""The walk over a family: complete, ordered, lazy, resumable, and unimpressed by oddities."""

import json
from dataclasses import replace

import pytest
from hub_standin import Fault, StandInHub
from hypothesis import given, settings
from hypothesis import strategies as st

from deltadex.errors import SourceError
from deltadex.indexer.hub import HubModel, WalkCounts, list_family
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
    family = list_family(base, remember=memory or Memory(), session=session, **options)
    return [model.id for model in family]


def listings(hub):
    """The names whose children were requested, pages and refusals included."""
    queries = [r.query for r in hub.log if r.path == "/api/models"]
    return [query.split("base_model%3Aorg%2F")[1].split("&")[0] for query in queries]


def listing_fault(kind, **options):
    return Fault(path="/api/models", where="hub", kind=kind, **options)


def test_every_page_is_followed_newest_first(hub, session):
    hub.page_size = 3
    grow(hub, **{f"child{i}": "base" for i in range(8)})

    assert walk("org/base", session) == [f"org/child{i}" for i in reversed(range(8))]


def test_a_page_is_requested_only_when_its_models_are_wanted(hub, session):
    hub.page_size = 2
    grow(hub, **{f"child{i}": "base" for i in range(6)})

    family = list_family("org/base", remember=Memory(), session=session)
    next(family)
    next(family)

    # beside the one that is refused, as this Hub does not count children
    assert [r.status for r in hub.log if r.path == "/api/models"].count(200) == 1


def test_fine_tunes_of_fine_tunes_come_after_their_parents(hub, session):
    grow(hub, child="base", grandchild="child")
    hub.add("org/merged", WEIGHTS, parents=("org/grandchild",), relation="merge")
    hub.add("org/tuned-merge", WEIGHTS, parents=("org/merged",))

    found = walk("org/base", session)
    assert found == ["org/child", "org/grandchild", "org/merged", "org/tuned-merge"]


def test_cycles_and_models_that_name_themselves_end(hub, session):
    hub.add("org/base", WEIGHTS, parents=("org/b",))
    hub.add("org/a", WEIGHTS, parents=("org/base", "org/b", "org/a"))
    hub.add("org/b", WEIGHTS, parents=("org/a",))

    assert walk("org/base", session) == ["org/a", "org/b"]


def test_children_of_quantised_copies_are_not_requested(hub, session):
    hub.add("org/base", WEIGHTS)
    hub.add("org/q4", {"m.Q4_K_M.gguf": b""}, parents=("org/base",), relation="quantized")
    hub.add("org/below-q4", WEIGHTS, parents=("org/q4",))

    assert walk("org/base", session) == ["org/q4"]


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


@pytest.mark.parametrize("refused", [{"safetensors"}, {"model-index", "disabled"}, {"sha"}])
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
        {"id": "org/odd", "siblings": [{}], "tags": []},
        {"id": "org/odd", "safetensors": {"parameters": {}}, "tags": []},
        {"id": "org/odd", "createdAt": "yesterday"},
        {"siblings": []},
        "not an object",
        None,
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


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ({"kind": "body", "body": b'{"models": 3}', "nth": 0}, "hub-bad-answer"),
        ({"kind": "status", "status": 503, "nth": 0}, "hub-unreachable"),
        ({"kind": "status", "status": 429, "nth": 0}, "rate-limited"),
    ],
)
def test_a_base_that_cannot_be_listed_says_why(hub, session, fault, code):
    grow(hub, a="base")
    hub.faults.append(listing_fault(**{"nth": 2, **fault}))

    with pytest.raises(SourceError, match=rf"^the family of org/base cannot be listed: {code}: "):
        walk("org/base", session)


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

    model = next(list_family("org/base", remember=Memory(), session=session))

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


COUNTS = [
    *((told, None) for told in (None, "many", {"finetune": None}, {"finetune": -1}, {}, True)),
    ({"finetune": 0, "adapter": 2, "merge": 0, "quantized": 3}, 5),
    (4, 4),
]


@pytest.mark.parametrize(("told", "count"), COUNTS)
def test_counts_of_all_relations_are_added_up_and_one_that_is_none_is_not_taken_for_zero(
    told, count
):
    assert HubModel.from_json({"id": "a/b", "childrenModelCount": told}).n_children == count


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
    first = list(list_family("org/base", remember=memory, session=session))
    hub.behave()

    second = list(list_family("org/base", remember=memory, session=session, counts=counts))

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


def test_a_name_that_cannot_be_looked_up_costs_no_model(hub, session, caplog):
    caplog.set_level("WARNING", logger="deltadex")
    grow(hub, a="base")
    hub.faults.append(Fault(path="/api/models/base", kind="status", where="hub", nth=0, status=503))

    assert counted_walk("org/base", session)[0] == ["org/a"]
    assert "whether base is an earlier name" in caplog.text


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
