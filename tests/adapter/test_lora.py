"""LoRA and its relatives against PEFT's own merges."""

import json

import peft
import pytest
import torch
from peft_adapters import assert_same_updates, in_memory, make_adapter, read_folder

from deltadex.errors import ModelError
from deltadex.indexer.adapter import read_adapter
from deltadex.indexer.delta import LowRankDelta, dense

TARGETS = {
    "bert": ["query", "value", "output.dense"],
    "gpt2": ["c_attn", "c_proj"],
    "llama": ["q_proj", "down_proj"],
}
A, B = "base_model.model.h.0.q.lora_A.weight", "base_model.model.h.0.q.lora_B.weight"


def lora(kind="bert", **settings):
    return peft.LoraConfig(**{"r": 3, "lora_alpha": 5, "target_modules": TARGETS[kind], **settings})


def factors(rank=2, out=5, width=4):
    generator = torch.Generator().manual_seed(rank)
    a = torch.randn(rank, width, generator=generator)
    return {A: a, B: torch.randn(out, rank, generator=generator)}


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("flag", [False, True])
def test_lora_equals_the_merged_weights_whatever_fan_in_fan_out_says(kind, flag, tmp_path):
    merged = make_adapter(kind, lora(kind, fan_in_fan_out=flag), tmp_path)

    adapter = read_folder(tmp_path)

    assert adapter.method == "lora"
    assert adapter.needs_base == frozenset()
    assert isinstance(adapter.delta(next(iter(adapter.modules)), None), LowRankDelta)
    assert_same_updates(adapter, merged)


@pytest.mark.parametrize(
    ("settings", "method"),
    [
        ({"use_rslora": True}, "rslora"),
        ({"rank_pattern": {"query": 5, r".*\.1\..*value": 2}}, "lora"),
        ({"alpha_pattern": {r"layer\.1\..*query": 40, "query": 2}}, "lora"),
        ({"alpha_pattern": {"uery": 40, "ue.*": 7, "bert.*query": 0.5}}, "lora"),
        ({"rank_pattern": {"query": 5}, "use_rslora": True}, "rslora"),
        ({"init_lora_weights": "orthogonal", "r": 4}, "lora"),
        ({"use_dora": True, "use_rslora": True}, "dora"),
        ({"lora_bias": True}, "lora"),
        ({"bias": "lora_only"}, "lora"),
    ],
)
def test_each_lora_setting_equals_the_merged_weights(settings, method, tmp_path):
    merged = make_adapter("bert", lora(**settings), tmp_path)

    adapter = read_folder(tmp_path)

    assert adapter.method == method
    assert_same_updates(adapter, merged)


@pytest.mark.parametrize(
    ("kind", "start"), [("llama", "pissa"), ("llama", "olora"), ("gpt2", "pissa")]
)
@pytest.mark.parametrize("dora", [False, True])
def test_an_adapter_that_replaced_a_part_of_w_counts_it_in(kind, start, dora, tmp_path):
    settings = {"init_lora_weights": start, "use_dora": dora, "use_rslora": True}
    merged = make_adapter(kind, lora(kind, **settings), tmp_path)

    adapter = read_folder(tmp_path)

    assert adapter.method == ("dora" if dora else start)
    assert adapter.needs_base == adapter.modules.keys()
    assert_same_updates(adapter, merged, tolerance=2e-5)


@pytest.mark.parametrize(
    ("stored", "name"),
    [
        *(({"dtype": d}, "model.safetensors") for d in (torch.bfloat16, torch.half, torch.double)),
        ({"safe": False}, "model.bin"),
    ],
)
def test_stored_types_and_a_bin_file_are_read_into_float32(stored, name, tmp_path):
    merged = make_adapter("bert", lora(), tmp_path, **stored)

    assert (tmp_path / f"adapter_{name}").exists()
    assert_same_updates(read_folder(tmp_path), merged)


def prune(tuned):
    """Mask ranks as AdaLoRA's allocator does: some everywhere, all in one module."""
    masks = {}
    for number, (name, values) in enumerate(tuned.base_model.model.named_parameters()):
        if "lora_E" in name:
            keep = [number % 5 > i and "0.attention.self.query" not in name for i in range(6)]
            values.data[~torch.tensor(keep)] = 0.0
            masks[name] = keep
    tuned.peft_config["default"].rank_pattern = masks


