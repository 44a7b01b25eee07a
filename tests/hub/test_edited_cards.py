"""What a second run reads of models whose commit is new and whose weights are not."""

import json
from dataclasses import replace

import pytest
from fault_family import MEMBERS, run

from deltadex.questions.index import show_report
from deltadex.store import Catalog

INDEX = ("index", "org/base", "--hub")
CARD = b"---\ndatasets: [imdb]\n---\n# A model\n"


@pytest.fixture
def hub(family, monkeypatch):
    """The family, whose repositories are after the test as they were before."""
    monkeypatch.setattr(
        family, "repos", {id: replace(repo, earlier={}) for id, repo in family.repos.items()}
    )
    return family


def test_an_edited_card_brings_its_label_and_no_byte_of_weights(hub, tmp_path):
    before = run(tmp_path, *INDEX)
    for id in MEMBERS:
        hub.commit(id, {"README.md": CARD}, cardData={"datasets": ["imdb"]})
    hub.behave()

    after = run(tmp_path, *INDEX)

    document = json.loads(after.stdout)
    assert hub.wire_bytes("cdn") == document["bytes_read"] == 0
    assert (document["indexed"], document["failed"]) == (len(MEMBERS), [])
    assert after.vectors == before.vectors
    with Catalog.open(tmp_path / "c.duckdb", read_only=True, create=False) as catalog:
        labels = {row.id: (row.dataset, row.revision) for row in catalog.models()}
    assert labels == {id: ("imdb", hub.repos[id].sha) for id in MEMBERS}
    assert json.loads(run(tmp_path, *INDEX).stdout)["unchanged"] == len(MEMBERS)


def test_where_the_earlier_commit_is_gone_only_adapters_are_read_again(hub, tmp_path):
    run(tmp_path, *INDEX)
    for id in MEMBERS:
        hub.commit(id, {"README.md": CARD})
        hub.repos[id].earlier.clear()
    hub.behave()

    document = json.loads(run(tmp_path, *INDEX).stdout)

    adapter = len(hub.repos["org/adapter"].files["adapter_model.safetensors"])
    assert document["indexed"] == len(MEMBERS)
    assert document["bytes_read"] <= adapter + 1000


def test_weights_are_read_again_where_the_config_that_says_how_is_another(hub, tmp_path):
    run(tmp_path, *INDEX)
    config = json.loads(hub.repos["org/adapter"].files["adapter_config.json"])
    changed = json.dumps({**config, "lora_alpha": 96}).encode()
    hub.commit("org/adapter", {"adapter_config.json": changed})
    hub.behave()

    after = run(tmp_path, *INDEX)

    assert json.loads(after.stdout)["bytes_read"] > 0
    assert after.codes["org/adapter"] == "indexed"


def test_models_that_the_hub_lists_no_more_are_named_by_a_run_over_all_of_it(hub, tmp_path):
    run(tmp_path, *INDEX)
    hub.add("org/untagged", hub.repos.pop("org/full").files)
    run(tmp_path, "add", "org/untagged", "--base", "org/base")

    part, whole = (json.loads(run(tmp_path, *INDEX, *more).stdout) for more in (["--depth=9"], []))

    assert (part["unlisted"], whole["unlisted"]) == ([], ["org/full"])
    assert [*show_report(whole)][-1] == "no longer listed on the Hub: 1 indexed model (org/full)"
