"""Checkpoints on the Hub: the right tensors, few bytes, few requests, cached files first."""

import hashlib
import io
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from factories import make_checkpoint
from fault_family import PATIENCE, family_hub
from hub_repos import ODD, assert_same, bert_like, put_in_cache, sharded, to_bin, to_npz
from hub_standin import Fault
from safetensors.torch import save

import deltadex as dx
from deltadex.errors import ModelError
from deltadex.indexer.base import Base
from deltadex.indexer.checkpoint import ALL_TENSORS, WHOLE_TENSORS, ModelFolder
from deltadex.indexer.checkpoint.bin_file import LONGEST_END
from deltadex.indexer.checkpoint.files import TensorFile
from deltadex.indexer.family import Wanted, find_member, member_of
from deltadex.indexer.fingerprint import make_recipe
from deltadex.indexer.hub import HubWeights, describe, read_small_file
from deltadex.indexer.job import IndexJob
from deltadex.indexer.run import fingerprint_member
from deltadex.records import Indexed


def is_wanted(name):
    return name.startswith("encoder.") and name.endswith(".weight")


def open_repo(hub, session, files):
    hub.add("org/model", files)
    described = weights(session)
    hub.log.clear()
    return described.open()


def weights(session, id="org/model"):
    return HubWeights(describe(id, session=session), session=session)


def read_ahead(monkeypatch, **sizes):
    monkeypatch.setattr("deltadex.indexer.hub.files.ALL_TENSORS", replace(ALL_TENSORS, **sizes))


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
    wanted = [name for name in tensors if is_wanted(name)]
    needed = sum(tensors[name].nbytes for name in wanted)

    checkpoint = open_repo(hub, session, {form: content})
    got = dict(checkpoint.stream(wanted))

    assert all(torch.equal(got[name], tensors[name]) for name in wanted)
    assert checkpoint.bytes_read == hub.wire_bytes()
    assert needed <= checkpoint.bytes_read < needed + WHOLE_TENSORS.first + LONGEST_END
    assert checkpoint.bytes_read < 0.4 * len(content)
    assert len(hub.requests("hub")) == 1
    assert len(hub.requests("cdn")) <= 5


def test_neighbours_travel_together_and_far_tensors_alone(hub, session):
    far = WHOLE_TENSORS.gap // 4 + 256
    sizes = {"a": 64, "b": 64, "c": far, "d": 64, "e": 100, "f": far * 3, "g": 64}
    tensors = {n: torch.full((s,), float(i)) for i, (n, s) in enumerate(sizes.items())}
    padding = {"0": torch.zeros(WHOLE_TENSORS.first)}
    checkpoint = open_repo(hub, session, {"model.safetensors": save(padding | tensors)})
    hub.log.clear()

    got = dict(checkpoint.stream(["g", "b", "a", "d", "e"]))

    assert all(torch.equal(got[n], tensors[n]) for n in got)
    assert list(got) == ["a", "b", "d", "e", "g"]
    assert len(hub.requests("cdn")) == 3


def test_a_header_longer_than_the_first_request_costs_one_more(hub, session):
    tensors = {f"{'x' * 200}.{i}": torch.tensor([float(i)]) for i in range(400)}
    checkpoint = open_repo(hub, session, {"model.safetensors": save(tensors)})

    assert len(hub.requests("cdn")) == 2
    assert_same(checkpoint, tensors)


def test_an_adapter_read_in_any_order_travels_once(hub, session, monkeypatch):
    read_ahead(monkeypatch, ahead=100_000)
    tensors = {f"m.{i}.lora_{x}.weight": torch.randn(8, 128) for i in range(60) for x in "AB"}
    files = {"adapter_model.safetensors": save(tensors), "adapter_config.json": b"{}"}
    checkpoint = open_repo(hub, session, files)

    for name in random.Random(0).sample(sorted(tensors), len(tensors)):
        assert torch.equal(checkpoint.read(name), tensors[name])
    n_bytes = len(files["adapter_model.safetensors"])
    assert len(hub.requests("cdn")) <= 1 + n_bytes // 100_000 + 1
    assert checkpoint.bytes_read == hub.wire_bytes() <= n_bytes


