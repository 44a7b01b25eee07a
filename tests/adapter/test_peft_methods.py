"""Every method of PEFT is computed as PEFT merges it, or refused by name."""

import peft
import peft_adapters
import pytest
import torch
from safetensors.torch import load_file

from deltadex.errors import ModelError
from deltadex.indexer.adapter import read_adapter
from deltadex.indexer.adapter_config import REFUSED, SUPPORTED

TARGETS = ["q_proj", "down_proj"]
BANK = {"r": 2, "vector_length": 4, "num_vectors": 6, "topk": 2}
CASES = {
    "loha": ("LOHA", {"r": 2, "alpha": 3, "alpha_pattern": {r"0\..*q_proj": 7}}),
    "loha-dense": ("LOHA", {"r": 5, "alpha": 3}),
    "lokr": ("LOKR", {"r": 2, "alpha": 3}),
    "lokr-both": ("LOKR", {"r": 2, "alpha": 3, "decompose_both": True, "decompose_factor": 8}),
    "lokr-whole": (
        "LOKR",
        {"r": 32, "rank_pattern": {"q_proj": 64}, "alpha": 3, "alpha_pattern": {"down_proj": 1}},
    ),
    "vera": ("VERA", {"r": 3}),
    "ia3-rows": ("IA3", {"feedforward_modules": []}),
    "ia3": ("IA3", {"feedforward_modules": ["down_proj"]}),
    "oft": ("OFT", {"oft_block_size": 4}),
    "oft-exact": ("OFT", {"oft_block_size": 4, "use_cayley_neumann": False}),
    "oft-three-terms": ("OFT", {"oft_block_size": 4, "num_cayley_neumann_terms": 3}),
    "oft-shared": ("OFT", {"oft_block_size": 4, "block_share": True}),
    "oft-constrained": ("OFT", {"oft_block_size": 4, "coft": True, "eps": 0.5}),
    "boft": ("BOFT", {"boft_block_size": 4}),
    "hra": ("HRA", {"r": 3}),
    "hra-orthogonal": ("HRA", {"r": 4, "apply_GS": True}),
    "miss-remainder": ("MISS", {"r": 7}),
    "miss-mini": ("MISS", {"r": 8, "init_weights": "mini", "mini_r": 4}),
    "miss-bat": ("MISS", {"r": 8, "init_weights": "bat"}),
    "c3a": ("C3A", {"block_size": 8}),
    "hira": ("HIRA", {"r": 2}),
    "road-1": ("ROAD", {"group_size": 8}),
    "road-2": ("ROAD", {"group_size": 8, "variant": "road_2"}),
    "road-4": ("ROAD", {"group_size": 8, "variant": "road_4"}),
    "shira": ("SHIRA", {"r": 2}),
    "fourierft": ("FOURIERFT", {"n_frequency": 20}),
    "randlora": ("RANDLORA", {"target_modules": [*TARGETS, "up_proj"], "r": 3}),
    "delora": ("DELORA", {"r": 2}),
    "gralora": ("GRALORA", {"r": 4, "gralora_k": 2, "hybrid_r": 2}),
    "gralora-alone": ("GRALORA", {"r": 4, "gralora_k": 2}),
    "vblora": ("VBLORA", BANK),
    "vblora-topk": ("VBLORA", {**BANK, "save_only_topk_weights": True}),
    "glora": ("GLORA", {"r": 2}),
    "glora-rows": ("GLORA", {"config_A_B": "vector"}),
    "glora-number": ("GLORA", {"config_A_B": "constant"}),
    "psoft": ("PSOFT", {"r": 4}),
    "psoft-pissa": ("PSOFT", {"r": 4, "ab_svd_init": "pissa_init"}),
    "psoft-series": ("PSOFT", {"r": 4, "use_cayley_neumann": True, "cayley_neumann_eps": 0.1}),
    "psoft-free": ("PSOFT", {"r": 4, "psoft_orth": False, "psoft_mag_a": False}),
    "waveft": ("WAVEFT", {"n_frequency": 20}),
    "waveft-sparse": ("WAVEFT", {"n_frequency": 9, "use_idwt": False}),
    "pvera": ("PVERA", {"r": 2}),
}
ELSEWHERE = {"LORA", "ADALORA"}
"""Methods that `test_lora` compares with their merges."""


def config_of(case, **more):
    peft_type, settings = CASES[case]
    make = peft.PEFT_TYPE_TO_CONFIG_MAPPING[peft_type]
    return make(**{"target_modules": TARGETS, **settings, **more})


def stored(case, folder):
    """The tensors that PEFT saves of an adapter of the tiny llama."""
    peft_adapters.make_adapter("llama", config_of(case), folder)
    return load_file(folder / "adapter_model.safetensors")


@pytest.mark.parametrize("case", CASES)
def test_a_method_equals_its_merged_weights(case, tmp_path):
    config = config_of(case)
    merged = peft_adapters.make_adapter("llama", config, tmp_path)

    adapter = peft_adapters.read_folder(tmp_path)

    assert adapter.method == CASES[case][0].lower()
    peft_adapters.assert_same_updates(adapter, merged, tolerance=2e-5)
    assert len(merged.updates) == 2 * len(config.target_modules)


