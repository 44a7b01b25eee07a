"""Checkpoints on the Hub: the right tensors, few bytes, few requests, cached files first."""

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from factories import put_in_cache
from fault_family import PATIENCE, family_hub
from hub_repos import ODD, bert_like, sharded, to_npz
from hub_standin import Fault
from memory_bytes import assert_same, to_bin
from safetensors.torch import save

import deltadex as dx
from deltadex.errors import ModelError
from deltadex.indexer.checkpoint import ALL_TENSORS, WHOLE_TENSORS, ModelFolder
from deltadex.indexer.checkpoint.bin_file import LONGEST_END
from deltadex.indexer.checkpoint.files import TensorFile
from deltadex.indexer.hub import HubWeights, describe, read_small_file


def open_repo(hub, session, files):
    hub.add("org/model", files)
    described = weights(session)
    hub.log.clear()
    return described.open()


def weights(session, id="org/model"):
    return HubWeights(describe(id, session=session), session=session)


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
        {"adapters.npz": to_npz(ODD)},
    ],
    ids=lambda files: next(iter(files)),
)
def test_every_form_gives_every_tensor(hub, session, files):
    checkpoint = open_repo(hub, session, files)

    assert_same(checkpoint, ODD)
    sizes = [len(c) for n, c in files.items() if n.endswith((".safetensors", ".bin", ".npz"))]
    assert checkpoint.bytes_total == sum(sizes)


@pytest.mark.parametrize("form", ["model.safetensors", "pytorch_model.bin"])
def test_only_the_wanted_matrices_travel(hub, session, form):
    tensors = bert_like()
    content = save(tensors) if form.endswith("safetensors") else to_bin(tensors)
    wanted = [n for n in tensors if n.startswith("encoder.") and n.endswith(".weight")]
    needed = sum(tensors[name].nbytes for name in wanted)

    checkpoint = open_repo(hub, session, {form: content})
    got = dict(checkpoint.stream(wanted))

    assert all(torch.equal(got[name], tensors[name]) for name in wanted)
    assert checkpoint.bytes_read == hub.wire_bytes()
    assert needed <= checkpoint.bytes_read < needed + WHOLE_TENSORS.first + LONGEST_END
    assert checkpoint.bytes_read < 0.4 * len(content)
    assert len(hub.requests("hub")) == 1
    assert len(hub.requests("cdn")) <= 5


def test_a_large_adapter_is_not_kept_in_memory(hub, session, monkeypatch):
    plan = replace(ALL_TENSORS, ahead=40_000, memory=80_000)
    monkeypatch.setattr("deltadex.indexer.hub.files.ALL_TENSORS", plan)
    tensors = {f"m.{i:03}.lora_A.weight": torch.randn(8, 128) for i in range(90)}
    files = {"adapter_model.safetensors": save(tensors), "adapter_config.json": b"{}"}
    checkpoint = open_repo(hub, session, files)
    assert isinstance(checkpoint, TensorFile)

    for name in tensors:
        assert torch.equal(checkpoint.read(name), tensors[name])
        assert sum(map(len, checkpoint._source._held.values())) <= 80_000
    assert len(hub.requests("cdn")) < len(tensors) / 4


def test_threads_may_share_a_checkpoint(hub, session):
    tensors = bert_like()
    checkpoint = open_repo(hub, session, {"model.safetensors": save(tensors)})
    wrong = []
    hub.signature_uses = 20

    def read(names):
        wrong.extend(n for n in names if not torch.equal(checkpoint.read(n), tensors[n]))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(read, (list(tensors)[i::4] for i in range(4))))

    assert wrong == []
    answered = [r.body_bytes for r in hub.requests("cdn") if r.status != 403]
    assert checkpoint.bytes_read == sum(answered)


class Watched:
    """A progress that looks at the bytes from a thread of its own, until the first outcome."""

    def __init__(self):
        self.before_the_first: set[tuple[int, int]] = set()
        self.after_each: list[tuple[int, int]] = []
        self._is_first_done = threading.Event()

    def begin(self, models, bytes_total):
        self.models = models

    def reading(self, bytes_read):
        self._bytes_read = bytes_read
        threading.Thread(target=self._look, daemon=True).start()

    def outcome(self, outcome):
        self._is_first_done.set()
        self.after_each.append(self._bytes_read())

    def _look(self):
        while not self._is_first_done.wait(PATIENCE.read_s / 50):
            self.before_the_first.add(self._bytes_read())


def test_bytes_count_before_a_model_is_done_and_are_never_more_than_their_sum(tmp_path):
    with family_hub(tmp_path) as hub, dx.open() as db:
        hub.repos = {id: hub.repos[id] for id in ("org/base", "org/full", "org/adapter")}
        hub.faults.append(Fault(path="/store/", kind="stall", nth=1, after=20_000))
        progress = Watched()
        report = db.index("org/base", hub=True, progress=progress).to_json()

    assert report["indexed"] == progress.models == 2
    assert any(come > 0 for come, _ in progress.before_the_first)
    seen = [*progress.before_the_first, *progress.after_each]
    assert all(come <= total for come, total in seen)
    assert progress.after_each[-1] == (report["bytes_read"], report["bytes_read"])


def test_the_hash_of_a_file_is_known_before_it_is_read(hub, session, tmp_path):
    content = save(ODD)
    hub.add("org/model", {"model.safetensors": content})
    (tmp_path / "copy").write_bytes(content)
    described = weights(session)

    assert described.sha256() == ModelFolder.at(tmp_path).sha256("copy")
    assert hub.requests("cdn") == []
    described.open()
    assert len(hub.requests("hub", "HEAD")) == 1


def test_the_hash_of_shards_depends_on_their_content_alone(hub, session):
    files = sharded(ODD)
    hub.add("org/a", files)
    hub.add("org/b", {**files, "README.md": b"other"})
    changed = next(name for name in files if name.endswith(".safetensors"))
    hub.add("org/c", {**files, changed: save({"plain": torch.zeros(1)})})
    a, b, c = (weights(session, f"org/{x}").sha256() for x in "abc")

    shards = [content for name, content in files.items() if name.endswith(".safetensors")]
    hashes = sorted(hashlib.sha256(content).hexdigest() for content in shards)
    assert a == b == hashlib.sha256("\n".join(hashes).encode()).hexdigest()
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
