"""Checkpoints on the Hub: the right tensors, few bytes, few requests, cached files first."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from hub_standin import Fault, StandInHub
from safetensors.torch import save

from deltadex.errors import ModelError
from deltadex.indexer.checkpoint import Checkpoint, file_sha256
from deltadex.indexer.hub import (
    content_sha256,
    describe,
    open_hub_adapter,
    open_hub_model,
    read_small_file,
)
from deltadex.indexer.hub.ranged import FIRST_READ, MAX_GAP, RangedFile
from deltadex.indexer.hub.ranged_bin import TAIL
from deltadex.indexer.hub.session import HubSession


def bert_like(
    *, layers: int = 4, width: int = 96, vocabulary: int = 12_000
) -> dict[str, torch.Tensor]:
    """Embeddings that outweigh the layers, as in a small BERT."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    tensors = {"embeddings.word.weight": normal(vocabulary, width)}
    for i in range(layers):
        for name in ("q", "k", "v", "o"):
            tensors[f"encoder.{i}.{name}.weight"] = normal(width, width)
            tensors[f"encoder.{i}.{name}.bias"] = normal(width)
        tensors[f"encoder.{i}.up.weight"] = normal(4 * width, width)
        tensors[f"encoder.{i}.down.weight"] = normal(width, 4 * width)
    tensors["pooler.weight"] = normal(width, width)
    return tensors


def is_wanted(name: str) -> bool:
    return name.startswith("encoder.") and name.endswith(".weight")


