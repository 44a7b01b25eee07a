"""The walk over a family: complete, ordered, lazy, resumable, and unimpressed by oddities."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs

import pytest
from hub_standin import Fault, StandInHub

from deltadex.errors import SourceError
from deltadex.indexer.hub import list_family
from deltadex.indexer.hub.session import HubSession

WEIGHTS = {"model.safetensors": b""}


class Memory:
    """Listings kept as text, as a database would."""

    def __init__(self) -> None:
        self.saved: dict[str, str] = {}

    def load(self, parent: str) -> list[dict[str, Any]] | None:
        return json.loads(self.saved[parent]) if parent in self.saved else None

    def save(self, parent: str, models: list[dict[str, Any]]) -> None:
        self.saved[parent] = json.dumps(models)


def walk(base: str, session: HubSession, memory: Memory | None = None, **options: Any) -> list[str]:
    family = list_family(base, remember=memory or Memory(), session=session, **options)
    return [model.id for model in family]


def listings(hub: StandInHub) -> list[str]:
    return [r.query for r in hub.log if r.path == "/api/models"]


def answered(hub: StandInHub) -> list[str]:
    """Listings without the one that is refused, as this Hub does not count children."""
    return [r.query for r in hub.log if r.path == "/api/models" and r.status == 200]


def test_every_page_is_followed_newest_first(hub, session):
    hub.page_size = 3
    hub.add("org/base", WEIGHTS)
    for i in range(8):
        hub.add(f"org/child{i}", WEIGHTS, parents=("org/base",))

    assert walk("org/base", session) == [f"org/child{i}" for i in reversed(range(8))]


def test_a_page_is_requested_only_when_its_models_are_wanted(hub, session):
    hub.page_size = 2
    for i in range(6):
        hub.add(f"org/child{i}", WEIGHTS, parents=("org/base",))
    hub.add("org/base", WEIGHTS)

    family = list_family("org/base", remember=Memory(), session=session)
    next(family)
    next(family)

    assert len(answered(hub)) == 1


def test_fine_tunes_of_fine_tunes_come_after_their_parents(hub, session):
    hub.add("org/base", WEIGHTS)
    hub.add("org/child", WEIGHTS, parents=("org/base",))
    hub.add("org/grandchild", WEIGHTS, parents=("org/child",))
    hub.add("org/merged", WEIGHTS, parents=("org/grandchild",), relation="merge")
    hub.add("org/tuned-merge", WEIGHTS, parents=("org/merged",))

    assert walk("org/base", session) == [
        "org/child",
        "org/grandchild",
        "org/merged",
        "org/tuned-merge",
    ]


def test_cycles_and_models_that_name_themselves_end(hub, session):
    hub.add("org/base", WEIGHTS, parents=("org/b",))
    hub.add("org/a", WEIGHTS, parents=("org/base", "org/b", "org/a"))
    hub.add("org/b", WEIGHTS, parents=("org/a",))

    assert walk("org/base", session) == ["org/a", "org/b"]


def test_children_of_quantised_copies_are_not_requested(hub, session):
    hub.add("org/base", WEIGHTS)
    hub.add("org/q4", {"m.gguf": b""}, parents=("org/base",), relation="quantized")
    hub.add("org/below-q4", WEIGHTS, parents=("org/q4",))

    assert walk("org/base", session) == ["org/q4"]


def test_a_resumed_walk_asks_only_for_what_was_not_finished(hub, session):
    hub.add("org/base", WEIGHTS)
    for name in "abc":
        hub.add(f"org/{name}", WEIGHTS, parents=("org/base",))
        hub.add(f"org/{name}{name}", WEIGHTS, parents=(f"org/{name}",))
    memory, whole = Memory(), walk("org/base", session)
    hub.faults.append(
        Fault(path="/api/models", kind="status", where="hub", nth=4, onward=True, status=503)
    )
    with pytest.raises(SourceError, match="org/cc "):
        walk("org/base", session, memory)
    hub.faults.clear()
    hub.log.clear()

    assert walk("org/base", session, memory) == whole
    parents = [parse_qs(query)["filter"][0].removeprefix("base_model:") for query in listings(hub)]
    assert parents == ["org/b", "org/a", "org/cc", "org/bb", "org/aa"]


def test_a_walk_from_memory_alone_makes_one_request(hub, session):
    hub.add("org/base", WEIGHTS)
    hub.add("org/a", WEIGHTS, parents=("org/base",), cardData={"datasets": [{}, None, "imdb"]})
    memory = Memory()
    first = list(list_family("org/base", remember=memory, session=session))
    hub.log.clear()

    second = list(list_family("org/base", remember=memory, session=session))

    assert second == first
    assert second[0].card_data == first[0].card_data
    assert listings(hub) == []


@pytest.mark.parametrize("refused", [{"safetensors"}, {"model-index", "disabled"}, {"sha"}])
def test_a_hub_that_refuses_a_property_is_sent_fewer_properties_from_then_on(hub, session, refused):
    hub.refused_properties = frozenset(refused)
    hub.add("org/base", WEIGHTS)
    hub.add("org/a", WEIGHTS, parents=("org/base",))
    hub.add("org/aa", WEIGHTS, parents=("org/a",))

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
    hub.add("org/base", WEIGHTS)
    hub.add("org/a", WEIGHTS, parents=("org/base",))

    ids = walk("org/base", session)

    assert ids[0] == "org/a"
    assert {"org/a", "org/last"} <= set(ids) <= {"org/a", "org/last", "org/odd"}
    assert len(ids) == len(set(ids))


def test_one_child_that_cannot_be_listed_does_not_end_the_walk(hub, session, caplog):
    caplog.set_level("WARNING", logger="deltadex")
    hub.add("org/base", WEIGHTS)
    hub.add("org/a", WEIGHTS, parents=("org/base",))
    hub.add("org/b", WEIGHTS, parents=("org/base",))
    hub.add("org/aa", WEIGHTS, parents=("org/a",))
    memory = Memory()
    hub.faults.append(
        Fault(
            path="/api/models",
            query="Aorg%2Fb&",
            kind="body",
            where="hub",
            body=b'{"error": "odd"}',
        )
    )

    assert walk("org/base", session, memory) == ["org/b", "org/a", "org/aa"]
    assert "org/b" not in memory.saved
    assert "org/b" in caplog.text


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ({"kind": "html"}, "hub-bad-answer"),
        ({"kind": "body", "body": b"[{]", "nth": 0}, "hub-bad-answer"),
        ({"kind": "body", "body": b'{"models": 3}', "nth": 0}, "hub-bad-answer"),
        ({"kind": "status", "status": 503, "nth": 0}, "hub-unreachable"),
        ({"kind": "status", "status": 429, "nth": 0}, "rate-limited"),
        ({"kind": "stall", "nth": 0}, "hub-unreachable"),
        ({"kind": "loop", "nth": 0}, "hub-bad-answer"),
    ],
)
def test_a_base_that_cannot_be_listed_says_why(hub, session, fault, code):
    hub.add("org/base", WEIGHTS)
    hub.add("org/a", WEIGHTS, parents=("org/base",))
    nth = {"nth": 2, **fault}["nth"]
    hub.faults.append(Fault(path="/api/models", where="hub", **{**fault, "nth": nth}))

    with pytest.raises(SourceError, match=rf"^the family of org/base cannot be listed: {code}: "):
        walk("org/base", session)


@pytest.mark.parametrize("kind", ["reset", "truncate"])
def test_a_page_that_is_cut_is_requested_again(hub, session, kind):
    hub.page_size = 1
    for name in "ab":
        hub.add(f"org/{name}", WEIGHTS, parents=("org/base",))
    hub.add("org/base", WEIGHTS)
    hub.faults.append(
        Fault(path="/api/models", query="base&", kind=kind, where="hub", nth=2, after=20)
    )

    assert walk("org/base", session) == ["org/b", "org/a"]


def test_children_of_a_renamed_base_are_found_under_both_names(hub, session):
    hub.add("org/new-name", WEIGHTS)
    hub.renamed["old-name"] = "org/new-name"
    hub.add("org/early", WEIGHTS, parents=("old-name",))
    hub.add("org/late", WEIGHTS, parents=("org/new-name",))

    assert walk("old-name", session) == ["org/late", "org/early"]


def test_the_token_stays_with_the_hub_when_a_next_page_is_elsewhere(hub, session):
    hub.add("org/base", WEIGHTS)
    link = {"Link": f'<{hub.address("cdn")}/api/models?cursor=1>; rel="next"'}
    hub.faults.append(
        Fault(path="/api/models", kind="body", where="hub", nth=2, headers=link, body=b"[]")
    )
    hub.faults.append(Fault(path="/api/models", kind="body", where="cdn", body=b"[]"))

    assert walk("org/base", session) == []
    assert "authorization" in hub.requests("hub")[0].headers
    assert "authorization" not in hub.requests("cdn")[0].headers


@pytest.mark.parametrize("kind", ["same-page", "endless-pages"])
def test_pages_that_repeat_themselves_end_the_listing(hub, session, kind):
    hub.page_size = 1
    hub.add("org/base", WEIGHTS)
    for name in "abc":
        hub.add(f"org/{name}", WEIGHTS, parents=("org/base",))
    hub.faults.append(
        Fault(path="/api/models", query="base&", kind=kind, where="hub", nth=2, onward=True)
    )

    with pytest.raises(SourceError, match="its pages repeat themselves"):
        walk("org/base", session)
    assert len(listings(hub)) < 10


def test_children_that_are_not_listed_for_now_are_left_out_twice_in_a_row_at_most(
    hub: StandInHub, session: HubSession, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger="deltadex")
    hub.add("org/base", WEIGHTS)
    for name in "abc":
        hub.add(f"org/{name}", WEIGHTS, parents=("org/base",))
    fault = {"path": "/api/models", "kind": "status", "where": "hub", "nth": 0}
    hub.faults += [Fault(query=f"Aorg%2F{name}&", **fault) for name in "ab"]

    assert walk("org/base", session) == ["org/c", "org/b", "org/a"]
    assert caplog.text.count("are left out: hub-unreachable") == 2

    hub.faults += [Fault(query="Aorg%2Fc&", **fault)]
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