def test_a_large_adapter_is_not_kept_in_memory(hub, session, monkeypatch):
    read_ahead(monkeypatch, ahead=40_000, memory=80_000)
    tensors = {f"m.{i:03}.lora_A.weight": torch.randn(8, 128) for i in range(90)}
    files = {"adapter_model.safetensors": save(tensors), "adapter_config.json": b"{}"}
    checkpoint = open_repo(hub, session, files)
    assert isinstance(checkpoint, TensorFile)

    for name in tensors:
        assert torch.equal(checkpoint.read(name), tensors[name])
        assert sum(map(len, checkpoint._ahead.values())) <= 80_000


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


NO_TENSOR = b'{"weight_map": {"no": "x.safetensors"}}'
REFUSED = [
    ({"README.md": b"x"}, "no-weights"),
    ({"model.safetensors": b""}, "truncated"),
    ({"model.safetensors": save(ODD)[:-1]}, "truncated"),
    ({"pytorch_model.bin": to_bin(ODD)[:-30]}, "truncated"),
    ({"pytorch_model.bin": to_bin({"f": io.BytesIO(b"code")})}, "unsafe-pickle"),
    ({"model.safetensors.index.json": b'{"weight_map": {"a": "../x.safetensors"}}'}, "bad-config"),
    ({"model.safetensors.index.json": b'{"weight_map": {"a": "x.safetensors"}}'}, "missing-shard"),
    ({"model.safetensors.index.json": NO_TENSOR, "x.safetensors": save(ODD)}, "missing-tensor"),
]


@pytest.mark.parametrize(("files", "code"), REFUSED, ids=lambda value: str(value)[:50])
def test_bad_files_have_their_codes(hub, session, files, code):
    with pytest.raises(ModelError, match=f"^{code}: "):
        open_repo(hub, session, files)


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


def test_a_truncated_cached_file_is_refused_as_such(hub, session, tmp_path):
    content = save(ODD)
    repo = hub.add("org/model", {"model.safetensors": content})
    put_in_cache(tmp_path, "org/model", repo.sha, "model.safetensors", content[:-8])

    with pytest.raises(ModelError, match=r"^truncated: "):
        weights(session).open()


CONFIG = {
    "model_type": "mixtral",
    "hidden_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 3,
}


def tensors(seed):
    """Two layers as transformers 5 holds them; from seed 1 on a fine-tune of seed 0."""
    shapes = {
        "self_attn.q_proj.weight": (24, 24),
        "self_attn.k_proj.weight": (12, 24),
        "self_attn.v_proj.weight": (12, 24),
        "self_attn.o_proj.weight": (24, 24),
        "mlp.gate.weight": (3, 24),
        "mlp.experts.gate_up_proj": (3, 80, 24),
        "mlp.experts.down_proj": (3, 24, 40),
    }
    base, change = (torch.Generator().manual_seed(s) for s in (0, seed))
    made = {}
    for layer in range(2):
        for name, shape in shapes.items():
            weight = torch.randn(shape, generator=base)
            if seed:
                weight += 0.1 * torch.randn(shape, generator=change)
            made[f"model.layers.{layer}.{name}"] = weight
    return made


def fingerprint(base, member):
    job = IndexJob(
        base=base,
        wanted=Wanted(names=("org/base",)),
        recipes=[make_recipe("sketch", 4, ())],
        layout=(),
        threads=2,
    )
    outcome = fingerprint_member(member, job)  # type: ignore[arg-type]
    assert isinstance(outcome, Indexed), outcome
    return outcome


@pytest.mark.parametrize("form", ["safetensors", "bin"])
def test_a_remote_mixture_of_experts_has_the_fingerprint_of_its_files(hub, session, tmp_path, form):
    for name, seed in (("base", 0), ("tuned", 1)):
        folder = make_checkpoint(tmp_path / name, tensors(seed), config=CONFIG, form=form)
        hub.add(f"org/{name}", {p.name: p.read_bytes() for p in folder.iterdir()})
    described = describe("org/tuned", session=session)
    local = fingerprint(
        Base(name="org/base", folder=tmp_path / "base"),
        find_member(str(tmp_path / "tuned"), "org/base"),
    )

    remote = fingerprint(
        Base(name="org/base", session=session),
        member_of(described, "org/base", claims=("org/base",)),
    )

    difference = remote.fingerprints[0].vector - local.fingerprints[0].vector
    assert abs(difference).max() < 1e-5
    assert remote.model.verified == ("sha256" if form == "safetensors" else remote.model.verified)
    assert [slot.shape for slot in remote.slots] == [slot.shape for slot in local.slots]