def to_bin(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def sharded(tensors: dict[str, torch.Tensor], form: str = "safetensors") -> dict[str, bytes]:
    """A transformers repository of three shards."""
    stem = "model" if form == "safetensors" else "pytorch_model"
    files: dict[str, bytes] = {}
    weight_map: dict[str, str] = {}
    for i in range(3):
        part = {name: tensors[name] for name in list(tensors)[i::3]}
        file = f"{stem}-{i + 1:05d}-of-00003.{form}"
        files[file] = save(part) if form == "safetensors" else to_bin(part)
        weight_map |= dict.fromkeys(part, file)
    files[f"{stem}.{form}.index.json"] = json.dumps({"weight_map": weight_map}).encode()
    return files


def open_repo(hub: StandInHub, session: HubSession, files: dict[str, bytes]) -> Checkpoint:
    hub.add("org/model", files)
    model = describe("org/model", session=session)
    hub.log.clear()
    opener = open_hub_adapter if model.kind == "adapter" else open_hub_model
    return opener(model, session=session)


def assert_same(checkpoint: Checkpoint, tensors: dict[str, torch.Tensor]) -> None:
    assert set(checkpoint.tensors) == set(tensors)
    streamed = dict(checkpoint.stream(tensors))
    for name, expected in tensors.items():
        for actual in (streamed[name], checkpoint.read(name)):
            assert actual.dtype == expected.dtype
            assert torch.equal(actual, expected)
            assert checkpoint.tensors[name].shape == tuple(expected.shape)


ODD = {
    "plain": torch.arange(12, dtype=torch.float32).reshape(3, 4),
    "half": torch.ones(5, 3, dtype=torch.bfloat16),
    "double": torch.ones(2, dtype=torch.float64),
    "mask": torch.tensor([True, False]),
    "scalar": torch.tensor(1.5),
    "empty": torch.zeros(0, 4),
}


@pytest.mark.parametrize(
    "files",
    [
        {"model.safetensors": save(ODD)},
        {"my-model.safetensors": save(ODD)},
        sharded(ODD),
        {"pytorch_model.bin": to_bin(ODD)},
        {"pytorch_model.bin": to_bin({"state_dict": ODD, "epoch": 3})},
        sharded(ODD, "bin"),
        {"adapter_model.safetensors": save(ODD), "adapter_config.json": b"{}"},
        {"adapter_model.bin": to_bin(ODD), "adapter_config.json": b"{}"},
    ],
    ids=lambda files: next(iter(files)),
)
def test_every_form_gives_every_tensor(
    hub: StandInHub, session: HubSession, files: dict[str, bytes]
) -> None:
    checkpoint = open_repo(hub, session, files)

    assert_same(checkpoint, ODD)
    weights = [c for n, c in files.items() if n.endswith((".safetensors", ".bin"))]
    assert checkpoint.bytes_total == sum(map(len, weights))


def test_a_bin_keeps_views_and_transposed_tensors_apart(
    hub: StandInHub, session: HubSession
) -> None:
    whole = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    tensors = {"whole": whole, "rows": whole[1:3], "turned": whole.T, "tied": whole}

    assert_same(open_repo(hub, session, {"pytorch_model.bin": to_bin(tensors)}), tensors)


@pytest.mark.parametrize("form", ["model.safetensors", "pytorch_model.bin"])
def test_only_the_wanted_matrices_travel(hub: StandInHub, session: HubSession, form: str) -> None:
    tensors = bert_like()
    content = save(tensors) if form.endswith("safetensors") else to_bin(tensors)
    wanted = [name for name in tensors if is_wanted(name)]
    needed = sum(tensors[name].nbytes for name in wanted)

    checkpoint = open_repo(hub, session, {form: content})
    got = dict(checkpoint.stream(wanted))

    assert all(torch.equal(got[name], tensors[name]) for name in wanted)
    assert checkpoint.bytes_read == hub.wire_bytes()
    assert needed <= checkpoint.bytes_read < needed + FIRST_READ + TAIL
    assert checkpoint.bytes_read < 0.4 * len(content)
    assert len(hub.requests("hub")) == 1
    assert len(hub.requests("cdn")) <= 5


def test_neighbours_travel_together_and_far_tensors_alone(
    hub: StandInHub, session: HubSession
) -> None:
    far = MAX_GAP // 4 + 256
    sizes = {"a": 64, "b": 64, "c": far, "d": 64, "e": 100, "f": far * 3, "g": 64}
    tensors = {n: torch.full((s,), float(i)) for i, (n, s) in enumerate(sizes.items())}
    padding = {"0": torch.zeros(FIRST_READ)}
    checkpoint = open_repo(hub, session, {"model.safetensors": save(padding | tensors)})
    hub.log.clear()

    got = dict(checkpoint.stream(["g", "b", "a", "d", "e"]))

    assert all(torch.equal(got[n], tensors[n]) for n in got)
    assert list(got) == ["a", "b", "d", "e", "g"]
    assert len(hub.requests("cdn")) == 3


def test_a_header_longer_than_the_first_request_costs_one_more(
    hub: StandInHub, session: HubSession
) -> None:
    tensors = {f"{'x' * 200}.{i}": torch.tensor([float(i)]) for i in range(400)}
    checkpoint = open_repo(hub, session, {"model.safetensors": save(tensors)})

    assert len(hub.requests("cdn")) == 2
    assert_same(checkpoint, tensors)


@pytest.mark.parametrize("seed", range(3))
def test_an_adapter_read_in_any_order_travels_once(
    hub: StandInHub, session: HubSession, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("deltadex.indexer.hub.ranged.AHEAD", 100_000)
    tensors = {f"m.{i}.lora_{x}.weight": torch.randn(8, 128) for i in range(60) for x in "AB"}
    files = {"adapter_model.safetensors": save(tensors), "adapter_config.json": b"{}"}
    checkpoint = open_repo(hub, session, files)

    for name in random.Random(seed).sample(sorted(tensors), len(tensors)):
        assert torch.equal(checkpoint.read(name), tensors[name])
    n_bytes = len(files["adapter_model.safetensors"])
    assert len(hub.requests("cdn")) <= 1 + n_bytes // 100_000 + 1
    assert checkpoint.bytes_read == hub.wire_bytes() <= n_bytes


def test_a_large_adapter_is_not_kept_in_memory(
    hub: StandInHub, session: HubSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltadex.indexer.hub.ranged.AHEAD", 40_000)
    monkeypatch.setattr("deltadex.indexer.hub.ranged.MAX_KEPT", 80_000)
    tensors = {f"m.{i:03}.lora_A.weight": torch.randn(8, 128) for i in range(90)}
    files = {"adapter_model.safetensors": save(tensors), "adapter_config.json": b"{}"}
    checkpoint = open_repo(hub, session, files)
    assert isinstance(checkpoint, RangedFile)

    for name in tensors:
        assert torch.equal(checkpoint.read(name), tensors[name])
        assert sum(map(len, checkpoint._kept.values())) <= 80_000


def test_threads_may_share_a_checkpoint(hub: StandInHub, session: HubSession) -> None:
    tensors = bert_like()
    checkpoint = open_repo(hub, session, {"model.safetensors": save(tensors)})
    wrong: list[str] = []
    hub.signature_uses = 20

    def read(names: list[str]) -> None:
        wrong.extend(n for n in names if not torch.equal(checkpoint.read(n), tensors[n]))

    threads = [threading.Thread(target=read, args=(list(tensors)[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
    assert checkpoint.bytes_read == hub.wire_bytes("cdn") - _refused_bytes(hub)


def _refused_bytes(hub: StandInHub) -> int:
    return sum(r.body_bytes for r in hub.requests("cdn") if r.status == 403)


REFUSED: list[tuple[dict[str, bytes], str]] = [
    ({"README.md": b"x"}, "no-weights"),
    ({"model.safetensors": b""}, "truncated"),
    ({"model.safetensors": save(ODD)[:-1]}, "truncated"),
    ({"model.safetensors": b"\xff" * 200}, "bad-header"),
    ({"pytorch_model.bin": b""}, "truncated"),
    ({"pytorch_model.bin": to_bin(ODD)[:-30]}, "truncated"),
    ({"pytorch_model.bin": b"\x80\x02" + b"0" * 500}, "legacy-pickle"),
    ({"pytorch_model.bin": to_bin([1, 2])}, "unsafe-pickle"),
    ({"pytorch_model.bin": to_bin({"f": io.BytesIO(b"code")})}, "unsafe-pickle"),
    ({"model.safetensors.index.json": b"{}"}, "bad-config"),
    ({"model.safetensors.index.json": b'{"weight_map": {"a": "../x.safetensors"}}'}, "bad-config"),
    ({"model.safetensors.index.json": b'{"weight_map": {"a": "x.safetensors"}}'}, "missing-shard"),
    (
        {
            "model.safetensors.index.json": b'{"weight_map": {"no": "x.safetensors"}}',
            "x.safetensors": save(ODD),
        },
        "missing-tensor",
    ),
]


@pytest.mark.parametrize(("files", "code"), REFUSED, ids=lambda value: str(value)[:50])
def test_bad_files_have_their_codes(
    hub: StandInHub, session: HubSession, files: dict[str, bytes], code: str
) -> None:
    with pytest.raises(ModelError) as caught:
        open_repo(hub, session, files)
    assert caught.value.code == code


def test_a_tensor_that_is_not_there_is_named(hub: StandInHub, session: HubSession) -> None:
    checkpoint = open_repo(hub, session, {"model.safetensors": save(ODD)})

    with pytest.raises(ModelError, match=r"^missing-tensor: .*'nope'"):
        checkpoint.read("nope")
    with pytest.raises(ModelError, match=r"^missing-tensor: .*'nope'"):
        list(checkpoint.stream(["plain", "nope"]))


def test_weights_in_a_subfolder_are_found_there_only(hub: StandInHub, session: HubSession) -> None:
    files = {f"sub/{name}": content for name, content in sharded(ODD).items()}
    hub.add("org/model", files)
    model = describe("org/model", session=session)

    assert_same(open_hub_model(model, subfolder="sub", session=session), ODD)
    with pytest.raises(ModelError, match=r"^no-weights: "):
        open_hub_model(model, session=session)


# content


def test_the_hash_of_a_file_is_known_before_it_is_read(
    hub: StandInHub, session: HubSession, tmp_path: Path
) -> None:
    content = save(ODD)
    hub.add("org/model", {"model.safetensors": content})
    (tmp_path / "copy").write_bytes(content)
    model = describe("org/model", session=session)

    assert content_sha256(model, session=session) == file_sha256(tmp_path / "copy")
    assert hub.requests("cdn") == []
    open_hub_model(model, session=session)
    assert len(hub.requests("hub", "HEAD")) == 1


def test_the_hash_of_shards_depends_on_their_content_alone(
    hub: StandInHub, session: HubSession
) -> None:
    files = sharded(ODD)
    hub.add("org/a", files)
    hub.add("org/b", {**files, "README.md": b"other"})
    changed = next(name for name in files if name.endswith(".safetensors"))
    hub.add("org/c", {**files, changed: save({"plain": torch.zeros(1)})})
    a, b, c = (
        content_sha256(describe(f"org/{x}", session=session), session=session) for x in "abc"
    )
    hashes = [
        hashlib.sha256(content).hexdigest()
        for name, content in files.items()
        if name.endswith(".safetensors")
    ]

    assert a == b == hashlib.sha256("\n".join(sorted(hashes)).encode()).hexdigest()
    assert c != a


# small files


def test_a_small_file_comes_at_the_pinned_commit(hub: StandInHub, session: HubSession) -> None:
    repo = hub.add("org/model", {"config.json": b'{"a": 1}', "extra.bin": b"stored elsewhere"})
    model = describe("org/model", session=session)

    assert read_small_file(model, "config.json", session=session) == b'{"a": 1}'
    assert f"/resolve/{repo.sha}/config.json" in hub.log[-1].path
    assert read_small_file(model, "extra.bin", session=session) == b"stored elsewhere"
    assert "authorization" not in hub.requests("cdn")[-1].headers
    with pytest.raises(ModelError, match=r"^not-found: org/model: README.md"):
        read_small_file(model, "README.md", session=session)


@pytest.mark.parametrize("kind", ["truncate", "reset", "status", "stall"])
def test_a_small_file_is_asked_for_again(hub: StandInHub, session: HubSession, kind: str) -> None:
    hub.add("org/model", {"config.json": b'{"a": 1}'})
    model = describe("org/model", session=session)
    hub.faults.append(Fault(path="config.json", kind=kind, where="hub", after=3))

    assert read_small_file(model, "config.json", session=session) == b'{"a": 1}'


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "html"},
        {"kind": "loop"},
        {"kind": "body", "body": b"{}"},
        {"kind": "body", "body": bytes((16 << 20) + 1), "headers": {"X-Repo-Commit": "*"}},
    ],
    ids=lambda fault: fault["kind"],
)
def test_what_is_not_the_small_file_is_refused(
    hub: StandInHub, session: HubSession, fault: dict[str, Any]
) -> None:
    repo = hub.add("org/model", {"config.json": b"{}"})
    model = describe("org/model", session=session)
    if "headers" in fault:
        fault["headers"] = {"X-Repo-Commit": repo.sha}
    hub.faults.append(Fault(path="config.json", where="hub", nth=0, **fault))

    with pytest.raises(ModelError, match=r"^hub-bad-answer: org/model: config.json"):
        read_small_file(model, "config.json", session=session)


def test_a_gated_file_without_a_token_says_so(hub: StandInHub, session: HubSession) -> None:
    hub.add("org/model", {"model.safetensors": save(ODD)}, gated="auto")
    anonymous = HubSession(endpoint=hub.endpoint, token=False, patience=session.patience)
    model = describe("org/model", session=anonymous)

    with pytest.raises(ModelError, match=r"^gated: org/model"):
        open_hub_model(model, session=anonymous)
    assert_same(open_hub_model(model, session=session), ODD)


# cache


def put_in_cache(cache: Path, repo_id: str, sha: str, name: str, content: bytes) -> None:
    """As huggingface_hub does: a link from the snapshot into the store."""
    folder = cache / f"models--{repo_id.replace('/', '--')}"
    blob = folder / "blobs" / hashlib.sha256(content).hexdigest()
    link = folder / "snapshots" / sha / name
    for path in (blob, link):
        path.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(content)
    link.symlink_to(os.path.relpath(blob, link.parent))


def test_cached_files_are_read_from_the_cache(
    hub: StandInHub, session: HubSession, tmp_path: Path
) -> None:
    files = {**sharded(ODD), "config.json": b'{"hub": 1}'}
    repo = hub.add("org/model", files)
    cached = [name for name in files if "00002" not in name]
    for name in cached:
        put_in_cache(tmp_path, "org/model", repo.sha, name, files[name])
    model = describe("org/model", session=session)
    expected_hash = content_sha256(model, session=session)
    hub.log.clear()

    assert_same(open_hub_model(model, session=session), ODD)
    assert read_small_file(model, "config.json", session=session) == b'{"hub": 1}'
    assert {r.path.rsplit("/", 1)[-1] for r in hub.requests("hub")} <= {
        "model-00002-of-00003.safetensors"
    }
    (tmp_path / "models--org--model").rename(tmp_path / "away")
    assert content_sha256(model, session=session) == expected_hash


def test_offline_only_the_cache_is_read(
    hub: StandInHub, session: HubSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = save(ODD)
    cached = hub.add("org/cached", {"model.safetensors": content})
    hub.add("org/other", {"model.safetensors": content, "config.json": b"{}"})
    put_in_cache(tmp_path, "org/cached", cached.sha, "model.safetensors", content)
    here, other = (describe(f"org/{x}", session=session) for x in ("cached", "other"))
    hub.log.clear()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    assert_same(open_hub_model(here, session=session), ODD)
    with pytest.raises(ModelError, match=r"^offline: org/other"):
        open_hub_model(other, session=session)
    with pytest.raises(ModelError, match=r"^offline: org/other"):
        read_small_file(other, "config.json", session=session)
    assert hub.log == []


def test_a_truncated_cached_file_is_refused_as_such(
    hub: StandInHub, session: HubSession, tmp_path: Path
) -> None:
    content = save(ODD)
    repo = hub.add("org/model", {"model.safetensors": content})
    put_in_cache(tmp_path, "org/model", repo.sha, "model.safetensors", content[:-8])

    with pytest.raises(ModelError, match=r"^truncated: "):
        open_hub_model(describe("org/model", session=session), session=session)
