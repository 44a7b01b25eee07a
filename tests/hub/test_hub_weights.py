"""Checkpoints on the Hub: the right tensors, few bytes, few requests, cached files first."""

import io
import random
import threading
from dataclasses import replace

import pytest
import torch
from factories import NESTED_STATE_DICTS, TOO_DEEP, nest
from fault_family import PATIENCE, family_hub
from hub_repos import ODD, assert_same, bert_like, sharded, to_bin
from hub_standin import Fault
from safetensors.torch import save

import deltadex as dx
from deltadex.errors import ModelError
from deltadex.indexer.checkpoint import ALL_TENSORS, WHOLE_TENSORS
from deltadex.indexer.checkpoint.bin_file import LONGEST_END
from deltadex.indexer.checkpoint.files import TensorFile
from deltadex.indexer.hub import HubWeights, describe


def is_wanted(name):
    return name.startswith("encoder.") and name.endswith(".weight")


def open_repo(hub, session, files):
    hub.add("org/model", files)
    model = describe("org/model", session=session)
    hub.log.clear()
    return HubWeights(model, session=session).open()


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
    ],
    ids=lambda files: next(iter(files)),
)
def test_every_form_gives_every_tensor(hub, session, files):
    checkpoint = open_repo(hub, session, files)

    assert_same(checkpoint, ODD)
    weights = [c for n, c in files.items() if n.endswith((".safetensors", ".bin"))]
    assert checkpoint.bytes_total == sum(map(len, weights))


def test_a_bin_keeps_views_and_transposed_tensors_apart(hub, session):
    whole = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    tensors = {"whole": whole, "rows": whole[1:3], "turned": whole.T, "tied": whole}

    assert_same(open_repo(hub, session, {"pytorch_model.bin": to_bin(tensors)}), tensors)


@pytest.mark.parametrize("keys", NESTED_STATE_DICTS, ids=".".join)
def test_a_state_dict_may_lie_down_to_three_levels_deep_on_the_hub_as_on_disk(hub, session, keys):
    assert_same(open_repo(hub, session, {"pytorch_model.bin": to_bin(nest(ODD, keys))}), ODD)


@pytest.mark.parametrize("keys", TOO_DEEP, ids=".".join)
def test_a_state_dict_that_lies_elsewhere_is_refused_on_the_hub_as_on_disk(hub, session, keys):
    with pytest.raises(ModelError, match=r"^no-weights: pytorch_model\.bin: no tensors by name"):
        open_repo(hub, session, {"pytorch_model.bin": to_bin(nest(ODD, keys))})


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


@pytest.mark.parametrize("seed", range(3))
def test_an_adapter_read_in_any_order_travels_once(hub, session, monkeypatch, seed):
    read_ahead(monkeypatch, ahead=100_000)
    tensors = {f"m.{i}.lora_{x}.weight": torch.randn(8, 128) for i in range(60) for x in "AB"}
    files = {"adapter_model.safetensors": save(tensors), "adapter_config.json": b"{}"}
    checkpoint = open_repo(hub, session, files)

    for name in random.Random(seed).sample(sorted(tensors), len(tensors)):
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

    threads = [threading.Thread(target=read, args=(list(tensors)[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
    assert checkpoint.bytes_read == hub.wire_bytes("cdn") - _refused_bytes(hub)


def _refused_bytes(hub):
    return sum(r.body_bytes for r in hub.requests("cdn") if r.status == 403)


REFUSED = [
    ({"README.md": b"x"}, "no-weights"),
    ({"model.safetensors": b""}, "truncated"),
    ({"model.safetensors": save(ODD)[:-1]}, "truncated"),
    ({"model.safetensors": b"\xff" * 200}, "bad-header"),
    ({"pytorch_model.bin": b""}, "truncated"),
    ({"pytorch_model.bin": to_bin(ODD)[:-30]}, "truncated"),
    ({"pytorch_model.bin": b"\x80\x02" + b"0" * 500}, "legacy-pickle"),
    ({"pytorch_model.bin": to_bin([1, 2])}, "no-weights"),
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
def test_bad_files_have_their_codes(hub, session, files, code):
    with pytest.raises(ModelError, match=f"^{code}: "):
        open_repo(hub, session, files)


def test_a_tensor_that_is_not_there_is_named(hub, session):
    checkpoint = open_repo(hub, session, {"model.safetensors": save(ODD)})

    with pytest.raises(ModelError, match=r"^missing-tensor: .*'nope'"):
        checkpoint.read("nope")
    with pytest.raises(ModelError, match=r"^missing-tensor: .*'nope'"):
        list(checkpoint.stream(["plain", "nope"]))


def test_weights_in_a_subfolder_are_not_the_models(hub, session):
    files = {f"sub/{name}": content for name, content in sharded(ODD).items()}
    hub.add("org/model", files)
    model = describe("org/model", session=session)

    with pytest.raises(ModelError, match=r"^no-weights: "):
        HubWeights(model, session=session).open()


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