@pytest.mark.parametrize("factors", [2, 3])
def test_butterfly_factors_are_multiplied_as_on_a_processor_that_has_the_kernel(
    factors, tmp_path, monkeypatch
):
    class Blocks:
        @staticmethod
        def apply(stacked):
            return torch.stack([torch.block_diag(*blocks) for blocks in stacked])

    monkeypatch.setattr("peft.tuners.boft.layer.get_fbd_cuda", lambda: True)
    monkeypatch.setattr("peft.tuners.boft.layer.FastBlockDiag", Blocks)
    config = config_of("boft", target_modules=["q_proj"], boft_n_butterfly_factor=factors)

    merged = peft_adapters.make_adapter("llama", config, tmp_path)

    peft_adapters.assert_same_updates(peft_adapters.read_folder(tmp_path), merged, tolerance=2e-5)
    assert len(merged.updates) == 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", ["vera", "ia3-rows", "hira", "fourierft", "randlora", "vblora"])
def test_a_method_equals_its_merged_weights_where_they_are_stored_in_by_out(case, tmp_path):
    merged = peft_adapters.make_adapter(
        "gpt2", config_of(case, target_modules=["c_attn"]), tmp_path
    )

    peft_adapters.assert_same_updates(peft_adapters.read_folder(tmp_path), merged)


NAMES = {"llama": TARGETS, "mamba": ["in_proj", "x_proj"], "vit": ["q_proj", "fc1"]}


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("case", ["oft", "ia3-rows", "shira", "saved"])
def test_an_adapter_of_such_a_method_is_indexed_as_its_merged_copy(kind, case, tmp_path):
    model = peft_adapters.make_model(kind)
    model.save_pretrained(tmp_path / "base")
    first, second = NAMES[kind][:2]
    if case == "saved":
        config = peft.LoraConfig(r=2, target_modules=[first], modules_to_save=[second])
    else:
        config = config_of(case, target_modules=[first, second])
    tuned = peft.get_peft_model(model, config)
    torch.manual_seed(1)
    for parameter in filter(lambda p: p.requires_grad, tuned.parameters()):
        parameter.data += 0.01 * torch.randn_like(parameter)
    tuned.save_pretrained(tmp_path / "models" / "adapter")
    tuned.merge_and_unload().save_pretrained(tmp_path / "models" / "merged")

    adapter, merged = peft_adapters.indexed_norms(tmp_path, "adapter", "merged")

    assert adapter == pytest.approx(merged, rel=1e-4)


def test_the_list_of_peft_is_computed_or_refused_and_nothing_of_it_is_neither():
    computed = {peft_type for peft_type, _ in CASES.values()} | ELSEWHERE
    known = {str(peft_type).removeprefix("PeftType.") for peft_type in peft.PeftType}

    assert known == computed | (known & REFUSED.keys())
    assert computed.isdisjoint(REFUSED)
    assert computed == set(SUPPORTED) - {"BONE"}


def test_bone_is_what_miss_was_called(tmp_path):
    tensors = stored("miss-remainder", tmp_path)
    former = {name.replace("miss_block", "bone_block"): t for name, t in tensors.items()}
    config = {"peft_type": "BONE", "init_weights": True}

    adapter, current = (
        read_adapter(peft_adapters.in_memory(former), config),
        peft_adapters.read_folder(tmp_path),
    )

    assert adapter.method == "bone"
    for module in adapter.modules:
        weight = peft_adapters.make_model("llama").get_submodule(module).weight.detach()
        ours, theirs = adapter.delta(module, weight), current.delta(module, weight)
        assert torch.equal(ours.matrix, theirs.matrix)


@pytest.mark.parametrize(
    ("case", "change", "code"),
    [
        ("oft", {"use_cayley_neumann": None}, "bad-config"),
        ("fourierft", {"scaling": "a lot"}, "bad-config"),
        ("road-1", {"variant": "road_3"}, "bad-config"),
        ("road-1", {"group_size": 6}, "shape-mismatch"),
        ("vblora", {"topk": 99}, "shape-mismatch"),
        ("psoft", {"r": 1 << 30}, "shape-mismatch"),
        ("psoft", {"psoft_svd": "lowrank"}, "unsupported-adapter"),
        ("waveft", {"wavelet_family": "db4"}, "unsupported-adapter"),
    ],
)
def test_settings_that_a_formula_cannot_do_without_or_does_not_know_are_named(
    case, change, code, tmp_path
):
    checkpoint = peft_adapters.in_memory(stored(case, tmp_path))
    adapter = read_adapter(checkpoint, config_of(case).to_dict() | change)
    module = next(iter(adapter.modules))

    with pytest.raises(ModelError, match=f"^{code}: "):
        adapter.delta(module, torch.ones(16, 24 if "down" in module else 16))


@pytest.mark.parametrize("case", ["vera", "vblora", "randlora", "pvera"])
def test_a_method_without_what_its_modules_share_is_refused(case, tmp_path):
    shared = ("vector_bank", "randlora_A", "randlora_B", "vera_A", "vera_B")
    own = {n: t for n, t in stored(case, tmp_path).items() if not n.endswith(shared)}

    with pytest.raises(ModelError, match=r"^unsupported-adapter: .*save_projection=True"):
        read_adapter(peft_adapters.in_memory(own), config_of(case).to_dict())
