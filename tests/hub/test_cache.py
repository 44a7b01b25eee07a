"""Cached files instead of requests; content known by its hash before it is read."""

import hashlib

import pytest
import torch
from hub_repos import ODD, assert_same, put_in_cache, sharded
from safetensors.torch import save

from deltadex.errors import ModelError
from deltadex.indexer.checkpoint import ModelFolder
from deltadex.indexer.hub import HubWeights, describe, read_small_file


def test_the_hash_of_a_file_is_known_before_it_is_read(hub, session, tmp_path):
    content = save(ODD)
    hub.add("org/model", {"model.safetensors": content})
    (tmp_path / "copy").write_bytes(content)
    weights = HubWeights(describe("org/model", session=session), session=session)

    assert weights.sha256() == ModelFolder.at(tmp_path).sha256("copy")
    assert hub.requests("cdn") == []
    weights.open()
    assert len(hub.requests("hub", "HEAD")) == 1


def test_the_hash_of_shards_depends_on_their_content_alone(hub, session):
    files = sharded(ODD)
    hub.add("org/a", files)
    hub.add("org/b", {**files, "README.md": b"other"})
    changed = next(name for name in files if name.endswith(".safetensors"))
    hub.add("org/c", {**files, changed: save({"plain": torch.zeros(1)})})
    a, b, c = (
        HubWeights(describe(f"org/{x}", session=session), session=session).sha256() for x in "abc"
    )
    hashes = [
        hashlib.sha256(content).hexdigest()
        for name, content in files.items()
        if name.endswith(".safetensors")
    ]

    assert a == b == hashlib.sha256("\n".join(sorted(hashes)).encode()).hexdigest()
    assert c != a


def test_cached_files_are_read_from_the_cache(hub, session, tmp_path):
    files = {**sharded(ODD), "config.json": b'{"hub": 1}'}
    repo = hub.add("org/model", files)
    cached = [name for name in files if "00002" not in name]
    for name in cached:
        put_in_cache(tmp_path, "org/model", repo.sha, name, files[name])
    model = describe("org/model", session=session)
    expected_hash = HubWeights(model, session=session).sha256()
    hub.log.clear()

    assert_same(HubWeights(model, session=session).open(), ODD)
    assert read_small_file(model, "config.json", session=session) == b'{"hub": 1}'
    assert {r.path.rsplit("/", 1)[-1] for r in hub.requests("hub")} <= {
        "model-00002-of-00003.safetensors"
    }
    (tmp_path / "models--org--model").rename(tmp_path / "away")
    assert HubWeights(model, session=session).sha256() == expected_hash


def test_offline_only_the_cache_is_read(hub, session, tmp_path, monkeypatch):
    content = save(ODD)
    cached = hub.add("org/cached", {"model.safetensors": content})
    hub.add("org/other", {"model.safetensors": content, "config.json": b"{}"})
    put_in_cache(tmp_path, "org/cached", cached.sha, "model.safetensors", content)
    here, other = (describe(f"org/{x}", session=session) for x in ("cached", "other"))
    hub.log.clear()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    assert_same(HubWeights(here, session=session).open(), ODD)
    with pytest.raises(ModelError, match=r"^offline: org/other"):
        HubWeights(other, session=session).open()
    with pytest.raises(ModelError, match=r"^offline: org/other"):
        read_small_file(other, "config.json", session=session)
    assert hub.log == []


def test_a_truncated_cached_file_is_refused_as_such(hub, session, tmp_path):
    content = save(ODD)
    repo = hub.add("org/model", {"model.safetensors": content})
    put_in_cache(tmp_path, "org/model", repo.sha, "model.safetensors", content[:-8])

    with pytest.raises(ModelError, match=r"^truncated: "):
        HubWeights(describe("org/model", session=session), session=session).open()