@pytest.mark.parametrize("stated", [True, False])
def test_pruned_adalora_keeps_the_scale_of_its_first_rank(stated, tmp_path):
    settings = {"init_r": 6, "target_r": 3, "lora_alpha": 5, "total_step": 9}
    settings = peft.AdaLoraConfig(target_modules=TARGETS["bert"], **settings)
    merged = make_adapter("bert", settings, tmp_path, prepare=prune)
    path = tmp_path / "adapter_config.json"
    config = json.loads(path.read_text())
    if not stated:
        del config["init_r"]
    path.write_text(json.dumps(config))

    adapter = read_folder(tmp_path)
    updates = {m: dense(adapter.delta(m, None)) for m in adapter.modules if m in merged.updates}

    assert updates.keys() == merged.updates.keys()
    for module, expected in merged.updates.items():
        torch.testing.assert_close(updates[module], expected, rtol=1e-4, atol=1e-5)
    pruned = adapter.delta("bert.encoder.layer.0.attention.self.query", None)
    assert pruned.norm == 0.0
    assert adapter.method == "adalora"
    assert not any("says r" in note for note in adapter.notes)


def test_dora_needs_its_base_and_a_dead_row_of_that_does_not_make_it_infinite():
    tensors = factors()
    tensors[B][1] = 0.0
    weight = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    weight[1] = 0.0
    tensors["base_model.model.h.0.q.lora_magnitude_vector"] = torch.ones(5)

    adapter = read_adapter(in_memory(tensors), {"lora_alpha": 1, "use_dora": True})
    delta = adapter.delta("h.0.q", weight)

    assert delta.matrix[1].tolist() == [0.0] * 4
    assert bool(torch.isfinite(delta.matrix).all())
    with pytest.raises(ModelError, match=r"^needs-base: "):
        adapter.delta("h.0.q", None)
    with pytest.raises(ModelError, match=r"^shape-mismatch: "):
        adapter.delta("h.0.q", torch.ones(3, 3))


E_VECTOR = A.replace("lora_A.weight", "lora_E")
MAGNITUDES = A.replace("A.weight", "magnitude_vector")


@pytest.mark.parametrize(
    ("change", "config", "said"),
    [
        ({B: None}, {}, r"missing-tensor: .*h\.0\.q.*no lora_B"),
        ({B: torch.ones(5, 3)}, {}, "shape-mismatch: "),
        ({A: torch.ones(8)}, {}, "shape-mismatch: "),
        ({A: torch.ones(0, 4), B: torch.ones(5, 0)}, {}, "shape-mismatch: "),
        ({}, {"use_dora": True}, "missing-tensor: "),
        ({}, {"peft_type": "ADALORA"}, "missing-tensor: "),
        ({A: torch.ones(2, 4, dtype=torch.int8)}, {}, "unsupported-dtype: "),
        ({E_VECTOR: torch.ones(3, 1)}, {}, "shape-mismatch: "),
        ({MAGNITUDES: torch.ones(4)}, {}, "shape-mismatch: "),
        ({A: torch.ones(8, 6), B: torch.ones(12, 4, 1)}, {"r": 4}, "not-read: .*no enable_lora"),
    ],
)
def test_missing_and_misshapen_factors_are_refused_from_their_headers(change, config, said):
    stored = {n: t for n, t in (factors() | change).items() if t is not None}
    checkpoint = in_memory(stored)
    checkpoint.close()

    with pytest.raises(ModelError, match=f"^{said}"):
        read_adapter(checkpoint, {"lora_alpha": 1, **config})


def test_a_value_that_is_not_finite_names_its_tensor():
    tensors = factors()
    tensors[B][0, 0] = float("nan")
    adapter = read_adapter(in_memory(tensors), {"lora_alpha": 1})

    with pytest.raises(ModelError, match=r"^non-finite: .*lora_B\.weight"):
        adapter.delta("h.0.q", None)


@pytest.mark.parametrize("mask", [(True, False, True), (True, True, True), (False, True, False)])
def test_a_merged_linear_of_peft_0_2_is_what_its_grouped_convolution_adds(mask):
    """`tuners/lora.py: MergedLinear` of PEFT 0.2: two groups, and rows of zeros where a part is
    not enabled."""
    rank, width, height, alpha = 4, 6, 6, 8.0
    n_trained = sum(mask)
    torch.manual_seed(3)
    down = torch.randn(rank * n_trained, width)
    up = torch.nn.Conv1d(rank * n_trained, height * n_trained, 1, groups=2, bias=False)
    name = "base_model.model.h.0.attn.c_attn"
    stored = {f"{name}.lora_A.weight": down, f"{name}.lora_B.weight": up.weight.detach()}
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "enable_lora": list(mask)}

    adapter = read_adapter(in_memory(stored), config)
    delta = dense(adapter.delta("h.0.attn.c_attn", None))

    inputs = torch.randn(7, width)
    with torch.no_grad():
        added = up((inputs @ down.T).T).T * alpha / rank
    expected = torch.zeros(7, 3 * height)
    expected[:, torch.tensor(mask).repeat_interleave(height)] = added
    assert adapter.modules == {"h.0.attn.c_attn": (3 * height, width)}
    torch.testing.assert_close(inputs @ delta.T, expected)
