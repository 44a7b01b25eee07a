"""LoRA and its relatives against PEFT's own merges."""

import json

import peft
import pytest
import torch
from peft_adapters import (
    MemoryCheckpoint,
    assert_same_updates,
    dense,
    make_adapter,
    make_model,
    read_folder,
)

from deltadex.errors import ModelError
from deltadex.indexer.adapter import read_adapter
from deltadex.indexer.delta import DenseDelta, LowRankDelta

TARGETS = {
    "bert": ["query", "value", "output.dense"],
    "gpt2": ["c_attn", "c_proj"],
    "llama": ["q_proj", "down_proj"],
    "t5": ["q", "wo"],
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
    assert_same_updates(adapter, merged)


@pytest.mark.parametrize(
    ("settings", "method"),
    [
        ({"use_rslora": True}, "rslora"),
        ({"rank_pattern": {"query": 5, r".*\.1\..*value": 2}}, "lora"),
        ({"alpha_pattern": {r"layer\.1\..*query": 40, "query": 2}}, "lora"),
        ({"alpha_pattern": {"uery": 40, "ue.*": 7, "bert.*query": 0.5}}, "lora"),
        ({"rank_pattern": {"query": 5}, "use_rslora": True}, "rslora"),
        ({"init_lora_weights": "gaussian"}, "lora"),
        ({"init_lora_weights": "orthogonal", "r": 4}, "lora"),
        ({"use_dora": True}, "dora"),
        ({"use_dora": True, "use_rslora": True}, "dora"),
        ({"lora_bias": True}, "lora"),
        ({"bias": "all"}, "lora"),
        ({"bias": "lora_only"}, "lora"),
        ({"lora_alpha": 2.5}, "lora"),
    ],
)
def test_each_lora_setting_equals_the_merged_weights(settings, method, tmp_path):
    merged = make_adapter("bert", lora(**settings), tmp_path)

    adapter = read_folder(tmp_path)

    assert adapter.method == method
    assert_same_updates(adapter, merged)


@pytest.mark.parametrize("settings", [{"use_dora": True}, {"init_lora_weights": "pissa"}])
def test_methods_that_use_w_see_a_conv1d_as_out_by_in(settings, tmp_path):
    merged = make_adapter("gpt2", lora("gpt2", **settings), tmp_path)

    assert_same_updates(read_folder(tmp_path), merged, tolerance=2e-5)


@pytest.mark.parametrize("start", ["pissa", "olora"])
@pytest.mark.parametrize("dora", [False, True])
def test_an_adapter_that_replaced_a_part_of_w_counts_it_in(start, dora, tmp_path):
    settings = {"init_lora_weights": start, "use_dora": dora, "use_rslora": True}
    merged = make_adapter("llama", lora("llama", **settings), tmp_path)

    adapter = read_folder(tmp_path)

    assert adapter.method == ("dora" if dora else start)
    assert adapter.needs_base == adapter.modules.keys()
    assert_same_updates(adapter, merged, tolerance=2e-5)


def test_converted_pissa_is_plain_lora_of_twice_the_rank(tmp_path):
    settings = lora("llama", init_lora_weights="pissa")
    start, converted = tmp_path / "start", tmp_path / "converted"
    untrained = peft.get_peft_model(make_model("llama"), settings)
    untrained.peft_config["default"].init_lora_weights = True
    untrained.save_pretrained(str(start))

    def convert(tuned):
        tuned.save_pretrained(str(converted), path_initial_model_for_weight_conversion=str(start))
        tuned.set_adapter("default")

    settings = lora("llama", init_lora_weights="pissa")
    merged = make_adapter("llama", settings, tmp_path / "unconverted", prepare=convert)
    adapter = read_folder(converted)

    assert adapter.method == "lora"
    assert adapter.needs_base == frozenset()
    assert adapter.delta("model.layers.0.self_attn.q_proj", None).left.shape == (16, 6)
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


def adalora(kind, **settings):
    return peft.AdaLoraConfig(
        target_modules=TARGETS[kind],
        **{"init_r": 6, "target_r": 3, "lora_alpha": 5, "total_step": 9, **settings},
    )


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
@pytest.mark.parametrize("alpha", [5, 0])
def test_adalora_equals_the_merged_weights(kind, alpha, tmp_path):
    merged = make_adapter(kind, adalora(kind, lora_alpha=alpha), tmp_path)

    adapter = read_folder(tmp_path)

    assert adapter.method == "adalora"
    assert_same_updates(adapter, merged)


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
    merged = make_adapter("bert", adalora("bert"), tmp_path, prepare=prune)
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


def test_lora_stays_low_rank_and_a_part_of_w_is_replaced_only_as_the_config_says():
    tensors = factors(rank=2)
    config = {"peft_type": "LORA", "lora_alpha": 2, "init_lora_weights": True}

    delta = read_adapter(MemoryCheckpoint(tensors), config).delta("h.0.q", None)

    assert isinstance(delta, LowRankDelta)
    assert (delta.left.shape, delta.right.shape) == ((5, 2), (2, 4))
    torch.testing.assert_close(dense(delta), tensors[B] @ tensors[A])


def test_a_dead_row_of_w_does_not_make_dora_infinite():
    tensors = factors()
    tensors[B][1] = 0.0
    weight = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    weight[1] = 0.0
    tensors["base_model.model.h.0.q.lora_magnitude_vector"] = torch.ones(5)

    adapter = read_adapter(MemoryCheckpoint(tensors), {"lora_alpha": 1, "use_dora": True})
    delta = adapter.delta("h.0.q", weight)

    assert isinstance(delta, DenseDelta)
    assert delta.matrix[1].tolist() == [0.0] * 4
    assert bool(torch.isfinite(delta.matrix).all())


E_VECTOR = A.replace("lora_A.weight", "lora_E")
MAGNITUDES = A.replace("A.weight", "magnitude_vector")


@pytest.mark.parametrize(
    ("change", "config", "said"),
    [
        ({A: None}, {}, r"missing-tensor: .*h\.0\.q.*no lora_A"),
        ({B: None}, {}, r"missing-tensor: .*h\.0\.q.*no lora_B"),
        ({B: torch.ones(5, 3)}, {}, "shape-mismatch: "),
        ({A: torch.ones(8)}, {}, "shape-mismatch: "),
        ({A: torch.ones(0, 4), B: torch.ones(5, 0)}, {}, "shape-mismatch: "),
        ({}, {"use_dora": True}, "missing-tensor: "),
        ({}, {"peft_type": "ADALORA"}, "missing-tensor: "),
        ({A: torch.ones(2, 4, dtype=torch.int8)}, {}, "unsupported-dtype: "),
        ({E_VECTOR: torch.ones(3, 1)}, {}, "shape-mismatch: "),
        ({MAGNITUDES: torch.ones(4)}, {}, "shape-mismatch: "),
    ],
)
def test_missing_and_misshapen_factors_are_refused_from_their_headers(change, config, said):
    stored = {n: t for n, t in (factors() | change).items() if t is not None}
    checkpoint = MemoryCheckpoint(stored)

    with pytest.raises(ModelError, match=f"^{said}"):
        read_adapter(checkpoint, {"lora_alpha": 1, **config})
    assert checkpoint.reads == []


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_names_its_tensor(bad):
    tensors = factors()
    tensors[B][0, 0] = bad
    adapter = read_adapter(MemoryCheckpoint(tensors), {"lora_alpha": 1})

    with pytest.raises(ModelError, match=r"^non-finite: .*lora_B\.weight"):
        adapter.delta("h.0.q", None)


def test_a_delta_reads_only_its_own_tensors():
    other = {name.replace("h.0", "h.1"): tensor for name, tensor in factors().items()}
    checkpoint = MemoryCheckpoint({**factors(), **other})
    adapter = read_adapter(checkpoint, {"lora_alpha": 1})

    adapter.delta("h.1.q", None)

    assert sorted(checkpoint.reads) == sorted(other)
    assert sorted(adapter.tensors_of("h.1.q")) == sorted(other)


def test_dora_without_the_base_says_so(tmp_path):
    make_adapter("bert", lora(use_dora=True), tmp_path)
    adapter = read_folder(tmp_path)
    module = next(iter(adapter.modules))

    with pytest.raises(ModelError) as without:
        adapter.delta(module, None)
    with pytest.raises(ModelError) as misfit:
        adapter.delta(module, torch.ones(3, 3))

    assert without.value.code == "needs-base"
    assert misfit.value.code == "shape-mismatch"


@pytest.mark.parametrize("mask", [(True, False, True), (True, True, True), (False, True, False)])
def test_a_merged_linear_of_peft_0_2_is_what_its_grouped_convolution_adds(mask):
    """`tuners/lora.py: MergedLinear` of PEFT 0.2: two groups, and rows of zeros where a part is
    not enabled."""
    rank, width, height, alpha = 4, 6, 5, 8.0
    n_trained = sum(mask)
    torch.manual_seed(3)
    down = torch.randn(rank * n_trained, width)
    if height * n_trained % 2:
        height += 1
    up = torch.nn.Conv1d(rank * n_trained, height * n_trained, 1, groups=2, bias=False)
    name = "base_model.model.h.0.attn.c_attn"
    stored = {f"{name}.lora_A.weight": down, f"{name}.lora_B.weight": up.weight.detach()}
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "enable_lora": list(mask)}

    adapter = read_adapter(MemoryCheckpoint(stored), config)
    delta = dense(adapter.delta("h.0.attn.c_attn", None))

    inputs = torch.randn(7, width)
    with torch.no_grad():
        added = up((inputs @ down.T).T).T * alpha / rank
    expected = torch.zeros(7, 3 * height)
    expected[:, torch.tensor(mask).repeat_interleave(height)] = added
    assert adapter.modules == {"h.0.attn.c_attn": (3 * height, width)}
    torch.testing.assert_close(inputs @ delta.T, expected)


def test_a_merged_linear_without_its_mask_is_not_read():
    name = "base_model.model.h.0.attn.c_attn"
    stored = {
        f"{name}.lora_A.weight": torch.ones(8, 6),
        f"{name}.lora_B.weight": torch.ones(12, 4, 1),
    }

    with pytest.raises(ModelError, match=r"^not-read: .*no enable_lora"):
        read_adapter(MemoryCheckpoint(stored), {"peft_type": "LORA", "r": 4})
